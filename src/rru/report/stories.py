"""The story of each data set: who won, how they learned, a sample, and what to do next."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from rru.data import SPLITS, Facts
from rru.data.own.data_json import LabelFacts
from rru.kinds import kind_of
from rru.report import charts, descriptions, figures
from rru.report.confusion import MAX_CLASSES
from rru.report.formatting import whole
from rru.report.gather import SENTENCE, WORD, RunRecord
from rru.report.identify import line_of, origin
from rru.report.results import Point, Report, Section
from rru.report.samples import Media, Sample, sample
from rru.report.sentences import headline, sentence, short_names
from rru.report.tables import Row, row_of
from rru.report.user_cells import is_user_cell
from rru.training import RunStatus
from rru.training.run_files import count

MAX_NOTES = 12
FIRST_PICTURES = 2  # of the best model that are not folded
WEIGHTS = "best"
"""The folder of a run that has its weights."""
INPUT_FILES = {"reviews": "review.txt", "images": "digit.png"}
"""What to classify with models of the catalogue, by kind of data."""


@dataclass(frozen=True)
class Ranked:
    """A line of a ranking: its mark and name, and how far it is behind the best, its score, or why it has none."""

    mark: Markup
    name: str
    behind: str
    best: bool


@dataclass(frozen=True)
class Result:
    """A comparison on one data set.

    **Arguments:**

    - `section`: the plan and its runs.
    - `sentence`: what it shows; `headline`: the same without numbers.
    - `ranking`: best first, then lines without a result; `facts`: of a single line, its numbers by name.
    - `significant`: whether the lead of the first is.
    - `remarks`: what was compared, and how sure the result is.
    - `curve`: the learning curves, if any, and how to read them.
    """

    section: Section
    sentence: str
    headline: str
    ranking: Sequence[Ranked]
    facts: Mapping[str, str]
    significant: bool
    remarks: Sequence[str]
    curve: tuple[Markup | None, str]


@dataclass(frozen=True)
class Story:
    """Everything about one data set.

    **Arguments:**

    - `title`: its title, or the name of the user's file or folder.
    - `results`: a comparison for each preset; the most telling first.
    - `summary`, `notes`: how the user's own data was understood.
    - `balance`: rows of a table of classes: name, and the number of items to train, validate and test on.
    - `samples`: what models made, the best model's first.
    - `command`: what to do next; `purpose`: what for.
    """

    title: str
    results: Sequence[Result]
    summary: str
    notes: Sequence[str]
    balance: Sequence[tuple[str, ...]]
    samples: Sequence[Sample]
    command: str
    purpose: str


def stories(report: Report, media: Mapping[Path, Media]) -> list[Story]:
    """Return the story of each data set, in the order of the report's tables."""
    return [_story(sections, media) for sections in report.by_data]


def _story(sections: Sequence[Section], media: Mapping[Path, Media]) -> Story:
    best, samples = _best_runs(sections[0])[0], _samples(sections, media)
    facts, (command, purpose) = best.facts, _next(best, samples)
    return Story(
        sections[0].subject,
        [_result(section) for section in sections],
        facts.summary[:SENTENCE],
        [note[:SENTENCE] for note in facts.notes[:MAX_NOTES]],
        _balance(facts),
        samples,
        command,
        purpose,
    )


def _samples(sections: Sequence[Section], media: Mapping[Path, Media]) -> list[Sample]:
    """Return what the best run of each line made, and the music of all others. The first has few pictures."""
    best = {run.folder: run for section in sections for run in _best_runs(section)}
    every = {run.folder: run for section in sections for point in section.points for run in point.runs}
    samples = [sample(run, media.get(folder, Media())) for folder, run in best.items()]
    samples += [sample(run, media[at], pictures=False) for at, run in every.items() if at in media and at not in best]
    samples = [each for each in samples if each.pictures or each.pieces]
    for first in samples[:1]:
        rest = replace(first, pictures=first.pictures[FIRST_PICTURES:], pieces={}, scores="")
        samples[0] = replace(first, pictures=first.pictures[:FIRST_PICTURES])
        samples[1:1] = [rest] if rest.pictures else []
    return samples


def _best_runs(section: Section) -> list[RunRecord]:
    """Return the best run of each line on validation, best first; of a line without results, the first."""

    def loss(run: RunRecord) -> tuple[bool, float]:
        validation = run.validation or 0.0
        return not run.counts, -validation if section.metric.higher_is_better else validation

    lines = section.begun.values()
    return sorted((min((run for point in points for run in point.runs), key=loss) for points in lines), key=loss)


