"""Runs put in their places: every plan that has runs, and what the seeds of each of its settings came to."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from rru import data
from rru.experiments import plans, presets
from rru.experiments.plans import Entry, Plan
from rru.experiments.schema import Config
from rru.report import statistics
from rru.report.gather import Found, Metric, gather, metric_of
from rru.training import RunError

OWN = "own settings"
ABOUT = {
    "paper": "Exactly the paper's settings, so these numbers may be set beside the paper's.",
    "cpu": "Scaled down to about ten minutes on two cores, with an equal budget of parameters for all cells. Compare "
    "the cells with one another; the paper's numbers, of larger models trained longer, are there for orientation only.",
    "smoke": "A few steps of a tiny model, to see that everything runs. The numbers say nothing about the cells.",
    "demo": "The settings of the demonstration: small, equally large for all cells, tuned for none of them.",
}


@dataclass(frozen=True)
class Point:
    """One of a plan's settings, with the runs of all its seeds.

    **Arguments:**

    - `line`, `cell`: a cell or version, and the cell's name.
    - `at`: the value of each of the plan's axes.
    - `config`: the settings, with seed 0.
    - `runs`: those found, by seed.
    """

    line: str
    cell: str
    at: Mapping[str, float]
    config: Config
    runs: tuple[Found, ...]

    @property
    def tests(self) -> dict[int, float]:
        """The test by seed, of the runs that count."""
        return {run.seed: run.test for run in self.runs if run.counts and run.seed is not None and run.test is not None}

    @property
    def test(self) -> float | None:
        """The mean over seeds."""
        return statistics.mean(list(self.tests.values())) if self.tests else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds, if there are several."""
        return statistics.deviation(list(self.tests.values())) if self.tests else None

    @property
    def validation(self) -> float | None:
        """The mean of the best validation over the seeds that count."""
        return self._mean("validation")

    @property
    def best_epoch(self) -> float | None:
        """After how many epochs the best came, on average over the seeds that count."""
        return self._mean("best_epoch")

    @property
    def parameters(self) -> int | None:
        """Of the model."""
        return next((run.parameters for run in self.runs if run.parameters), None)

    @property
    def diverged(self) -> int:
        """How many of its runs failed."""
        return sum(run.status == "diverged" for run in self.runs)

    @property
    def state(self) -> str:
        """What became of its runs, in words."""
        if not self.runs:
            return "not begun"
        states = [run.status for run in self.runs]
        return ", ".join(
            f"{states.count(state)} {state}" if len(states) > 1 else state for state in dict.fromkeys(states)
        )

    def _mean(self, name: str) -> float | None:
        values = [getattr(run, name) for run in self.runs if run.counts]
        known = [value for value in values if value is not None]
        return statistics.mean(known) if known else None


@dataclass(frozen=True)
class Section:
    """A plan on one task, as far as it was run.

    **Arguments:**

    - `name`, `preset`, `title`, `shows`, `in_paper`: the plan's.
    - `task`: on which.
    - `points`: all its settings, in order.
    """

    name: str
    preset: str
    title: str
    shows: str
    in_paper: bool
    task: str
    points: tuple[Point, ...]

    @property
    def heading(self) -> str:
        """What a figure of it is called: a plan may have been run on other tasks than its title names."""
        return f"{self.title.partition(':')[0]}: {data.entry(self.task).title}"

    @property
    def metric(self) -> Metric:
        """What the task is measured by."""
        return metric_of(self.task)

    @property
    def lines(self) -> dict[str, list[Point]]:
        """The points of each cell or version."""
        lines: dict[str, list[Point]] = {}
        for point in self.points:
            lines.setdefault(point.line, []).append(point)
        return lines

    @property
    def verdict(self) -> statistics.Verdict:
        """Of a table's row: which line is best. One of whose seeds some diverged is not shown as such."""
        verdict = statistics.verdict({point.line: point.tests for point in self.points}, self.metric.higher_is_better)
        if any(point.line == verdict.best and point.diverged for point in self.points):
            return statistics.Verdict(verdict.best, False, "best mean of the seeds that did not diverge")
        return verdict

    @property
    def begun(self) -> dict[str, list[Point]]:
        """The lines that have runs."""
        return {line: points for line, points in self.lines.items() if any(point.runs for point in points)}

    @property
    def progress(self) -> str:
        """What of it has no result, in words."""
        points = [point for line in self.begun.values() for point in line]
        states = [
            " and ".join(dict.fromkeys(run.status for run in point.runs)) or "not begun"
            for point in points
            if point.test is None
        ]
        said = []
        if states:
            counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
            said.append(f"{len(points) - len(states)} of {len(points)} settings have a result; {counts}.")
        if absent := [line for line in self.lines if line not in self.begun]:
            said.append(f"No runs of {', '.join(absent)}.")
        return " ".join(said)


