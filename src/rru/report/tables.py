"""Tables of plans: one row per task, one column per cell or version, with the paper's number next to ours."""

from collections.abc import Sequence
from dataclasses import dataclass

from rru.report import formatting
from rru.report.identify import NARROW, paper
from rru.report.results import Point, Section
from rru.tasks import Metric


@dataclass(frozen=True)
class Comparison:
    """The result of one cell or version on one task, and the paper's number.

    **Arguments:**

    - `point`: our result.
    - `paper`: the paper's number, if it has one.
    - `winner`: whether it is shown as the best of its row.
    """

    point: Point
    paper: float | None
    winner: bool

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.paper is None or self.point.test is None else self.point.test - self.paper

    def verdict(self, higher_is_better: bool) -> str:
        """Return whether ours is `better` or `worse`; empty if they agree in the digits shown."""
        if self.difference is None or formatting.signed(self.difference) == "0.00":
            return ""
        return "better" if (self.difference > 0) == higher_is_better else "worse"


@dataclass(frozen=True)
class Row:
    """The results on one task: `verdict` says who is best and why, `progress` what is missing."""

    task: str
    preset: str
    metric: Metric
    entries: Sequence[Comparison]
    verdict: str
    progress: str

    @property
    def ranking(self) -> list[Comparison]:
        """The available results, best first."""
        tested = [entry for entry in self.entries if entry.point.test is not None]
        return sorted(tested, key=lambda entry: entry.point.test or 0.0, reverse=self.metric.higher_is_better)

    def behind(self, entry: Comparison) -> str:
        """Return the signed distance of a result from the best; empty for the best itself."""
        best = self.ranking[0].point.test
        if entry.point.test is None or best is None or entry.point.test == best:
            return ""
        return formatting.signed(entry.point.test - best)


@dataclass(frozen=True)
class ResultsTable:
    """A plan's table at one preset: `lines` are its columns, all of whose names end with `shared`."""

    name: str
    preset: str
    title: str
    lines: Sequence[str]
    rows: Sequence[Row]
    shared: str = ""

    @property
    def has_paper(self) -> bool:
        """Whether the paper has a number for any of its results."""
        return any(entry.paper is not None for row in self.rows for entry in row.entries)

    @property
    def has_seeds(self) -> bool:
        """Whether any of its results is a mean over seeds."""
        return any(len(entry.point.tests) > 1 for row in self.rows for entry in row.entries)


def tables(sections: Sequence[Section]) -> list[ResultsTable]:
    """Return the tables of a preset."""
    by_plan: dict[str, list[Section]] = {}
    for section in sections:
        if section.plan.shows == "table":
            by_plan.setdefault(section.plan.name, []).append(section)
    return [_table(name, of_plan) for name, of_plan in by_plan.items()]


def _table(name: str, sections: Sequence[Section]) -> ResultsTable:
    lines = list(dict.fromkeys(line for section in sections for line in section.lines))
    rows = [row_of(section, lines) for section in sections]
    endings = {section.shared for section in sections}
    shared = endings.pop() if len(endings) == 1 else ""
    shared = shared if all(line.removesuffix(NARROW).endswith(shared) for line in lines) else ""
    return ResultsTable(name, sections[0].plan.preset, sections[0].plan.title, lines, rows, shared)


def row_of(section: Section, lines: Sequence[str]) -> Row:
    """Return the row of a task, with an empty entry for each line that only other tasks have."""
    of_paper, verdict = paper().get(section.plan.name, {}).get(section.task, {}), section.verdict
    config, known = section.points[0].config, section.lines
    entries = [
        Comparison(point, of_paper.get(line.removesuffix(NARROW)), verdict.shown and line == verdict.best)
        for line in lines
        for point in known.get(line, [Point(line, config.model.cell, {}, config, ())])
    ]
    text = f"{verdict.best}: {verdict.reason}" if verdict.best else verdict.reason or formatting.NONE
    tested = sum(entry.point.test is not None for entry in entries)
    if verdict.best and tested < len(section.points):
        text = f"{text} ({tested} of {len(section.points)} have a result)"
    return Row(section.subject, section.plan.preset, section.metric, entries, text, section.progress)
