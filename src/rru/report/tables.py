"""Tables of plans: a row for each task, a column for each cell or version, the paper's number beside ours."""

from collections.abc import Sequence
from dataclasses import dataclass

from rru import data
from rru.report import words
from rru.report.results import Point, Section, paper


@dataclass(frozen=True)
class Entry:
    """A place in a table.

    **Arguments:**

    - `point`: ours.
    - `paper`: the paper's number, if it has one.
    - `winner`: whether it is shown as the best of its row.
    """

    point: Point
    paper: float | None
    winner: bool

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.paper is None or self.point.test is None else self.point.test - self.paper

    def comparison(self, higher_is_better: bool) -> str:
        """Ours is `better` or `worse`; nothing if, in the digits shown, it is neither."""
        if self.difference is None or words.signed(self.difference) == "0.00":
            return ""
        return "better" if (self.difference > 0) == higher_is_better else "worse"


@dataclass(frozen=True)
class Row:
    """A task's results: `verdict` says who is best and on what ground, `progress` what is missing."""

    task: str
    metric: str
    higher_is_better: bool
    entries: Sequence[Entry]
    verdict: str
    progress: str


@dataclass(frozen=True)
class Table:
    """A plan's table at one preset: `lines` are the heads of its columns."""

    name: str
    preset: str
    title: str
    lines: Sequence[str]
    rows: Sequence[Row]


def tables(sections: Sequence[Section]) -> list[Table]:
    """The tables among a preset's sections."""
    by_plan: dict[str, list[Section]] = {}
    for section in sections:
        if section.shows == "table":
            by_plan.setdefault(section.name, []).append(section)
    return [
        Table(name, found[0].preset, found[0].title, list(found[0].lines), [_row(section) for section in found])
        for name, found in by_plan.items()
    ]


def _row(section: Section) -> Row:
    of_paper, verdict = paper().get(section.name, {}).get(section.task, {}), section.verdict
    entries = [
        Entry(point, of_paper.get(point.line), verdict.shown and point.line == verdict.best) for point in section.points
    ]
    said = f"{verdict.best}: {verdict.reason}" if verdict.best else verdict.reason or words.NONE
    there = sum(entry.point.test is not None for entry in entries)
    if verdict.best and there < len(entries):
        said = f"of the {there} there are, {said}"
    metric = section.metric
    return Row(data.entry(section.task).title, metric.label, metric.higher_is_better, entries, said, section.progress)
