"""Line charts: a metric against dropout, and validation epoch by epoch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from rru.report import descriptions, formatting, svg
from rru.report.gather import RunRecord
from rru.report.results import Section

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 540, 330, 80, 14, 14, 52
MARGIN = 6  # how far outside its frame a line may be drawn
ROOM = 0.85
"""The share of values that sets the vertical range; including the first epochs would flatten the rest."""
MARKS, PLACES = 240, 200
"""The maximum number of marks on all learning curves of a chart, and of points on one of them."""
FULL = 100.5  # just above all, in per cent
COLOURS = 6
"""How many lines have a colour of their own; further ones are dashed."""


@dataclass
class Curve:
    """A line to draw: `index` chooses colour and shape; each point is x, y, its tooltip, and its deviation if any."""

    index: int
    points: list[tuple[float, float, str, float | None]] = field(default_factory=list)
    failed: list[tuple[float, str]] = field(default_factory=list)
    best: int | None = None


def curve(section: Section) -> Markup | None:
    """Draw the test score against the plan's only axis, one line per cell."""
    (axis,) = section.points[0].at
    lines = []
    for index, points in enumerate(section.lines.values()):
        line = Curve(index)
        for point in points:
            tip = descriptions.tip(descriptions.facts(section, point))
            if point.diverged:
                line.failed.append((point.at[axis], tip))
            if point.test is not None:
                line.points.append((point.at[axis], point.test, tip, point.deviation))
        lines.append(line)
    across = descriptions.AXES.get(axis, axis)
    label = f"{section.heading}: test {section.metric.label} against {across}, {_named(section)}."
    return _chart(lines, section, across, f"test {section.metric.label}", label, cut=False)


