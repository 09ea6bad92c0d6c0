"""Group runs by the plans they belong to, and seeds by the settings they share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rru.experiments.plans import Plan, PlannedRun
from rru.kinds import kind_of
from rru.report import statistics
from rru.report.formatting import score
from rru.report.gather import RunRecord, gather
from rru.report.identify import NARROW, OWN, TRIAL, all_plans, preset_of, with_bf16, with_user_cells
from rru.report.own_plans import OwnPlan, own_plans
from rru.report.user_cells import is_user_cell
from rru.settings import Config
from rru.tasks import Metric
from rru.training import RunError, RunStatus


@dataclass(frozen=True)
class Point:
    """One combination of settings in a plan, with the runs of all its seeds.

    **Arguments:**

    - `line`, `cell`: a cell or version, and the cell's name.
    - `at`: the value of each of the plan's axes.
    - `config`: the settings, with seed 0.
    - `runs`: the runs found, by seed.
    """

    line: str
    cell: str
    at: Mapping[str, float]
    config: Config
    runs: tuple[RunRecord, ...]

    @property
    def tests(self) -> dict[int, float]:
        """The test score by seed, for the runs that count."""
        return {run.seed: run.test for run in self.runs if run.counts and run.seed is not None and run.test is not None}

    @property
    def test(self) -> float | None:
        """The mean test score over seeds."""
        return self._mean("test")

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
        """The mean of the best epoch over the seeds that count."""
        return self._mean("best_epoch")

    @property
    def parameters(self) -> int | None:
        """The number of parameters of the model."""
        return next((run.parameters for run in self.runs if run.parameters), None)

    @property
    def diverged(self) -> int:
        """How many of its runs diverged."""
        return sum(run.status == RunStatus.DIVERGED for run in self.runs)

    @property
    def state(self) -> str:
        """The statuses of its runs, in words."""
        if not self.runs:
            return RunStatus.MISSING
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
    """A plan on one task.

    **Arguments:**

    - `plan`, `task`: the plan and the task.
    - `points`: all settings of the plan, in order.
    """

    plan: Plan
    task: str
    points: tuple[Point, ...]

    @property
    def heading(self) -> str:
        """The title of its figure, with the task: a plan may have been run on other tasks than its title names."""
        return f"{self.plan.title.partition(':')[0]}: {self.subject}"

    @property
    def subject(self) -> str:
        """The title of the task. That of own data is in the plan's title, since it says how the data is read."""
        config = self.points[0].config
        return self.plan.title.partition(": ")[2] if config.data else config.title

    @property
    def terms(self) -> str:
        """What the runs share, if no plan says it; empty for the usual settings."""
        return self.plan.terms if isinstance(self.plan, OwnPlan) else ""

    @property
    def ranked(self) -> bool:
        """Whether the runs share all that a fair comparison needs."""
        return not isinstance(self.plan, OwnPlan) or self.plan.ranked

    @property
    def is_trial(self) -> bool:
        """Whether all runs only tried out the software, so that their scores mean nothing."""
        return self.plan.trial if isinstance(self.plan, OwnPlan) else self.plan.preset == TRIAL

    @property
    def metric(self) -> Metric:
        """The metric of the task."""
        return kind_of(self.points[0].config.kind).metric

    @property
    def lines(self) -> dict[str, list[Point]]:
        """The points of each cell or version."""
        lines: dict[str, list[Point]] = {}
        for point in self.points:
            lines.setdefault(point.line, []).append(point)
        return lines

    @property
    def verdict(self) -> statistics.Verdict:
        """The best line in a row of a table. A line with a diverged seed is not shown as the winner.

        There is no best line if settings differ, if the runs are trials, or if two are equal in the digits shown.
        """
        tests = [point.test for point in self.points if point.test is not None]
        if len(tests) > 1 and (self.is_trial or not self.ranked):
            return statistics.Verdict(reason="not ranked: " + ("trial runs" if self.is_trial else "settings differ"))
        verdict = statistics.verdict({point.line: point.tests for point in self.points}, self.metric.higher_is_better)
        first, *others = sorted(tests, reverse=self.metric.higher_is_better) or [0.0]
        if verdict.best and not verdict.significant and others and score(first, 2) == score(others[0], 2):
            return statistics.Verdict(reason="two are equal in the digits shown")
        if any(point.line == verdict.best and point.diverged for point in self.points):
            return statistics.Verdict(verdict.best, False, "best mean of the seeds that did not diverge")
        return verdict

    @property
    def begun(self) -> dict[str, list[Point]]:
        """The lines that have runs."""
        return {line: points for line, points in self.lines.items() if any(point.runs for point in points)}

    @property
    def shared(self) -> str:
        """What the name of every line with runs ends with if all have one joint output: `, nade`; else nothing."""
        variant = self.points[0].config.task.variant
        alike = variant and all(line.removesuffix(NARROW).endswith(f", {variant}") for line in self.begun)
        return f", {variant}" if alike else ""

    def shown(self, line: str) -> str:
        """Return the name of a line without the output that all share."""
        return line.replace(self.shared, "")

    @property
    def progress(self) -> str:
        """What is still missing, in words."""
        points = [point for line in self.begun.values() for point in line]
        states = [
            " and ".join(dict.fromkeys(run.status for run in point.runs)) or RunStatus.MISSING
            for point in points
            if point.test is None
        ]
        sentences = []
        if states:
            counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
            sentences.append(f"{len(points) - len(states)} of {len(points)} settings have a result; {counts}.")
        if absent := [line for line in self.lines if line not in self.begun]:
            sentences.append(f"No runs of {', '.join(map(self.shown, absent))}.")
        return " ".join(sentences)