def _result(section: Section) -> Result:
    row, verdict = row_of(section, list(section.lines)), section.verdict
    tested = [entry.point for entry in row.ranking]
    shared, label = short_names(section)[1], section.metric.label
    alike = f"output {shared}" if shared == section.points[0].config.task.variant else f"all with {shared}"
    compared = [f"test {label}, {section.metric.direction} is better", *([alike] if shared else []), *_sizes(tested)]
    trial = "A few steps of a tiny model: the numbers say nothing about the cells."
    remarks = [
        " · ".join(compared),
        trial if section.is_trial else verdict.reason.replace(section.shared, ""),
        _seeds(section, tested),
    ]
    return Result(
        section,
        sentence(section, row),
        headline(section, row),
        _ranking(section, row),
        _facts(section),
        verdict.significant,
        [remark for remark in remarks if remark],
        (charts.convergence(section), figures.learning_caption(section)),
    )


def _ranking(section: Section, row: Row) -> list[Ranked]:
    """Return the lines of a card: how far each is behind the best; its score if none is best."""
    names, marks = short_names(section)[0], charts.swatches(section)
    if section.is_trial:  # no number means anything
        notes = {}
    elif section.verdict.best:
        notes = {entry.point.line: row.behind(entry) for entry in row.ranking}
    else:
        notes = {entry.point.line: descriptions.mean(entry.point) for entry in row.ranking}
    others = [point for points in section.begun.values() for point in points if point.test is None]
    best = section.verdict.best
    return [
        Ranked(marks[point.line], names[point.line], notes.get(point.line, point.state), point.line == best)
        for point in (*(entry.point for entry in row.ranking), *others)
    ]


def _seeds(section: Section, points: Sequence[Point]) -> str:
    """Return the seeds of each line if they differ: a mean over many is compared with a single run."""
    names, counts = short_names(section)[0], {point.line: len(point.tests) for point in points}
    each = ", ".join(f"{names[line]} {count}" for line, count in counts.items())
    return f"Means over seeds: {each}" if len(set(counts.values())) > 1 else ""


def _facts(section: Section) -> dict[str, str]:
    """Return what the card of a single line shows; nothing if there is something to compare, or no result."""
    points = [point for points in section.begun.values() for point in points]
    if len(points) != 1 or points[0].test is None or section.is_trial:
        return {}
    elsewhere = ("line", f"test {section.metric.label}", "status")
    facts = descriptions.facts(section, points[0])
    return {name: value for name, value in facts.items() if name not in elsewhere}


def _sizes(points: Sequence[Point]) -> list[str]:
    """Return how many parameters the models have; of a single one, the card says it."""
    sizes = sorted({point.parameters for point in points if point.parameters})
    if not sizes or len(points) == 1:
        return []
    return [f"{' to '.join(whole(size) for size in dict.fromkeys((sizes[0], sizes[-1])))} parameters"]


def _balance(facts: Facts) -> list[tuple[str, ...]]:
    if not isinstance(facts, LabelFacts):
        return []
    classes = [name[:WORD] for name in facts.classes]
    columns = [facts.balance.get(split) for split in SPLITS]
    if not all(isinstance(column, list) and len(column) == len(classes) for column in columns):
        return []
    cells = [[f"{number:,}" if count(number) is not None else "?" for number in column or []] for column in columns]
    return [(name, *numbers) for name, *numbers in zip(classes, *cells, strict=True)][:MAX_CLASSES]


def _next(run: RunRecord, samples: Sequence[Sample]) -> tuple[str, str]:
    """Return the next command, and what for: use the model of the best run; train it if it has not ended or is gone."""
    if run.known is None:
        return "", ""
    program = ["rru", "--code", "YOUR_CELL.py"] if is_user_cell(run.known.model.cell) else ["rru"]
    place, came_from = str(run.folder), origin(run)
    if run.status == RunStatus.STOPPED:
        return shlex.join([*program, "train", place]), "Train on"
    if not run.counts:
        return "", ""
    name = line_of(run).partition(", ")[0]
    if not (run.folder / WEIGHTS).is_dir():  # only the results were kept
        again = [*program, "train", run.task, "--cell", run.cell, "--preset", came_from.preset]
        return ("", "") if run.known.data or came_from.changes else (shlex.join(again), f"Train {name} again")
    return _use(run, [*program, kind_of(run.known.kind).commands[0], place], name, samples)


def _use(run: RunRecord, command: Sequence[str], name: str, samples: Sequence[Sample]) -> tuple[str, str]:
    """Return the command that uses a model, with further arguments, and what for."""
    assert run.known is not None
    main = command[-2]
    if main == "compose" and not any(each.pieces for each in samples):
        piece = str(run.folder / "music" / "piece.mid")
        return shlex.join([*command, "-o", piece]), f"Compose with {name}; the next report plays the piece"
    if main == "classify":
        file = str(run.known.data.path) if run.known.data else INPUT_FILES.get(run.known.kind, "FILE")
        return shlex.join([*command, file]), f"Classify with {name}"
    verbs = {"compose": "Compose more", "write": "Write text", "forecast": "Forecast what comes next"}
    return shlex.join(command), f"{verbs.get(main, 'Use the model')} with {name}"
