"""Describe runs on users' own data: how the data was read, its classes, and pictures of the test results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rru.data import SPLITS, Facts
from rru.data.own.data_json import LabelFacts
from rru.kinds import kind_of
from rru.report import descriptions, formatting, svg
from rru.report.data_variants import DataVariant, data_variant, titles
from rru.report.fans import Picture, fans
from rru.report.gather import SENTENCE, WORD, RunRecord
from rru.report.identify import line_of, origin
from rru.training.run_files import count

MAX_CLASSES = 40
MAX_NOTES = 12
LEFT, TOP, MAX_WIDTH, MIN_SIDE, MAX_SIDE = 110, 24, 360, 30, 64  # pixels: of all fields together, and of one
LETTER = 8  # pixels


@dataclass(frozen=True)
class OwnRun:
    """A run on own data: its cell and settings (`line`), its `scores` on the test split, and its pictures."""

    line: str
    scores: str
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class OwnPart:
    """The part of the page about one file or folder of the user.

    **Arguments:**

    - `title`: the name of the file or folder.
    - `summary`, `notes`: what was understood.
    - `balance`: rows of a table of classes: name, and the number of items to train, validate and test on.
    - `runs`: of each cell the best run on validation, if it has something to show.
    """

    title: str
    summary: str
    notes: Sequence[str]
    balance: Sequence[tuple[str, ...]]
    runs: Sequence[OwnRun]


def own_parts(runs: Sequence[RunRecord]) -> list[OwnPart]:
    """Return the parts of all own data, in the order of their runs."""
    by_data: dict[DataVariant, list[RunRecord]] = {}
    for run in runs:
        if (variant := data_variant(run)) is not None:
            by_data.setdefault(variant, []).append(run)
    return [_part(title, by_data[variant]) for variant, title in titles(runs).items()]


def _part(title: str, runs: Sequence[RunRecord]) -> OwnPart:
    first = runs[0]
    best: dict[str, RunRecord] = {}
    for run in runs:
        if run.counts and (run.cell not in best or _better(run, best[run.cell])):
            best[run.cell] = run
    shown = [_run(run) for run in best.values()]
    return OwnPart(
        title,
        first.facts.summary[:SENTENCE],
        [*(note[:SENTENCE] for note in first.facts.notes[:MAX_NOTES]), *_advice(runs)],
        _balance(first.facts),
        [run for run in shown if run.pictures],
    )


def _advice(runs: Sequence[RunRecord]) -> list[str]:
    """Return how to get a piano roll onto the page, if these are runs on music and none of them has one."""
    tested = [run for run in runs if run.counts and _figure(run) == PIANO_ROLL]
    if not tested or any(run.music for run in runs):
        return []
    place = tested[0].folder
    return [f"to see and hear a piece here: rru compose {place} -o {place / 'music' / 'piece.mid'}"[:SENTENCE]]


def _better(run: RunRecord, other: RunRecord) -> bool:
    if run.metric is None or run.validation is None or other.validation is None:
        return other.validation is None
    return run.metric.better(run.validation, other.validation)


def _run(run: RunRecord) -> OwnRun:
    came_from = origin(run)
    line = ", ".join(part for part in (line_of(run), f"preset {came_from.preset}", came_from.text) if part)
    label, _, unit = (run.metric.label if run.metric else "").partition(", ")
    score = " ".join(part for part in (label, formatting.score(run.test, 3), unit) if part)
    scores = " ".join([f"Test {score}, seed {run.seed}.", *descriptions.other_scores(run)])
    return OwnRun(line, scores, FIGURES[_figure(run)](run.details))


def _figure(run: RunRecord) -> str:
    """Return the name of the figure that shows the details of a run; see `rru.kinds.Kind`."""
    return kind_of(run.known.kind).figure if run.known is not None else ""


def _balance(facts: Facts) -> list[tuple[str, ...]]:
    if not isinstance(facts, LabelFacts):
        return []
    classes = [name[:WORD] for name in facts.classes]
    columns = [facts.balance.get(split) for split in SPLITS]
    if not all(isinstance(column, list) and len(column) == len(classes) for column in columns):
        return []
    cells = [[f"{number:,}" if count(number) is not None else "?" for number in column or []] for column in columns]
    return [(name, *numbers) for name, *numbers in zip(classes, *cells, strict=True)][:MAX_CLASSES]


def confusion(details: Mapping[str, Any]) -> list[Picture]:
    """Return the confusion matrix in a run's details; empty if there is none, or if it is not one."""
    names, rows = details.get("classes"), details.get("confusion")
    if not isinstance(names, list) or not isinstance(rows, list) or not 0 < len(names) == len(rows) <= MAX_CLASSES:
        return []
    classes, size = [str(name)[:WORD] for name in names], len(names)
    for row in rows:
        if not isinstance(row, list) or len(row) != size or any(count(value) is None for value in row):
            return []
    side = max(MIN_SIDE, min(MAX_SIDE, MAX_WIDTH // size))
    parts = [_axis(classes, side)]
    for truth, row in enumerate(rows):
        for guess, value in enumerate(row):
            share = value / (sum(row) or 1)
            tip = f"{classes[truth]} taken for {classes[guess]}\n{value:,} of {sum(row):,}: {share:.1%}"
            parts.append(_field(LEFT + side * guess, TOP + side * truth, side, value, share, tip))
    label = f"Confusion matrix of {size} classes; rows are the true classes, columns what the model said."
    drawn = svg.picture(LEFT + side * size + 4, TOP + side * size + 4, *parts, label=label, kind="confusion")
    right = sum(row[number] for number, row in enumerate(rows))
    total = sum(map(sum, rows))
    caption = (
        f"The {right:,} of {total:,} on the diagonal are right. Rows are the true classes, columns the predicted ones. "
        "Darker fields have a larger share of their row."
    )
    return [Picture("Confusion matrix", drawn, caption)]


def _axis(classes: Sequence[str], side: int) -> Markup:
    names = []
    for number, name in enumerate(classes):
        middle = side * number + side // 2
        names.append(svg.element("text", _short(name, 14), x=LEFT - 6, y=TOP + middle + 4, text_anchor="end"))
        names.append(
            svg.element("text", _short(name, side // LETTER), x=LEFT + middle, y=TOP - 7, text_anchor="middle")
        )
    return svg.element("g", *names)


def _field(x: int, y: int, side: int, value: int, share: float, tip: str) -> Markup:
    fill = svg.colour(1 - share) if value else "none"
    box = svg.element("rect", x=x, y=y, width=side - 1, height=side - 1, fill=fill, class_="cell", data_tip=tip)
    if not value:
        return box
    place = {"x": x + side // 2, "y": y + side // 2 + 4, "text_anchor": "middle"}
    text = str(value) if value < 10_000 else f"{value // 1000}k"
    return svg.element("g", box, svg.element("text", text, **place, fill=svg.ink(fill), class_="value"))


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


PIANO_ROLL = "piano roll"
FIGURES: dict[str, Callable[[Mapping[str, Any]], list[Picture]]] = {
    "": lambda details: [],
    PIANO_ROLL: lambda details: [],  # the page shows composed pieces in a section of their own
    "confusion matrix": confusion,
    "forecasts": fans,
}
"""What draws the figures of a run's details, by the name that its kind of data gives."""