@dataclass(frozen=True)
class Report:
    """Everything there is to show.

    **Arguments:**

    - `roots`: the folders that were searched.
    - `runs`: the runs found, most interesting first.
    - `sections`: the plans that have runs, by preset; presets with results first.
    - `notes`: what is wrong with the folders.
    """

    roots: tuple[Path, ...]
    runs: tuple[RunRecord, ...]
    sections: Mapping[str, Sequence[Section]]
    notes: tuple[str, ...]

    @property
    def by_data(self) -> list[list[Section]]:
        """The tables of each data set, the most telling first."""
        tables: dict[tuple[str, str], list[Section]] = {}
        for section in (section for sections in self.sections.values() for section in sections):
            if section.plan.shows == "table":
                tables.setdefault((section.task, section.subject), []).append(section)

        def place(section: Section) -> tuple[bool, bool, bool]:
            return section.is_trial, all(point.test is None for point in section.points), section.plan.preset == OWN

        return [sorted(sections, key=place) for sections in tables.values()]


def build(roots: Iterable[Path]) -> Report:
    """Find the runs below some folders and the plans they belong to. Raise RunError if there are no runs."""
    roots = tuple(roots)
    notes = [f"{root}: is not a folder" for root in roots if not root.is_dir()]
    runs = gather(root for root in roots if root.is_dir())
    if not runs:
        places = ", ".join(map(str, roots)) or "no folder"
        raise RunError(f"no runs in {places}; `rru train bach --preset smoke` makes one")
    folders = [run.folder.resolve() for run in runs]
    for root in roots:
        if root.is_dir() and not any(folder.is_relative_to(root.resolve()) for folder in folders):
            notes.append(f"{root}: has no runs in it")
    sections = _sections(runs)
    tested = {
        preset: any(point.test is not None for section in of_preset for point in section.points)
        for preset, of_preset in sections.items()
    }
    order = sorted(sections, key=lambda preset: _rank(preset, tested[preset]))
    ranks = {preset: rank for rank, preset in enumerate(order)}

    def place(run: RunRecord) -> tuple[object, ...]:
        preset = preset_of(run)
        return _rank(preset, run.counts), ranks.get(preset, len(order)), run.task, _loss(run)

    ordered = {preset: sections[preset] for preset in order}
    return Report(roots, tuple(sorted(runs, key=place)), ordered, tuple(notes))


def _loss(run: RunRecord) -> float:
    """Return the test score of a run that counts, negated if necessary so that lower is better."""
    if not run.counts or run.test is None or run.metric is None:
        return 0.0
    return -run.test if run.metric.higher_is_better else run.test


def _rank(preset: str, has_result: bool) -> tuple[bool, bool]:
    """Return a sort key: results first, then unfinished runs, then the preset for trying out the software."""
    return preset == TRIAL, not has_result


def _sections(all_runs: Iterable[RunRecord]) -> dict[str, list[Section]]:
    """Return the plans that have runs. Plans share settings; a plan is left out if others already show all its runs."""
    groups: dict[str, list[RunRecord]] = {}
    for run in all_runs:
        if run.known and run.duplicate_of is None:
            groups.setdefault(run.group, []).append(run)
    sections: dict[str, list[Section]] = {}
    shown: dict[str, set[str]] = {}
    of_users = [runs[0] for runs in groups.values() if is_user_cell(runs[0].cell)]
    of_all = [with_bf16(with_user_cells(plan, of_users), groups) for plan in all_plans()]
    for plan in [*of_all, *own_plans(run for runs in groups.values() for run in runs)]:
        for task in dict.fromkeys(entry.task for entry in plan.runs):
            entries = {entry.id: entry for entry in plan.runs if entry.task == task}
            with_runs, before = entries.keys() & groups.keys(), shown.setdefault(plan.preset, set())
            if plan.shows == "convergence":  # it shows the same runs in another way
                worth = any(run.curve for key in with_runs for run in groups[key])
            else:
                worth = bool(with_runs - before)
            if worth:
                sections.setdefault(plan.preset, []).append(_section(plan, task, entries, groups))
                before |= with_runs
    return sections


def _section(
    plan: Plan, task: str, entries: Mapping[str, PlannedRun], groups: Mapping[str, list[RunRecord]]
) -> Section:
    def runs(key: str) -> tuple[RunRecord, ...]:
        return tuple(sorted(groups.get(key, []), key=lambda run: run.seed or 0))

    points = [Point(entry.line, entry.cell, entry.point, entry.config, runs(key)) for key, entry in entries.items()]
    begun = {point.config.task.variant for point in points if point.runs}
    output = next(point.config.task.variant for point in points if point.config.task.variant in begun)
    # Of other outputs, those that nobody has run are not missing.
    shown = tuple(point for point in points if point.runs or point.config.task.variant == output)
    return Section(plan, task, shown)
