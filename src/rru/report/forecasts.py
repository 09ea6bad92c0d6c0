"""Forecasts of a run's test part: fans, errors by step of the horizon, and how series differ."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from rru.report import charts, svg
from rru.report.fans import MAX_STEPS, MAX_VALUE, Picture, fans
from rru.report.gather import WORD
from rru.training.run_files import count, is_number

METHODS = {"mase": "model", "mase_seasonal": "seasonal naive", "mase_last": "last value"}
"""The lines of the errors by step, by their name in the details."""
MAX_EXTREMES = 5
ROW, NAMES, BAR = 30, 190, 14  # pixels: of a series, of its name, and of a bar
LETTERS = 20  # of a name
MAX_SERIES = 10**9


def forecasts(details: Mapping[str, Any]) -> list[Picture]:
    """Return the pictures of a run's forecasts, a fan first and errors by step next. Leave out what is malformed."""
    drawn = fans(details)
    others = [each for each in (by_step(details), extremes(details), coverage(details)) if each is not None]
    return [*drawn[:1], *others, *drawn[1:]]


def by_step(details: Mapping[str, Any]) -> Picture | None:
    """Return the MASE of the model and of the simple forecasts at each step of the horizon; None for a single step."""
    given = details.get("steps")
    lines = {name: _numbers(given.get(key)) for key, name in METHODS.items()} if isinstance(given, Mapping) else {}
    lines = {name: values for name, values in lines.items() if values}
    steps = len(lines.get("model", ()))
    if steps < 2 or any(len(values) != steps for values in lines.values()):
        return None
    frame = charts.Frame(1, steps, 0.0, 1.2 * max(map(max, lines.values())) or 1.0)
    parts = charts.axes(frame, "step ahead", "MASE")
    every = -(-steps // charts.PLACES)
    for index, values in enumerate(lines.values()):
        points = [(frame.x(step), frame.y(value)) for step, value in enumerate(values, 1)]
        parts.append(svg.element("path", d=charts.path(points), class_=f"line {charts.series_class(index)}"))
    for step in range(0, steps, every):
        tip = "\n".join([f"step {step + 1}", *(f"{name}: {values[step]:.3f}" for name, values in lines.items())])
        marks = [
            charts.shape_at(index, frame.x(step + 1), frame.y(values[step]), f"{charts.series_class(index)} quiet")
            for index, values in enumerate(lines.values())
        ]
        target = svg.element("circle", cx=frame.x(step + 1), cy=frame.y(lines["model"][step]), r=9, class_="target")
        parts.append(svg.element("g", target, *marks, data_tip=tip, class_="mark"))
    parts += _names(lines)
    first, last = lines["model"][0], lines["model"][-1]
    caption = (
        "MASE of forecasts one step ahead, two steps, and so on, over the whole test part; lower is better. The model "
        f"has {first:.2f} at the first step and {last:.2f} at the last of {steps}. Where a simple forecast (seasonal "
        "naive, last value) has the lower line, it is the better one."
    )
    heading = "Errors by step of the horizon"
    drawn = svg.picture(charts.WIDTH, charts.HEIGHT, *parts, label=f"{heading}. {caption}", kind="chart")
    return Picture(heading, drawn, caption)


def _names(lines: Mapping[str, Sequence[float]]) -> list[Markup]:
    """Name each line at the top, beside its mark."""
    parts, x = [], float(charts.LEFT + 12)
    for index, name in enumerate(lines):
        parts.append(charts.shape_at(index, x, charts.TOP + 2, charts.series_class(index)))
        parts.append(svg.element("text", name, x=x + 10, y=charts.TOP + 6))
        x += 40 + 9.5 * len(name)
    return parts


def extremes(details: Mapping[str, Any]) -> Picture | None:
    """Return the series with the lowest and the highest MASE, as bars; None if there are not several."""
    best, worst = (_series(details.get(key)) for key in ("best", "worst"))
    if not best or not worst:
        return None
    rows = [*best, *worst[::-1]]
    longest = max(value for _, value, _ in rows) or 1.0
    width, height = charts.WIDTH, ROW * len(rows) + 8
    parts = []
    for number, (name, value, tip) in enumerate(rows):
        top, length = ROW * number + 4, (width - NAMES - 60) * value / longest
        short = name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
        kind = f"dot {charts.series_class(0 if number < len(best) else 1)}"
        bar = svg.element("rect", x=NAMES, y=top, width=max(length, 1.0), height=BAR, class_=kind)
        text = svg.element("text", short, x=NAMES - 10, y=top + 12, text_anchor="end")
        end = svg.element("text", f"{value:.2f}", x=NAMES + length + 8, y=top + 12)
        parts.append(svg.element("g", text, bar, end, data_tip=tip, class_="mark"))
    caption = (
        f"MASE of the {len(best)} series with the lowest, above, and of the {len(worst)} with the highest. Below 1 is "
        "better than repeating the season before in the training part. A series with a high one may have changed: "
        "look at its forecast."
    )
    heading = "Best and worst series"
    drawn = svg.picture(width, height, *parts, label=f"{heading}. {caption}", kind="chart")
    return Picture(heading, drawn, caption)


def coverage(details: Mapping[str, Any]) -> Picture | None:
    """Return how many series have which share of their values in the 80 % interval; None if there are not several."""
    given = details.get("coverage")
    if not isinstance(given, Mapping) or not isinstance(bins := given.get("histogram"), list) or len(bins) != 10:
        return None
    total, low, high = (count(given.get(key)) for key in ("series", "low", "high"))
    if total is None or low is None or high is None or any(count(each) is None for each in bins):
        return None
    if not 1 < total <= MAX_SERIES or max(low, high) > total or sum(bins) != total:
        return None
    frame = charts.Frame(0, 100, 0.0, 1.06 * max(bins))
    parts = charts.axes(frame, "values in the 80 % interval, %", "series")
    bottom = frame.y(0)
    for number, each in enumerate(bins):
        left, right, top = frame.x(10 * number) + 1, frame.x(10 * number + 10) - 1, frame.y(each)
        tip = f"{10 * number} to {10 * number + 10} % of the values inside\n{each:,} of {total:,} series"
        box = svg.element("rect", x=left, y=top, width=right - left, height=bottom - top, class_="dot series-0")
        parts.append(svg.element("g", box, data_tip=tip, class_="mark"))
    x = frame.x(80)
    parts.append(svg.element("path", d=f"M{x:.1f} {charts.TOP}V{bottom:.1f}", class_="axis origin"))
    caption = (
        f"How many of the {total:,} series have which share of their values in the 80 % interval; the line is at 80 %. "
        f"{100 * low / total:.0f} % of the series have less than 50 % inside: their intervals are too narrow. "
        f"{100 * high / total:.0f} % have more than 95 %: too wide."
    )
    heading = "Coverage by series"
    drawn = svg.picture(charts.WIDTH, charts.HEIGHT, *parts, label=f"{heading}. {caption}", kind="chart")
    return Picture(heading, drawn, caption)


def _series(entries: object) -> list[tuple[str, float, str]]:
    """Return the name, MASE and tooltip of each series; empty if one is malformed."""
    found = []
    for entry in entries[:MAX_EXTREMES] if isinstance(entries, list) else ():
        value = _number(entry.get("mase")) if isinstance(entry, Mapping) else None
        if value is None:
            return []
        name, tip = str(entry.get("name", ""))[:WORD], [f"MASE: {value:.3f}"]
        for key, what in METHODS.items():
            if key != "mase" and (other := _number(entry.get(key))) is not None:
                tip.append(f"{what}: {other:.3f}")
        if (inside := _number(entry.get("coverage_80"))) is not None:
            tip.append(f"in the 80 % interval: {inside:.0f} %")
        found.append((name, value, "\n".join([name, *tip])))
    return found


def _number(value: object) -> float | None:
    """Return a score; None if it is none."""
    return float(value) if is_number(value) and 0 <= value < MAX_VALUE else None


def _numbers(values: object) -> list[float]:
    """Return scores; empty if there are none, or one is none."""
    if not isinstance(values, list) or not 0 < len(values) <= MAX_STEPS:
        return []
    found = [number for value in values if (number := _number(value)) is not None]
    return found if len(found) == len(values) else []
