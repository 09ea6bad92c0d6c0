"""Heat maps of grids: each cell's or version's best metric and how many epochs it took, learning rate by budget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from markupsafe import Markup

from rru.report import svg, words
from rru.report.results import Point, Section

WIDTH, LEFT, TOP, BOTTOM = 300, 46, 6, 40
CUT = 0.9
"""Of ten values or more the worst tenth share a colour, or a few bad ones would leave one colour to all others."""


@dataclass(frozen=True)
class Panel:
    """A picture, whose it is and what it shows."""

    line: str
    what: str
    picture: Markup


@dataclass(frozen=True)
class Scale:
    """Which values are good and which are poor, for all panels of a kind."""

    good: float
    poor: float
    cut: bool

    def part(self, value: float) -> float:
        """From 0, good, to 1, poor."""
        return (value - self.good) / (self.poor - self.good) if self.poor != self.good else 0.0


def scale(values: Sequence[float], higher_is_better: bool) -> Scale:
    """From the best to the worst."""
    losses = [-value if higher_is_better else value for value in values]
    sign = -1 if higher_is_better else 1
    cut = len(losses) >= 10
    return Scale(sign * min(losses), sign * (svg.quantile(losses, CUT) if cut else max(losses)), cut)


def panels(section: Section) -> tuple[list[Panel], list[Markup]]:
    """For each line its best metric, then its epochs; and the keys to the colours of both."""
    higher = section.metric.higher_is_better
    tests = [point.test for point in section.points if point.test is not None]
    epochs = [point.best_epoch for point in section.points if point.best_epoch is not None]
    if not tests:
        return [], []
    of_tests, of_epochs = scale(tests, higher), scale(epochs or [0.0], False)
    drawn = []
    for line, points in section.lines.items():
        own = [point.test for point in points if point.test is not None]
        framed = (max if higher else min)(own) if own else None
        for what, value, colours in (
            (f"test {section.metric.label}", attrgetter("test"), of_tests),
            ("epochs to the best", attrgetter("best_epoch"), of_epochs),
        ):
            drawn.append(Panel(line, what, _map(section, points, value, colours, framed, f"{line}: {what}")))
    keys = [_key(of_tests, f"test {section.metric.label}", 2), _key(of_epochs, "epochs to the best", 0)]
    return drawn, keys


def _map(
    section: Section,
    points: Sequence[Point],
    value: Callable[[Point], float | None],
    colours: Scale,
    framed: float | None,
    said: str,
) -> Markup:
    """One panel; `framed` is the test of the run to frame."""
    across, along = points[0].at  # learning rate, budget
    columns = sorted({point.at[across] for point in points})
    rows = sorted({point.at[along] for point in points}, reverse=True)
    side = (WIDTH - LEFT) / len(columns)
    tall = min(side, 40.0) if len(rows) > 2 else 40.0
    turned = len(columns) > 5
    height = round(TOP + tall * len(rows) + BOTTOM + (18 if turned else 0))
    parts, frames = [], []
    for point in points:
        x, y = LEFT + side * columns.index(point.at[across]), TOP + tall * rows.index(point.at[along])
        mark = _square(point, value(point), colours, (x, y, side, tall))
        told = words.tip(words.facts(section, point))
        parts.append(svg.element("g", *mark, data_tip=told, class_="mark"))
        if framed is not None and point.test == framed:
            frames.append(_box((x, y, side, tall), 1.5, fill="none", class_="best"))
    for index, lr in enumerate(columns):
        x, y = LEFT + side * (index + 0.5) + (3 if turned else 0), TOP + tall * len(rows) + 14
        how = (
            {"text_anchor": "end", "transform": f"rotate(-40 {x:.1f} {y:.1f})"} if turned else {"text_anchor": "middle"}
        )
        parts.append(svg.element("text", words.setting(lr), x=x, y=y, **how))
    for index, budget in enumerate(rows):
        y = TOP + tall * (index + 0.5)
        parts.append(svg.element("text", words.setting(budget), x=LEFT - 5, y=y + 3.5, text_anchor="end"))
    parts.append(svg.element("text", "learning rate", x=(WIDTH + LEFT) / 2, y=height - 3, text_anchor="middle"))
    spoken = f"{said}. Learning rate across, budget of parameters upwards. The numbers are in the table below."
    return svg.picture(WIDTH, height, *parts, *frames, label=spoken, kind="map")


Box = tuple[float, float, float, float]


def _box(box: Box, gap: float, **attributes: object) -> Markup:
    x, y, width, height = box
    place = {"x": x + gap, "y": y + gap, "width": width - 2 * gap, "height": height - 2 * gap}
    return svg.element("rect", **place, **attributes)


def _square(point: Point, value: float | None, colours: Scale, box: Box) -> list[Markup]:
    """A square with its number, if there is room; red if a run of it failed, hollow if there is nothing."""
    if point.diverged:
        fill, text = svg.FAILED, svg.CROSS
    elif value is None:
        return [_box(box, 2.5, class_="missing"), _label(box, words.NONE if not point.runs else "…", None)]
    else:
        fill = svg.colour(colours.part(value))
        digits = 0 if value >= 1000 or value == int(value) else 1 if value >= 100 else 2
        text = f"{value:.{digits}f}" if box[2] >= 36 else ""
    return [_box(box, 0.75, fill=fill), *([_label(box, text, svg.ink(fill))] if text else [])]


def _label(box: Box, text: str, fill: str | None) -> Markup:
    x, y, width, height = box
    return svg.element(
        "text", text, x=x + width / 2, y=y + height / 2 + 4, text_anchor="middle", fill=fill, class_="value"
    )


def _key(colours: Scale, what: str, digits: int) -> Markup:
    """The colours from good to poor, with the values at their ends."""
    steps = [
        svg.element("rect", x=index * 6, y=0, width=6.5, height=12, fill=svg.colour(index / 19)) for index in range(20)
    ]
    bar = svg.element("svg", *steps, viewBox="0 0 120 12", class_="key", aria_hidden="true")
    good, poor = words.score(colours.good, digits), words.score(colours.poor, digits)
    if good == poor:
        return Markup("{}: all {}").format(what, good)
    return Markup("{} {} {} <span>{}</span>").format(what, good, bar, poor + " or worse" * colours.cut)
