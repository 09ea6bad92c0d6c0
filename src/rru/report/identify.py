"""Find the preset, plan and version that a run's settings belong to."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from rru.experiments import plans
from rru.experiments.plans import Plan, PlannedRun
from rru.report.formatting import setting
from rru.report.gather import RunRecord
from rru.report.user_cells import FlatSettings, as_cell, flat, is_user_cell, of_any_cell, with_first_seed
from rru.settings import Config, presets
from rru.settings.cells import PAPER_CELLS
from rru.settings.config import settings_of
from rru.settings.tables import BFLOAT16

OWN = "own settings"
YOURS = "your-data"
TRIAL = "smoke"
"""The preset for trying out the software. Its scores mean nothing, so it comes last and has no winners."""
CELLS = {"rru": "RRU", "gru": "GRU", "lstm": "LSTM", "mogrifier": "Mogrifier LSTM"}
NARROW = f", {BFLOAT16}"
"""What the name of a line ends with, if products were in bfloat16 in training."""
MAX_LINE = 120  # characters of a line's name


@dataclass(frozen=True)
class Origin:
    """The preset that settings come from, and the settings that differ from it, by name. Seeds are ignored."""

    preset: str
    changes: Mapping[str, object]

    @property
    def text(self) -> str:
        """The settings that differ, such as `lr=0.01 budget=2M`; empty if none do."""
        return " ".join(f"{name.partition('.')[2]}={setting(value)}" for name, value in self.changes.items())


def origin(run: RunRecord) -> Origin:
    """Find the preset of a run or of its plan; if there is none, the preset closest to its settings."""
    if not run.known:
        return Origin("", {})
    cell = PAPER_CELLS[0] if is_user_cell(run.known.model.cell) else run.known.model.cell
    mine, origins = flat(run.known), []
    known = settings_of(run.known.kind, cell, own=run.known.data is not None)
    defaults = {name: entry.declared.default for name, entry in known.items()}
    for preset, of_preset in _candidates(run, cell, preset_of(run)).items():
        theirs = as_cell(of_preset, mine) if is_user_cell(run.known.model.cell) else of_preset
        names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
        values = {name: mine.get(name, defaults.get(name)) for name in names}
        origins.append(Origin(preset, {name: "none" if value is None else value for name, value in values.items()}))
    return min(origins, key=lambda entry: len(entry.changes), default=Origin("", {}))


def _candidates(run: RunRecord, cell: str, preset: str) -> dict[str, FlatSettings]:
    """Return the settings that one of the paper's cells has at the presets that a run may come from, by preset."""
    if run.known is None or run.known.data is None:
        names = presets.names(run.task) if preset == OWN else (preset,)
        return {preset: _preset(run.task, cell, preset) for preset in names}
    data = run.known.tables()["data"]
    candidates: dict[str, FlatSettings] = {}
    for preset in presets.OWN_PRESETS:
        try:
            tables = presets.derived(run.known.kind, run.facts.statistics, cell, preset)
            candidates[preset] = flat(Config.of(presets.merged(tables, {"task": {"name": run.task}, "data": data})))
        except (ArithmeticError, KeyError, IndexError, TypeError, ValueError):  # data.json may have anything in it
            return {}
    return candidates


@cache
def _preset(task: str, cell: str, preset: str) -> FlatSettings:
    return flat(presets.load(task, cell, preset))


def with_user_cells(plan: Plan, runs: Iterable[RunRecord]) -> Plan:
    """Return the plan with a line for each of the users' cells that was run with the RRU's settings in it."""
    entries, lines = list(plan.runs), {entry.line for entry in plan.runs}
    for run in runs:
        for preset, name, entry in _like(run):
            if (preset, name) == (plan.preset, plan.name) and run.known is not None:
                line = f"{line_of(run)}{' (your cell)' * (line_of(run) in lines)}"
                planned = PlannedRun(entry.task, line, entry.point, with_first_seed(run.known))
                entries.append(distinct(planned, entries))
    return replace(plan, runs=entries)


def with_bf16(plan: Plan, groups: Mapping[str, Sequence[RunRecord]]) -> Plan:
    """Return the plan with a line for each entry that was run with products in bfloat16, in its place or beside it.

    **Arguments:** `groups`: all runs, by their `group`.
    """
    narrow = {runs[0].group_in_float32 for group, runs in groups.items() if runs[0].group_in_float32 != group}
    entries: list[PlannedRun] = []
    for entry in plan.runs:
        if entry.id not in narrow or entry.id in groups:
            entries.append(entry)
        if entry.id in narrow:
            config = entry.config.changed({"schedule.precision": BFLOAT16})
            entries.append(replace(entry, line=f"{entry.line}{NARROW}", config=config))
    return replace(plan, runs=entries)


