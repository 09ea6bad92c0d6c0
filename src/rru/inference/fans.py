"""Draw forecasts: the end of each series, the median and the 80 % and 95 % intervals."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rru.extras import extra

if TYPE_CHECKING:
    from rru.inference.forecasting import Forecast

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 260, 84, 18, 26, 34  # pixels of one series
MOST = 8  # series in a picture
SHOWN = 4  # horizons of history, at least so many,
LEAST_SHOWN = 24  # and at least so many steps
PAPER, LINE, INK, HISTORY, MEDIAN = "#ffffff", "#e3e7ec", "#39424e", "#5b6675", "#1f6feb"
FANS = (("#dbe8fd", 0, 4), ("#a9c9f9", 1, 3))  # 95 %, 80 %


def picture(forecasts: Sequence[Forecast]) -> bytes:
    """Returns a picture of the first forecasts, one below another, as the bytes of a PNG file."""
    with extra("train"):
        from PIL import Image, ImageDraw
    shown = forecasts[:MOST]
    image = Image.new("RGB", (WIDTH, HEIGHT * len(shown) + 20), PAPER)
    pen = ImageDraw.Draw(image)
    for number, one in enumerate(shown):
        _draw(pen, one, HEIGHT * number)
    x, y = LEFT, HEIGHT * len(shown)
    for colour, text in ((HISTORY, "known"), (MEDIAN, "forecast"), (FANS[1][0], "80 %"), (FANS[0][0], "95 %")):
        pen.rectangle([x, y + 4, x + 14, y + 12], fill=colour)
        pen.text((x + 20, y + 2), text, fill=INK)
        x += 90
    content = io.BytesIO()
    image.save(content, format="PNG", optimize=True)
    return content.getvalue()


def _draw(pen: Any, one: Forecast, top: int) -> None:
    horizon = len(one.quantiles)
    known = one.history[-max(SHOWN * horizon, LEAST_SHOWN) :]
    low, high = (float(edge(np.append(known[~np.isnan(known)], one.quantiles))) for edge in (np.min, np.max))
    margin = 0.05 * (high - low or abs(high) or 1.0)
    low, high = low - margin, high + margin
    last = len(known) + horizon - 1

    def at(step: int, value: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * step / max(last, 1)
        return x, top + HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    for value in _round_values(low, high):
        x, y = at(0, value)
        pen.line([(x, y), (WIDTH - RIGHT, y)], fill=LINE)
        pen.text((LEFT - 8, y - 6), f"{value:.6g}", fill=INK, anchor="ra")
    for step in (0, len(known) - 1, last):
        when = str(step + len(one.history) - len(known))
        if one.times is not None:
            when = str(one.times[step - last - 1 + len(one.times)].astype("datetime64[m]")).replace("T00:00", "")
        anchor = {0: "la", last: "ra"}.get(step, "ma")
        pen.text((at(step, low)[0], top + HEIGHT - BOTTOM + 6), when, fill=INK, anchor=anchor)
    pen.text((LEFT, top + 6), f"{one.target}, {one.name}" if one.name else one.target, fill=INK)
    joint = [(len(known) - 1, float(known[-1]))]
    steps = range(len(known), last + 1)
    for colour, lower, upper in FANS:
        edges = [*joint, *zip(steps, one.quantiles[:, upper].tolist(), strict=True)]
        edges += reversed(list(zip(steps, one.quantiles[:, lower].tolist(), strict=True)))
        pen.polygon([at(*place) for place in edges], fill=colour)
    median = [*joint, *zip(steps, one.quantiles[:, 2].tolist(), strict=True)]
    pen.line([at(*place) for place in median], fill=MEDIAN, width=2)
    run: list[tuple[float, float]] = []
    for step, value in enumerate([*known.tolist(), np.nan]):
        if not np.isnan(value):
            run.append(at(step, value))
        elif run:
            pen.line(run, fill=HISTORY, width=2) if len(run) > 1 else pen.point(run, fill=HISTORY)
            run = []


def _round_values(low: float, high: float) -> list[float]:
    """Returns at most six round numbers from `low` to `high`."""
    size = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next((size * factor for factor in (1, 2, 5) if (high - low) / (size * factor) <= 5), size * 10)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
