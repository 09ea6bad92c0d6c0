"""Heat maps of grids: each cell's or version's best metric and how many epochs it took, learning rate by budget."""

from collections.abc import Callable, Iterator, Sequence
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
    """For each line with runs its best metric, then its epochs; and the keys to the colours of both."""
    tests = [point.test for point in section.points if point.test is not None]
    epochs = [point.best_epoch for point in section.points if point.best_epoch is not None]
    if not tests:
        return [], []
    of_tests, of_epochs = scale(tests, section.metric.higher_is_better), scale(epochs or [0.0], False)
    drawn = []
    for line, points in section.begun.items():
        for what, value, colours in (
            (f"test {section.metric.label}", attrgetter("test"), of_tests),
            ("epochs to the best", attrgetter("best_epoch"), of_epochs),
        ):
            drawn.append(Panel(line, what, _map(section, points, value, colours, f"{line}: {what}")))
    keys = [_key(of_tests, f"test {section.metric.label}", 2), _key(of_epochs, "epochs to the best", 0)]
    return drawn, keys


Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Grid:
    """The squares of a map: a column for each learning rate, a row for each budget."""

    columns: Sequence[float]
    rows: Sequence[float]

    @property
    def size(self) -> tuple[float, float]:
        """Of a square."""
        wide = (WIDTH - LEFT) / len(self.columns)
        return wide, min(wide, 40.0)

    @property
    def bottom(self) -> float:
        """How far down the squares go."""
        return TOP + self.size[1] * len(self.rows)

    @property
    def turned(self) -> bool:
        """Whether there are too many columns for names that lie flat."""
        return len(self.columns) > 5

    def box(self, at: Sequence[float]) -> Box:
        """The place of a square."""
        (wide, high), (lr, budget) = self.size, at
        return LEFT + wide * self.columns.index(lr), TOP + high * self.rows.index(budget), wide, high

    def names(self) -> Iterator[Markup]:
        """The names of columns and rows."""
        wide, high = self.size
        for index, lr in enumerate(self.columns):
            x, y = LEFT + wide * (index + 0.5) + (3 if self.turned else 0), self.bottom + 14
            turn = f"rotate(-40 {x:.1f} {y:.1f})" if self.turned else None
            anchor = "end" if self.turned else "middle"
            yield svg.element("text", words.setting(lr), x=x, y=y, text_anchor=anchor, transform=turn)
        for index, budget in enumerate(self.rows):
            y = TOP + high * (index + 0.5) + 3.5
            yield svg.element("text", words.setting(budget), x=LEFT - 5, y=y, text_anchor="end")


def _map(
    section: Section, points: Sequence[Point], value: Callable[[Point], float | None], colours: Scale, said: str
) -> Markup:
    """One panel, with a frame around the run whose test is best."""
    places = [tuple(point.at.values()) for point in points]  # learning rate, budget
    grid = Grid(sorted({lr for lr, _ in places}), sorted({budget for _, budget in places}, reverse=True))
    height = round(grid.bottom + BOTTOM + (18 if grid.turned else 0))
    tests = [point.test for point in points if point.test is not None]
    best = (max if section.metric.higher_is_better else min)(tests, default=None)
    parts, frames = [], []
    for point, place in zip(points, places, strict=True):
        square = _square(point, value(point), colours, grid.box(place))
        parts.append(svg.element("g", *square, data_tip=words.tip(words.facts(section, point)), class_="mark"))
        if best is not None and point.test == best:
            frames.append(_box(grid.box(place), 1.5, fill="none", class_="best"))
    below = svg.element("text", "learning rate", x=(WIDTH + LEFT) / 2, y=height - 3, text_anchor="middle")
    spoken = f"{said}. Learning rate across, budget of parameters upwards. The numbers are in the table below."
    return svg.picture(WIDTH, height, *parts, *frames, *grid.names(), below, label=spoken, kind="map")


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
