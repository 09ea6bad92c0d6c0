"""Forecast fans: the last forecast of the test part, its intervals, and what came true."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rru.inference.fans import Fan, Point
from rru.report import charts, svg
from rru.report.gather import WORD
from rru.training.run_files import is_number

MAX_FANS = 6
MAX_STEPS = 400
QUANTILES = 5
MAX_VALUE = 1e300


@dataclass(frozen=True)
class Picture:
    """A picture of a run's test results."""

    heading: str
    drawn: Markup
    caption: str


def fans(details: Mapping[str, Any]) -> list[Picture]:
    """Return the forecast fans in a run's details. Leave out entries that are not fans."""
    entries, target = details.get("fans"), str(details.get("target", ""))[:WORD]
    if not isinstance(entries, list):
        return []
    return [fan for entry in entries[:MAX_FANS] if isinstance(entry, Mapping) and (fan := _fan(entry, target))]


def _fan(entry: Mapping[str, Any], target: str) -> Picture | None:
    history, actual, rows = _values(entry.get("history")), _values(entry.get("actual")), entry.get("quantiles")
    if history is None or not actual or not isinstance(rows, list) or len(rows) != len(actual):
        return None
    quantiles = [[value for value in _values(row) or () if value is not None] for row in rows]
    if any(len(values) != QUANTILES or len(row) != QUANTILES for row, values in zip(rows, quantiles, strict=True)):
        return None
    fan = Fan(history, quantiles)
    name = str(entry.get("name", ""))[:WORD]
    heading = f"Forecast of {target}" + (f", {name}" if name else "")
    truth = [(len(history) + step, value) for step, value in enumerate(actual) if value is not None]
    inside = sum(
        row[1] <= value <= row[3] for value, row in zip(actual, fan.quantiles, strict=True) if value is not None
    )
    caption = (
        f"The last {len(rows)} steps of the test part. Grey is what the model knew, the line in colour its median, the "
        f"bands its 80 % and 95 % intervals, the dots what came true: {inside} of {len(truth)} in the 80 % interval."
    )
    return Picture(heading, _drawn(fan, truth, f"{heading}. {caption}"), caption)


def _values(values: object) -> list[float | None] | None:
    """Return numbers and gaps, or None if there is anything else."""
    if not isinstance(values, list) or len(values) > MAX_STEPS:
        return None
    if not all(value is None or (is_number(value) and abs(value) < MAX_VALUE) for value in values):
        return None
    return [None if value is None else float(value) for value in values]


def _drawn(fan: Fan, truth: Sequence[Point], label: str) -> Markup:
    frame = charts.Frame(0, fan.steps[-1], *fan.limits(0.06, [value for _, value in truth]))

    def path(points: Sequence[Point]) -> str:
        return charts.path([(frame.x(step), frame.y(value)) for step, value in points])

    parts = charts.axes(frame, "step", "")
    parts += [svg.element("path", d=path(band) + "Z", class_="band series-0") for band in fan.bands]
    if len(fan.known) > 1:
        parts.append(svg.element("path", d=path(fan.known), class_="line known"))
    parts.append(svg.element("path", d=path(fan.median), class_="line series-0"))
    values = dict(truth)
    for step, (low_95, low_80, middle, high_80, high_95) in zip(fan.steps, fan.quantiles, strict=True):
        tip = f"step {step}\nforecast: {middle:.6g}\n80 %: {low_80:.6g} to {high_80:.6g}"
        tip += f"\n95 %: {low_95:.6g} to {high_95:.6g}"
        x, y = frame.x(step), frame.y(values.get(step, middle))
        mark = [svg.element("circle", cx=x, cy=y, r=9, class_="target")]
        if step in values:
            tip += f"\ncame true: {values[step]:.6g}"
            mark.append(svg.element("circle", cx=x, cy=y, r=2.6, class_="truth"))
        parts.append(svg.element("g", *mark, data_tip=tip, class_="mark"))
    return svg.picture(charts.WIDTH, charts.HEIGHT, *parts, label=label, kind="chart")