def convergence(section: Section) -> Markup | None:
    """Draw the validation score after each epoch, one line per run; runs of a cell have the same colour."""
    runs = [
        (index, name, run)
        for index, (name, points) in enumerate(section.lines.items())
        for point in points
        for run in point.runs
        if run.curve
    ]
    lines = [
        _learning(index, section.shown(name), run, section.metric.label, MARKS // len(runs))
        for index, name, run in runs
    ]
    label = f"{section.heading}: validation {section.metric.label} after each epoch, {_named(section)}."
    return _chart(lines, section, "epoch", f"validation {section.metric.label}", label, cut=True)


def _learning(index: int, name: str, run: RunRecord, metric: str, marks: int) -> Curve:
    """Return the learning curve of a run, with some of its epochs and about `marks` marks."""
    line = Curve(index)
    skip, every = math.ceil(len(run.curve) / PLACES), math.ceil(len(run.curve) / max(marks, 1))
    for place, (epoch, value) in enumerate(run.curve):
        best = epoch == run.best_epoch
        if not best and place % skip and place % every and place != len(run.curve) - 1:
            continue
        facts = {
            "line": name,
            "seed": str(run.seed),
            "epoch": str(epoch),
            f"validation {metric}": formatting.score(value, 4),
            "best epoch": str(run.best_epoch or formatting.NONE),
            "status": run.status,
        }
        if best:
            line.best = len(line.points)
        marked = best or (marks and place % every == 0)
        line.points.append((epoch, value, descriptions.tip(facts) if marked else "", None))
    return line


def _named(section: Section) -> str:
    return f"a line each for {', '.join(map(section.shown, section.begun))}; the numbers are in the table below"


@dataclass(frozen=True)
class Frame:
    """Map values to coordinates. Values far outside are moved to just outside the frame, and clipped."""

    left: float
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        """Return the horizontal coordinate of a value."""
        part = (value - self.left) / (self.right - self.left) if self.right > self.left else 0.5
        return LEFT + (WIDTH - LEFT - RIGHT) * part

    def y(self, value: float) -> float:
        """Return the vertical coordinate of a value."""
        part = (self.high - value) / (self.high - self.low)
        return TOP + (HEIGHT - TOP - BOTTOM) * min(max(part, -1.0), 2.0)


def _chart(
    lines: Sequence[Curve], section: Section, across: str, upwards: str, label: str, *, cut: bool
) -> Markup | None:
    xs = [x for line in lines for x, *_ in line.points] + [x for line in lines for x, _ in line.failed]
    ys = [y for line in lines for _, y, *_ in line.points]
    if not ys:
        return None
    low, high = _bounds(ys, section.metric.higher_is_better, cut=cut)
    high = min(high, FULL) if section.metric.label.endswith("%") else high
    frame = Frame(min(xs), max(xs), low, high)
    edge = f"M{LEFT - MARGIN} {TOP - MARGIN}H{WIDTH}V{HEIGHT - BOTTOM + MARGIN}H{LEFT - MARGIN}Z"
    name = f"frame-{section.plan.preset}-{section.plan.name}-{section.task}".replace(" ", "-")
    clip = svg.element("clipPath", svg.element("path", d=edge), id=name)
    inside = svg.element("g", *(part for line in lines for part in _drawn(line, frame)), clip_path=f"url(#{name})")
    crosses = []
    for x, tip in (failed for line in lines for failed in line.failed):
        cross = svg.element("text", svg.CROSS, x=frame.x(x), y=TOP + 12, text_anchor="middle", class_="failed")
        crosses.append(svg.element("g", cross, data_tip=tip, class_="mark"))
    return svg.picture(WIDTH, HEIGHT, *axes(frame, across, upwards), clip, inside, *crosses, label=label, kind="chart")


def _bounds(ys: Sequence[float], higher_is_better: bool, *, cut: bool) -> tuple[float, float]:
    """Return the range of a chart: all values, or most of them if `cut`, with a small margin."""
    low, high = min(ys), max(ys)
    if cut and len(ys) >= 10:
        if higher_is_better:
            low = min(svg.quantile(ys, 1 - ROOM), high - 0.3 * (high - low))
        else:
            high = svg.quantile(ys, ROOM)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def axes(frame: Frame, across: str, upwards: str, ends: Sequence[str] = ()) -> list[Markup]:
    """Draw both axes with their ticks and names; `ends` are texts for the ends of the horizontal one, without ticks."""
    parts, bottom = [], HEIGHT - BOTTOM
    for y in svg.ticks(frame.low, frame.high):
        parts.append(svg.element("path", d=f"M{LEFT} {frame.y(y):.1f}H{WIDTH - RIGHT}", class_="grid"))
        parts.append(svg.element("text", f"{y:g}", x=LEFT - 8, y=frame.y(y) + 4, text_anchor="end"))
    for text, place, anchor in zip(ends, (LEFT, WIDTH - RIGHT), ("start", "end"), strict=False):
        parts.append(svg.element("text", text, x=place, y=bottom + 20, text_anchor=anchor))
    for x in [] if ends else svg.ticks(frame.left, frame.right, count=8):
        if across != "epoch" or x == int(x):
            parts.append(svg.element("text", f"{x:g}", x=frame.x(x), y=bottom + 20, text_anchor="middle"))
    parts.append(svg.element("path", d=f"M{LEFT} {bottom}H{WIDTH - RIGHT}", class_="axis"))
    parts.append(svg.element("text", across, x=(LEFT + WIDTH) / 2, y=HEIGHT - 10, text_anchor="middle"))
    middle = (TOP + bottom) / 2
    turn = f"rotate(-90 16 {middle})"
    parts.append(svg.element("text", upwards, x=16, y=middle, text_anchor="middle", transform=turn))
    return parts


def _drawn(line: Curve, frame: Frame) -> list[Markup]:
    """Draw a line, its deviation band and its marks. If one mark is the best, the others show only on hover."""
    series = series_class(line.index)
    places = [(frame.x(x), frame.y(y)) for x, y, *_ in line.points]
    parts = []
    if any(spread for *_, spread in line.points):
        upper = [(frame.x(x), frame.y(y + (spread or 0))) for x, y, _, spread in line.points]
        lower = [(frame.x(x), frame.y(y - (spread or 0))) for x, y, _, spread in line.points]
        parts.append(svg.element("path", d=path([*upper, *reversed(lower)]) + "Z", class_=f"band {series}"))
    if places:
        parts.append(svg.element("path", d=path(places), class_=f"line {series}"))
    for index, ((x, y), (_, _, tip, _)) in enumerate(zip(places, line.points, strict=True)):
        if tip and TOP - MARGIN <= y <= HEIGHT - BOTTOM + MARGIN:
            quiet = "" if line.best in (None, index) else " quiet"
            target = svg.element("circle", cx=x, cy=y, r=9, class_="target")
            shape = shape_at(line.index, x, y, series + quiet)
            parts.append(svg.element("g", target, shape, data_tip=tip, class_="mark"))
    return parts


def path(places: Sequence[tuple[float, float]]) -> str:
    """Return the data of an SVG path through some places."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def shape_at(index: int, x: float, y: float, classes: str) -> Markup:
    """Draw the mark of a line. Shapes differ too, for readers who cannot tell the colours apart."""
    shapes = (
        "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
        "m-4.5-4.5h9v9h-9z",
        "m0-6l5.5 10h-11z",
        "m0-6l6 6-6 6-6-6z",
        "m0 6l5.5-10h-11z",
        "m-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
    )
    return svg.element("path", d=f"M{x:.1f} {y:.1f}{shapes[index % len(shapes)]}", class_=f"dot {classes}")


def series_class(index: int) -> str:
    """Return the classes of a line, which give its colour."""
    return f"series-{index % COLOURS}{' again' * (index >= COLOURS)}"


def swatches(section: Section) -> dict[str, Markup]:
    """Return the mark of each line that has runs, by its name."""
    marks = {}
    for index, line in enumerate(section.lines):
        if line in section.begun:
            dash = svg.element("path", d="M0 8H28", class_=f"line {series_class(index)}")
            shape = shape_at(index, 14, 8, series_class(index))
            marks[line] = svg.element("svg", dash, shape, viewBox="0 0 28 16", class_="swatch", aria_hidden="true")
    return marks


def legend(section: Section) -> list[Markup]:
    """Return the mark and name of each line that has runs."""
    return [Markup("{} {}").format(mark, section.shown(line)) for line, mark in swatches(section).items()]