def _like(run: RunRecord) -> list[tuple[str, str, PlannedRun]]:
    """Return preset, plan and entry of each planned RRU that has the settings of a run of a user's cell.

    An option that was set to another value than the RRU's is another setting, so such a run is in no plan.
    """
    if run.known is None or run.known.data is not None or not is_user_cell(run.known.model.cell):
        return []
    mine = flat(run.known)
    found = _planned_rrus().get(of_any_cell(mine), [])
    return [each for each in found if as_cell(flat(each[2].config), mine) == mine]


@cache
def _planned_rrus() -> dict[frozenset[tuple[str, str]], list[tuple[str, str, PlannedRun]]]:
    """Return the RRUs in all plans that compare cells, by what other cells would share of their settings."""
    entries: dict[frozenset[tuple[str, str]], list[tuple[str, str, PlannedRun]]] = {}
    for plan in all_plans():
        if len({entry.cell for entry in plan.runs}) > 1:
            for entry in plan.runs:
                if entry.cell == PAPER_CELLS[0]:
                    entries.setdefault(of_any_cell(flat(entry.config)), []).append((plan.preset, plan.name, entry))
    return entries


def distinct(planned: PlannedRun, others: Iterable[PlannedRun]) -> PlannedRun:
    """Return an entry; with its id in its name if other settings have the same, and nothing says how they differ."""
    planned = replace(planned, line=planned.line[:MAX_LINE])
    place = (planned.task, planned.line, planned.point)
    taken = any((other.task, other.line, other.point) == place for other in others)
    return replace(planned, line=f"{planned.line} ({planned.id})") if taken else planned


@cache
def all_plans() -> list[Plan]:
    """Return every plan for every preset and task, with the paper's cells; presets without plans come last."""
    of_paper = [
        plans.load(name, preset, tasks=plans.tasks(name, preset)) for preset in plans.PRESETS for name in plans.names()
    ]
    return [*of_paper, *_other_presets()]


def _other_presets() -> Iterator[Plan]:
    """Yield the presets that no plan has, such as the demo's, as a table and as convergence."""
    names = dict.fromkeys(
        preset for task in presets.tasks() for preset in presets.names(task) if preset not in plans.PRESETS
    )
    for preset in names:
        entries = [
            PlannedRun(task, _named(line, config), {}, config)
            for task in presets.tasks()
            if preset in presets.names(task)
            for cell, line in CELLS.items()
            for base in (presets.load(task, cell, preset),)
            for config in (base, *map(base.changed, base.task.other_variants))  # each other output is a line too
        ]
        yield Plan("results", preset, "Results", "table", False, entries)
        yield Plan("convergence", preset, "Convergence", "convergence", False, entries)


def _named(line: str, config: Config) -> str:
    """Return the name of a line, with the output if it is joint: such scores do not compare with independent keys."""
    return f"{line}, {config.task.variant}" if config.task.variant else line


@cache
def _presets() -> dict[str, str]:
    """Return the preset of every config in a preset or plan, by its id with seed 0."""
    known: dict[str, str] = {}
    for task in presets.tasks():
        for preset in presets.names(task):
            for cell in PAPER_CELLS:
                known.setdefault(presets.load(task, cell, preset).id, preset)
    for plan in all_plans():
        for entry in plan.runs:
            known.setdefault(entry.id, plan.preset)
    return known


@cache
def _lines() -> dict[str, str]:
    """Return the cell or version of each config, by its id with seed 0."""
    known: dict[str, str] = {}
    for plan in all_plans():
        for entry in plan.runs:
            known.setdefault(entry.id, entry.line)
    return known


def preset_of(run: RunRecord) -> str:
    """Return the preset that a run's settings belong to, directly or through a plan; empty if unknown."""
    if run.known is None:
        return ""
    if run.known.data:
        return YOURS
    if is_user_cell(run.known.model.cell):
        return next((preset for preset, _, _ in _like(run)), OWN)
    return _presets().get(run.group_in_float32, OWN)


def line_of(run: RunRecord) -> str:
    """Return the cell or version of a run, as named in tables."""
    if run.known is None:
        return run.cell
    if run.known.data:
        return CELLS.get(run.cell, run.cell)
    if planned := _lines().get(run.group_in_float32):
        return f"{planned}{NARROW * (run.group != run.group_in_float32)}"
    return _named(CELLS.get(run.cell, run.cell), run.known)


@cache
def paper() -> dict[str, dict[str, dict[str, float]]]:
    """Return the paper's numbers by table, task, and cell or version."""
    return tomllib.loads(resources.files("rru.report").joinpath("paper.toml").read_text(encoding="utf-8"))
