"""What the page shows of runs on users' own data: what was understood of it, classes, and a confusion matrix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rru.data import SPLITS
from rru.report import formatting, svg
from rru.report.fans import Picture, fans
from rru.report.gather import SENTENCE, WORD, FoundRun
from rru.report.identify import line_of, origin
from rru.training.records import count

MOST_RUNS = 24
MOST_CLASSES = 40
MOST_NOTES = 12
CELL, LEFT, TOP = 30, 110, 24  # pixels


@dataclass(frozen=True)
class OwnRun:
    """A run on own data: `line`, `preset`, `scores` on the test split, and its pictures."""

    line: str
    scores: str
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class OwnPart:
    """What the page shows of one of the user's own data.

    **Arguments:**

    - `title`: the name of the file or folder.
    - `summary`, `notes`: what was understood.
    - `balance`: rows of a table of classes: name, and the number of items to train, validate and test on.
    - `runs`: its runs that have something to show, one for each line.
    """

    title: str
    summary: str
    notes: Sequence[str]
    balance: Sequence[tuple[str, ...]]
    runs: Sequence[OwnRun]


def own_parts(found: Sequence[FoundRun]) -> list[OwnPart]:
    """Return the parts of all own data, in the order of their runs."""
    by_data: dict[tuple[str, str], list[FoundRun]] = {}
    for run in found:
        if run.known is not None and run.known.data is not None:
            by_data.setdefault((run.task, run.known.data.hash), []).append(run)
    return [_part(runs) for runs in by_data.values()]


def _part(runs: Sequence[FoundRun]) -> OwnPart:
    first = runs[0]
    assert first.known is not None
    lines: dict[str, FoundRun] = {}
    for run in sorted(runs, key=lambda run: run.seed or 0):
        if run.counts:
            lines.setdefault(run.group, run)
    shown = [_run(run) for run in list(lines.values())[:MOST_RUNS]]
    notes = first.about.get("notes")
    return OwnPart(
        first.known.title,
        str(first.about.get("summary", ""))[:SENTENCE],
        [str(note)[:SENTENCE] for note in notes[:MOST_NOTES]] if isinstance(notes, list) else [],
        _balance(first.about),
        [run for run in shown if run.pictures],
    )


def _run(run: FoundRun) -> OwnRun:
    came_from = origin(run)
    line = ", ".join(part for part in (line_of(run), f"preset {came_from.preset}", came_from.text) if part)
    label = run.metric.label if run.metric else ""
    drawn = [confusion(run.details), *fans(run.details)]
    return OwnRun(line, f"test {label} {formatting.score(run.test)}, seed {run.seed}", [each for each in drawn if each])


def _balance(about: Mapping[str, Any]) -> list[tuple[str, ...]]:
    classes, balance = _names(about.get("classes")), about.get("balance")
    if classes is None or not isinstance(balance, Mapping):
        return []
    columns = [balance.get(split) for split in SPLITS]
    if not all(isinstance(column, list) and len(column) == len(classes) for column in columns):
        return []
    cells = [[f"{number:,}" if count(number) is not None else "?" for number in column or []] for column in columns]
    return [(name, *numbers) for name, *numbers in zip(classes, *cells, strict=True)][:MOST_CLASSES]


def _names(values: Any) -> list[str] | None:
    return [str(value)[:WORD] for value in values] if isinstance(values, list) and values else None


def confusion(details: Mapping[str, Any]) -> Picture | None:
    """Return the confusion matrix in a run's details; None if there is none, or if it is not one."""
    classes, rows = _names(details.get("classes")), details.get("confusion")
    if classes is None or len(classes) > MOST_CLASSES or not isinstance(rows, list) or len(rows) != len(classes):
        return None
    for row in rows:
        if not isinstance(row, list) or len(row) != len(classes) or any(count(value) is None for value in row):
            return None
    size = len(classes)
    parts = [_axis(classes)]
    for truth, row in enumerate(rows):
        total = sum(row)
        for guess, value in enumerate(row):
            parts.append(_cell(classes, truth, guess, value, total))
    said = f"Confusion matrix of {size} classes; rows are the true classes, columns what the model said."
    drawn = svg.picture(LEFT + CELL * size + 4, TOP + CELL * size + 4, *parts, label=said, kind="confusion")
    right = sum(row[number] for number, row in enumerate(rows))
    total = sum(map(sum, rows))
    caption = (
        f"The {right:,} of {total:,} on the diagonal are right. Rows are the true classes, columns the predicted ones. "
        "Darker fields have a larger share of their row."
    )
    return Picture("Confusion matrix", drawn, caption)


def _axis(classes: Sequence[str]) -> Markup:
    names = []
    for number, name in enumerate(classes):
        middle = CELL * number + CELL // 2
        names.append(svg.element("text", _short(name, 14), x=LEFT - 6, y=TOP + middle + 4, text_anchor="end"))
        names.append(svg.element("text", _short(name, 4), x=LEFT + middle, y=TOP - 7, text_anchor="middle"))
    return svg.element("g", *names)


def _cell(classes: Sequence[str], truth: int, guess: int, value: int, total: int) -> Markup:
    share = value / total if total else 0.0
    fill = svg.colour(1 - share) if value else "none"
    told = f"{classes[truth]} taken for {classes[guess]}\n{value:,} of {total:,}: {share:.1%}"
    x, y = LEFT + CELL * guess, TOP + CELL * truth
    box = svg.element("rect", x=x, y=y, width=CELL - 1, height=CELL - 1, fill=fill, class_="cell", data_tip=told)
    if not value:
        return box
    text = svg.element(
        "text", _number(value), x=x + CELL // 2, y=y + CELL // 2 + 4, text_anchor="middle", fill=svg.ink(fill),
        class_="value",
    )  # fmt: skip
    return svg.element("g", box, text)


def _number(value: int) -> str:
    return str(value) if value < 10_000 else f"{value // 1000}k"


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