@dataclass(frozen=True)
class Report:
    """Everything there is to show.

    **Arguments:**

    - `roots`: where runs were looked for.
    - `runs`: those found.
    - `sections`: the plans that have runs, by preset.
    - `notes`: what was missing.
    """

    roots: tuple[Path, ...]
    runs: tuple[Found, ...]
    sections: Mapping[str, Sequence[Section]]
    notes: tuple[str, ...]


def build(roots: Iterable[Path]) -> Report:
    """Finds the runs below some folders and puts each in its places; a RunError if there is none."""
    roots = tuple(roots)
    notes = [f"{root}: is no folder, so nothing was read from it" for root in roots if not root.is_dir()]
    found = gather(root for root in roots if root.is_dir())
    if not found:
        places = ", ".join(map(str, roots)) or "no folder"
        raise RunError(f"no runs in {places}; `rru train bach --preset smoke` makes one")
    folders = [run.folder.resolve() for run in found]
    for root in roots:
        if root.is_dir() and not any(folder.is_relative_to(root.resolve()) for folder in folders):
            notes.append(f"{root}: holds no runs")
    return Report(roots, tuple(found), _sections(found), tuple(notes))


def _sections(found: Iterable[Found]) -> dict[str, list[Section]]:
    """The plans that have runs of their own: many share settings, and none is shown for what another shows already."""
    groups: dict[str, list[Found]] = {}
    for run in found:
        if run.known and run.twin is None:
            groups.setdefault(run.group, []).append(run)
    sections: dict[str, list[Section]] = {}
    shown: dict[str, set[str]] = {}
    for plan, ids in all_plans():
        for task in dict.fromkeys(entry.task for entry in plan.entries):
            here = {key: entry for key, entry in zip(ids, plan.entries, strict=True) if entry.task == task}
            with_runs, before = here.keys() & groups.keys(), shown.setdefault(plan.preset, set())
            if plan.shows == "convergence":  # shows the same runs in another way
                worth = any(run.curve for key in with_runs for run in groups[key])
            else:
                worth = bool(with_runs - before)
            if worth:
                sections.setdefault(plan.preset, []).append(_section(plan, task, here, groups))
                before |= with_runs
    return sections


def _section(plan: Plan, task: str, entries: Mapping[str, Entry], groups: Mapping[str, list[Found]]) -> Section:
    def runs(key: str) -> tuple[Found, ...]:
        return tuple(sorted(groups.get(key, []), key=lambda run: run.seed or 0))

    points = tuple(
        Point(entry.line, entry.cell, entry.point, entry.config, runs(key)) for key, entry in entries.items()
    )
    return Section(plan.name, plan.preset, plan.title, plan.shows, plan.in_paper, task, points)


@cache
def all_plans() -> list[tuple[Plan, list[str]]]:
    """Every plan at every size on every task, with the ids of its entries; sizes that only presets have come last."""
    found = [plans.load(name, size, tasks=plans.tasks(name, size)) for size in plans.SIZES for name in plans.names()]
    return [(plan, [entry.id for entry in plan.entries]) for plan in (*found, *_other_sizes())]


def _other_sizes() -> Iterator[Plan]:
    """Sizes of presets that plans do not know, such as the demonstration's: as a table and as convergence."""
    lines = {entry.cell: entry.line for entry in plans.load("table1", tasks=["jsb"]).entries}
    sizes = dict.fromkeys(size for task in presets.tasks() for size in presets.sizes(task) if size not in plans.SIZES)
    for size in sizes:
        entries = [
            Entry(task, lines[cell], {}, presets.load(task, cell, size))
            for task in presets.tasks()
            if size in presets.sizes(task)
            for cell in presets.cells()
        ]
        yield Plan("results", size, "Results", "table", False, entries)
        yield Plan("convergence", size, "Convergence", "convergence", False, entries)


@cache
def _presets() -> dict[str, str]:
    """The preset of every config known by name, by its id with seed 0."""
    known: dict[str, str] = {}
    for task in presets.tasks():
        for size in presets.sizes(task):
            for cell in presets.cells():
                known.setdefault(presets.config_id(presets.load(task, cell, size)), size)
    for plan, ids in all_plans():
        for key in ids:
            known.setdefault(key, plan.preset)
    return known


@cache
def _lines() -> dict[str, str]:
    """The version that a config is of, by its id with seed 0."""
    known: dict[str, str] = {}
    for plan, ids in all_plans():
        for key, entry in zip(ids, plan.entries, strict=True):
            known.setdefault(key, entry.line)
    return known


def preset_of(run: Found) -> str:
    """The preset whose settings, or whose plan's, a run has; empty if its settings are not known."""
    return _presets().get(run.group, OWN) if run.known else ""


def line_of(run: Found) -> str:
    """The cell or version that a run is of, as tables name it; else the cell."""
    return _lines().get(run.group, run.cell)


@cache
def paper() -> dict[str, dict[str, dict[str, float]]]:
    """The paper's numbers: by table, task, and cell or version."""
    return tomllib.loads(resources.files("rru.report").joinpath("paper.toml").read_text(encoding="utf-8"))
