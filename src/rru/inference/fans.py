"""Forecast fans: the end of a series, the median and the 80 % and 95 % intervals; their geometry, and a picture."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rru.extras import extra

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw as Pen

    from rru.inference.forecasting import Forecast

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 260, 84, 18, 26, 34  # pixels of one series
MAX_SERIES = 8  # in a picture
SHOWN = 4  # horizons of history, at least so many,
MIN_SHOWN = 24  # and at least so many steps
PAPER, LINE, INK, HISTORY, MEDIAN = "#ffffff", "#e3e7ec", "#39424e", "#5b6675", "#1f6feb"
COLOURS = ("#dbe8fd", "#a9c9f9")  # 95 %, 80 %
BANDS = ((0, 4), (1, 3))  # the limits of the intervals among the quantiles, the wide one first

Point = tuple[int, float]
"""A step, and the value there."""


class Fan:
    """The end of a series and its forecast.

    **Arguments:** `history`: the known values, None where missing; `quantiles`: five for each step after them.
    """

    def __init__(self, history: Sequence[float | None], quantiles: Sequence[Sequence[float]]) -> None:
        self.quantiles = quantiles
        self.known = [(step, value) for step, value in enumerate(history) if value is not None]
        self.steps = range(len(history), len(history) + len(quantiles))
        lines = [list(zip(self.steps, level, strict=True)) for level in zip(*quantiles, strict=True)]
        start = self.known[-1:]  # median and bands begin at the last known value
        self.median = start + lines[2]
        self.bands = [start + lines[upper] + lines[lower][::-1] for lower, upper in BANDS]

    def limits(self, margin: float, more: Sequence[float] = ()) -> tuple[float, float]:
        """Return the lowest and highest value, with a margin, a share of the range; `more` are to fit in too."""
        values = [value for _, value in self.known] + [value for row in self.quantiles for value in row] + [*more]
        low, high = min(values), max(values)
        room = margin * (high - low) or 0.05 * abs(high) or 1.0
        return low - room, high + room


def picture(forecasts: Sequence[Forecast]) -> bytes:
    """Return a picture of the first forecasts, one below another, as the bytes of a PNG file."""
    with extra("train"):
        from PIL import Image, ImageDraw
    shown = forecasts[:MAX_SERIES]
    image = Image.new("RGB", (WIDTH, HEIGHT * len(shown) + 20), PAPER)
    pen = ImageDraw.Draw(image)
    for number, forecast in enumerate(shown):
        _draw(pen, forecast, HEIGHT * number)
    x, y = LEFT, HEIGHT * len(shown)
    for colour, text in ((HISTORY, "known"), (MEDIAN, "forecast"), (COLOURS[1], "80 %"), (COLOURS[0], "95 %")):
        pen.rectangle([x, y + 4, x + 14, y + 12], fill=colour)
        pen.text((x + 20, y + 2), text, fill=INK)
        x += 90
    content = io.BytesIO()
    image.save(content, format="PNG", optimize=True)
    return content.getvalue()


def _draw(pen: Pen, forecast: Forecast, top: int) -> None:
    end = forecast.history[-max(SHOWN * len(forecast.quantiles), MIN_SHOWN) :]
    fan = Fan([None if np.isnan(value) else value for value in end.tolist()], forecast.quantiles.tolist())
    low, high = fan.limits(0.05)
    last = fan.steps[-1]

    def at(point: Point) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * point[0] / max(last, 1)
        return x, top + HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (point[1] - low) / (high - low)

    for value in round_values(low, high):
        x, y = at((0, value))
        pen.line([(x, y), (WIDTH - RIGHT, y)], fill=LINE)
        pen.text((LEFT - 8, y - 6), f"{value:.6g}", fill=INK, anchor="ra")
    for step in (0, len(end) - 1, last):
        when = str(step + len(forecast.history) - len(end))
        if forecast.times is not None:
            time = forecast.times[step - last - 1 + len(forecast.times)]
            dated = isinstance(time, np.datetime64)
            when = str(time.astype("datetime64[m]")).replace("T00:00", "") if dated else str(time)
        anchor = {0: "la", last: "ra"}.get(step, "ma")
        pen.text((at((step, low))[0], top + HEIGHT - BOTTOM + 6), when, fill=INK, anchor=anchor)
    title = f"{forecast.target}, {forecast.name}" if forecast.name else forecast.target
    pen.text((LEFT, top + 6), title, fill=INK)
    for colour, band in zip(COLOURS, fan.bands, strict=True):
        pen.polygon([at(point) for point in band], fill=colour)
    pen.line([at(point) for point in fan.median], fill=MEDIAN, width=2)
    for run in np.split(np.array(fan.known), np.flatnonzero(np.diff([step for step, _ in fan.known]) > 1) + 1):
        places = [at((int(step), value)) for step, value in run.tolist()]
        pen.line(places, fill=HISTORY, width=2) if len(run) > 1 else pen.point(places, fill=HISTORY)


def round_values(low: float, high: float) -> list[float]:
    """Return at most six round numbers from `low` to `high`."""
    size = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next((size * factor for factor in (1, 2, 5) if (high - low) / (size * factor) <= 5), size * 10)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
