"""Forecast fans: the last forecast of the test part, its intervals, a simple forecast, and what came true."""

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
BASELINES = {"seasonal": "seasonal naive", "last": "last value"}
"""The simple forecasts of a fan, by their name there; the first that it has is drawn."""


@dataclass(frozen=True)
class Picture:
    """A picture of a run's test results."""

    heading: str
    drawn: Markup
    caption: str


@dataclass(frozen=True)
class Drawn:
    """What a fan shows.

    **Arguments:**

    - `fan`: what was known, and the forecast.
    - `truth`: the values that came true.
    - `times`: of each step; empty if it has none.
    - `baseline`: the name of the simple forecast, and its values; empty if there is none.
    """

    fan: Fan
    truth: Sequence[Point]
    times: Sequence[str]
    baseline: tuple[str, Sequence[Point]]

    def when(self, step: int) -> str:
        """Return the time of a step; its number if it has none."""
        return self.times[step] if self.times else f"step {step}"


def fans(details: Mapping[str, Any]) -> list[Picture]:
    """Return the forecast fans in a run's details. Leave out entries that are not fans."""
    target = str(details.get("target", ""))[:WORD]
    entries = [entry for key in ("fans", "more_fans") for entry in _listed(details.get(key))]
    return [fan for entry in entries if isinstance(entry, Mapping) and (fan := _fan(entry, target))]


def _listed(entries: object) -> list[Any]:
    return entries[:MAX_FANS] if isinstance(entries, list) else []


def _fan(entry: Mapping[str, Any], target: str) -> Picture | None:
    history, actual, rows = _values(entry.get("history")), _values(entry.get("actual")), entry.get("quantiles")
    if history is None or not actual or not isinstance(rows, list) or len(rows) != len(actual):
        return None
    quantiles = [[value for value in _values(row) or () if value is not None] for row in rows]
    if any(len(values) != QUANTILES or len(row) != QUANTILES for row, values in zip(rows, quantiles, strict=True)):
        return None
    fan = Fan(history, quantiles)
    truth = [(len(history) + step, value) for step, value in enumerate(actual) if value is not None]
    drawn = Drawn(fan, truth, _times(entry, fan), _baseline(entry, fan))
    name = str(entry.get("name", ""))[:WORD]
    heading = f"Forecast of {target}" + (f", {name}" if name else "")
    inside = sum(
        row[1] <= value <= row[3] for value, row in zip(actual, fan.quantiles, strict=True) if value is not None
    )
    dashed = f", the dashes the {drawn.baseline[0]} forecast" if drawn.baseline[0] else ""
    caption = (
        f"The last {len(rows)} steps of the test part. Grey is what the model knew, the line in colour its median, the "
        f"bands its 80 % and 95 % intervals{dashed}, the dots what came true: {inside} of {len(truth)} in the 80 % "
        "interval."
    )
    return Picture(heading, _drawn(drawn, target, f"{heading}. {caption}"), caption)


def _values(values: object) -> list[float | None] | None:
    """Return numbers and gaps, or None if there is anything else."""
    if not isinstance(values, list) or len(values) > MAX_STEPS:
        return None
    if not all(value is None or (is_number(value) and abs(value) < MAX_VALUE) for value in values):
        return None
    return [None if value is None else float(value) for value in values]


def _times(entry: Mapping[str, Any], fan: Fan) -> list[str]:
    """Return the times of all steps; empty if there are none, or not one for each step."""
    times = entry.get("times")
    if not isinstance(times, list) or len(times) != fan.steps.stop or not all(isinstance(time, str) for time in times):
        return []
    return [time[:WORD] for time in times]


def _baseline(entry: Mapping[str, Any], fan: Fan) -> tuple[str, list[Point]]:
    for key, name in BASELINES.items():
        values = [value for value in _values(entry.get(key)) or () if value is not None]
        if len(values) == len(fan.steps):
            return name, fan.known[-1:] + list(zip(fan.steps, values, strict=True))
    return "", []


def _drawn(drawn: Drawn, target: str, label: str) -> Markup:
    fan, values, (_, baseline) = drawn.fan, dict(drawn.truth), drawn.baseline
    frame = charts.Frame(0, fan.steps[-1], *fan.limits(0.06, [*values.values(), *dict(baseline).values()]))

    def line(points: Sequence[Point], kind: str, end: str = "") -> Markup:
        d = charts.path([(frame.x(step), frame.y(value)) for step, value in points]) + end
        return svg.element("path", d=d, class_=kind)

    ends = (drawn.when(0), drawn.when(fan.steps[-1])) if drawn.times else ()
    counted = not drawn.times or drawn.times[0].removeprefix("-").isdigit()
    parts = charts.axes(frame, "step" if counted else "time", target, ends)
    parts += [line(band, "band series-0", "Z") for band in fan.bands]
    if fan.known:
        parts += _origin(frame.x(fan.known[-1][0]), drawn.when(fan.known[-1][0]))
    if len(fan.known) > 1:
        parts.append(line(fan.known, "line known"))
    if baseline:
        parts.append(line(baseline, "line baseline"))
    parts.append(line(fan.median, "line series-0"))
    simple = dict(baseline)
    for step, (low_95, low_80, middle, high_80, high_95) in zip(fan.steps, fan.quantiles, strict=True):
        tip = f"{drawn.when(step)}\nforecast: {middle:.6g}\n80 %: {low_80:.6g} to {high_80:.6g}"
        tip += f"\n95 %: {low_95:.6g} to {high_95:.6g}"
        tip += f"\n{drawn.baseline[0]}: {simple[step]:.6g}" if step in simple else ""
        x, y = frame.x(step), frame.y(values.get(step, middle))
        mark = [svg.element("circle", cx=x, cy=y, r=9, class_="target")]
        if step in values:
            tip += f"\ncame true: {values[step]:.6g}"
            mark.append(svg.element("circle", cx=x, cy=y, r=2.6, class_="truth"))
        parts.append(svg.element("g", *mark, data_tip=tip, class_="mark"))
    return svg.picture(charts.WIDTH, charts.HEIGHT, *parts, label=label, kind="chart")


def _origin(x: float, when: str) -> list[Markup]:
    """Mark where the forecast begins."""
    top, bottom = charts.TOP, charts.HEIGHT - charts.BOTTOM
    line = svg.element("path", d=f"M{x:.1f} {top}V{bottom}", class_="axis origin")
    return [line, svg.element("text", when, x=x - 6, y=top + 10, text_anchor="end")]
