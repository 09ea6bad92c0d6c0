"""Heat maps of grids, learning rate by budget: the best score of each cell or version, and its epoch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from markupsafe import Markup

from rru.report import descriptions, formatting, svg
from rru.report.results import Point, Section

WIDTH, LEFT, TOP, BOTTOM = 300, 46, 6, 40
CUT = 0.9
"""With ten values or more, the worst tenth share a colour. Otherwise a few outliers would take up the whole scale."""


@dataclass(frozen=True)
class Panel:
    """A picture, its cell or version, and what it shows."""

    line: str
    what: str
    picture: Markup


@dataclass(frozen=True)
class Scale:
    """The good and poor ends of the colour scale, shared by all panels of a kind."""

    good: float
    poor: float
    cut: bool

    def part(self, value: float) -> float:
        """Map a value to 0 (good) to 1 (poor)."""
        return (value - self.good) / (self.poor - self.good) if self.poor != self.good else 0.0


def scale(values: Sequence[float], higher_is_better: bool) -> Scale:
    """Return the scale from the best value to the worst."""
    losses = [-value if higher_is_better else value for value in values]
    sign = -1 if higher_is_better else 1
    cut = len(losses) >= 10
    return Scale(sign * min(losses), sign * (svg.quantile(losses, CUT) if cut else max(losses)), cut)


def panels(section: Section) -> tuple[list[Panel], list[Markup]]:
    """Draw the maps of each line with runs (best score and best epoch), and their colour keys."""
    tests = [point.test for point in section.points if point.test is not None]
    epochs = [point.best_epoch for point in section.points if point.best_epoch is not None]
    if not tests:
        return [], []
    of_tests, of_epochs = scale(tests, section.metric.higher_is_better), scale(epochs or [0.0], False)
    drawn = []
    for line, points in section.begun.items():
        name = section.shown(line)
        for what, value, colours in (
            (f"test {section.metric.label}", attrgetter("test"), of_tests),
            ("best epoch", attrgetter("best_epoch"), of_epochs),
        ):
            drawn.append(Panel(name, what, _map(section, points, value, colours, f"{name}: {what}")))
    keys = [_key(of_tests, f"test {section.metric.label}", 2), _key(of_epochs, "best epoch", 0)]
    return drawn, keys


Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Grid:
    """The layout of a map: one column per learning rate, one row per budget."""

    columns: Sequence[float]
    rows: Sequence[float]

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of a square."""
        wide = (WIDTH - LEFT) / len(self.columns)
        return wide, min(wide, 40.0)

    @property
    def bottom(self) -> float:
        """The lower edge of the squares."""
        return TOP + self.size[1] * len(self.rows)

    @property
    def turned(self) -> bool:
        """Whether there are too many columns for horizontal names."""
        return len(self.columns) > 5

    def box(self, at: Sequence[float]) -> Box:
        """Return the position and size of a square."""
        (wide, high), (lr, budget) = self.size, at
        return LEFT + wide * self.columns.index(lr), TOP + high * self.rows.index(budget), wide, high

    def names(self) -> Iterator[Markup]:
        """Draw the names of columns and rows."""
        wide, high = self.size
        for index, lr in enumerate(self.columns):
            x, y = LEFT + wide * (index + 0.5) + (3 if self.turned else 0), self.bottom + 14
            turn = f"rotate(-40 {x:.1f} {y:.1f})" if self.turned else None
            anchor = "end" if self.turned else "middle"
            yield svg.element("text", formatting.setting(lr), x=x, y=y, text_anchor=anchor, transform=turn)
        for index, budget in enumerate(self.rows):
            y = TOP + high * (index + 0.5) + 3.5
            yield svg.element("text", formatting.setting(budget), x=LEFT - 5, y=y, text_anchor="end")


def _map(
    section: Section, points: Sequence[Point], value: Callable[[Point], float | None], colours: Scale, title: str
) -> Markup:
    """Draw one map, with a frame around the best test score."""
    places = [tuple(point.at.values()) for point in points]  # learning rate, budget
    grid = Grid(sorted({lr for lr, _ in places}), sorted({budget for _, budget in places}, reverse=True))
    height = round(grid.bottom + BOTTOM + (18 if grid.turned else 0))
    best = section.metric.best(point.test for point in points if point.test is not None)
    parts, frames = [], []
    for point, place in zip(points, places, strict=True):
        square = _square(point, value(point), colours, grid.box(place))
        parts.append(
            svg.element("g", *square, data_tip=descriptions.tip(descriptions.facts(section, point)), class_="mark")
        )
        if best is not None and point.test == best:
            frames.append(_box(grid.box(place), 1.5, fill="none", class_="best"))
    below = svg.element("text", "learning rate", x=(WIDTH + LEFT) / 2, y=height - 3, text_anchor="middle")
    spoken = f"{title}. Learning rate across, budget of parameters upwards. The numbers are in the table below."
    return svg.picture(WIDTH, height, *parts, *frames, *grid.names(), below, label=spoken, kind="map")


def _box(box: Box, gap: float, **attributes: object) -> Markup:
    x, y, width, height = box
    place = {"x": x + gap, "y": y + gap, "width": width - 2 * gap, "height": height - 2 * gap}
    return svg.element("rect", **place, **attributes)


def _square(point: Point, value: float | None, colours: Scale, box: Box) -> list[Markup]:
    """Draw a square with its number if there is room; red if a run diverged, hollow if there is no result."""
    if point.diverged:
        fill, text = svg.FAILED, svg.CROSS
    elif value is None:
        return [_box(box, 2.5, class_="missing"), _label(box, formatting.NONE if not point.runs else "…", None)]
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
    """Draw the colours from good to poor, with the values at both ends."""
    steps = [
        svg.element("rect", x=index * 6, y=0, width=6.5, height=12, fill=svg.colour(index / 19)) for index in range(20)
    ]
    bar = svg.element("svg", *steps, viewBox="0 0 120 12", class_="key", aria_hidden="true")
    good, poor = formatting.score(colours.good, digits), formatting.score(colours.poor, digits)
    if good == poor:
        return Markup("{}: all {}").format(what, good)
    return Markup("{} {} {} <span>{}</span>").format(what, good, bar, poor + " or worse" * colours.cut)
