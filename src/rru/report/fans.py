"""Forecast fans: the last forecast of the test part, its intervals, and what came true."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

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
    levels: list[list[float]] = [
        [value for value in column if value is not None] for column in zip(*checked, strict=True)
    ]
    name = str(one.get("name", ""))[:WORD]
    heading = f"Forecast of {target}" + (f", {name}" if name else "")
    truth = [(len(history) + step, value) for step, value in enumerate(actual) if value is not None]
    inside = sum(
        low <= value <= high for value, low, high in zip(actual, levels[1], levels[3], strict=True) if value is not None
    )
    caption = (
        f"The last {len(rows)} steps of the test part. Grey is what the model knew, the line in colour its median, the "
        f"bands its 80 % and 95 % intervals, the dots what came true: {inside} of {len(truth)} in the 80 % interval."
    )
    return Picture(heading, _drawn(history, levels, truth, f"{heading}. {caption}"), caption)


def _values(given: Any) -> list[float | None] | None:
    """Return numbers and gaps, or None if there is anything else."""
    if not isinstance(given, list) or len(given) > MOST_STEPS:
        return None
    if not all(value is None or (is_number(value) and abs(value) < LARGEST) for value in given):
        return None
    return [None if value is None else float(value) for value in given]


def _drawn(
    history: Sequence[float | None], levels: Sequence[Sequence[float]], truth: Sequence[tuple[int, float]], said: str
) -> Markup:
    known = [(step, value) for step, value in enumerate(history) if value is not None]
    everything = [value for _, value in (*known, *truth)] + [value for level in levels for value in level]
    low, high = min(everything), max(everything)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    steps = [len(history) + step for step in range(len(levels[0]))]
    frame = charts.Frame(0, steps[-1], low - room, high + room)

    def path(points: Sequence[tuple[int, float]]) -> str:
        return charts.path([(frame.x(step), frame.y(value)) for step, value in points])

    parts = [*charts.axes(frame, "step", "")]
    for lower, upper in ((0, 4), (1, 3)):
        edges = [*zip(steps, levels[upper], strict=True), *reversed(list(zip(steps, levels[lower], strict=True)))]
        parts.append(svg.element("path", d=path([*known[-1:], *edges]) + "Z", class_="band series-0"))
    if len(known) > 1:
        parts.append(svg.element("path", d=path(known), class_="line known"))
    median = [*known[-1:], *zip(steps, levels[2], strict=True)]
    parts.append(svg.element("path", d=path(median), class_="line series-0"))
    values = dict(truth)
    for step, (low_95, low_80, middle, high_80, high_95) in zip(steps, zip(*levels, strict=True), strict=True):
        came = f"\ncame true: {values[step]:.6g}" if step in values else ""
        bounds = f"80 %: {low_80:.6g} to {high_80:.6g}\n95 %: {low_95:.6g} to {high_95:.6g}"
        told = f"step {step}\nforecast: {middle:.6g}\n{bounds}"
        x, y = frame.x(step), frame.y(values.get(step, middle))
        target = svg.element("circle", cx=x, cy=y, r=9, class_="target")
        dot = svg.element("circle", cx=x, cy=y, r=2.6, class_="truth") if step in values else Markup("")
        parts.append(svg.element("g", target, dot, data_tip=told + came, class_="mark"))
    return svg.picture(charts.WIDTH, charts.HEIGHT, *parts, label=said, kind="chart")
