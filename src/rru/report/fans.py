"""Forecast fans: the last forecast of the test part, its intervals, and what came true."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rru.inference.fans import Fan, Point
from rru.report import charts, svg
from rru.report.gather import WORD
from rru.training.run_files import is_number

MOST_FANS = 6
MOST_STEPS = 400
QUANTILES = 5
LARGEST = 1e300


@dataclass(frozen=True)
class Picture:
    """A picture of a run's test results."""

    heading: str
    drawn: Markup
    caption: str


def fans(details: Mapping[str, Any]) -> list[Picture]:
    """Return the forecast fans in a run's details; leaves out what is none."""
    given, target = details.get("fans"), str(details.get("target", ""))[:WORD]
    if not isinstance(given, list):
        return []
    return [found for one in given[:MOST_FANS] if isinstance(one, Mapping) and (found := _fan(one, target))]


def _fan(one: Mapping[str, Any], target: str) -> Picture | None:
    history, actual, rows = _values(one.get("history")), _values(one.get("actual")), one.get("quantiles")
    if history is None or actual is None or not isinstance(rows, list) or not 0 < len(rows) <= MOST_STEPS:
        return None
    quantiles = [_values(row) for row in rows]
    checked = [row for row in quantiles if row is not None and len(row) == QUANTILES and None not in row]
    if len(checked) != len(rows) or len(actual) != len(rows):
        return None
    fan = Fan(history, [[value for value in row if value is not None] for row in checked])
    name = str(one.get("name", ""))[:WORD]
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


def _values(given: Any) -> list[float | None] | None:
    """Return numbers and gaps, or None if there is anything else."""
    if not isinstance(given, list) or len(given) > MOST_STEPS:
        return None
    if not all(value is None or (is_number(value) and abs(value) < LARGEST) for value in given):
        return None
    return [None if value is None else float(value) for value in given]


def _drawn(fan: Fan, truth: Sequence[Point], said: str) -> Markup:
    frame = charts.Frame(0, fan.steps[-1], *fan.limits(0.06, [value for _, value in truth]))

    def path(points: Sequence[Point]) -> str:
        return charts.path([(frame.x(step), frame.y(value)) for step, value in points])

    parts = [*charts.axes(frame, "step", "")]
    parts += [svg.element("path", d=path(band) + "Z", class_="band series-0") for band in fan.bands]
    if len(fan.known) > 1:
        parts.append(svg.element("path", d=path(fan.known), class_="line known"))
    parts.append(svg.element("path", d=path(fan.median), class_="line series-0"))
    values = dict(truth)
    for step, (low_95, low_80, middle, high_80, high_95) in zip(fan.steps, fan.quantiles, strict=True):
        came = f"\ncame true: {values[step]:.6g}" if step in values else ""
        bounds = f"80 %: {low_80:.6g} to {high_80:.6g}\n95 %: {low_95:.6g} to {high_95:.6g}"
        told = f"step {step}\nforecast: {middle:.6g}\n{bounds}"
        x, y = frame.x(step), frame.y(values.get(step, middle))
        target = svg.element("circle", cx=x, cy=y, r=9, class_="target")
        dot = svg.element("circle", cx=x, cy=y, r=2.6, class_="truth") if step in values else Markup("")
        parts.append(svg.element("g", target, dot, data_tip=told + came, class_="mark"))
    return svg.picture(charts.WIDTH, charts.HEIGHT, *parts, label=said, kind="chart")
