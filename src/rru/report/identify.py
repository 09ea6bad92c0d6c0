"""Find the preset, plan and version that a run's settings belong to."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from rru.experiments import plans
from rru.experiments.plans import Plan, PlannedRun
from rru.report.data_variants import DataVariant, data_variant, inputs, titles
from rru.report.formatting import setting
from rru.report.gather import RunRecord
from rru.settings import Config, presets

OWN = "own settings"
YOURS = "your-data"
CELLS = {"rru": "RRU", "gru": "GRU", "lstm": "LSTM", "mogrifier": "Mogrifier LSTM"}
MAX_LINE = 120  # characters of a line's name
SEED = "schedule.seed"


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
    mine, origins = _flat(run.known), []
    defaults = {name: entry.declared.default for name, entry in run.known.settings.items()}
    for preset, theirs in _candidates(run, preset_of(run)).items():
        names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
        values = {name: mine.get(name, defaults.get(name)) for name in names}
        origins.append(Origin(preset, {name: "none" if value is None else value for name, value in values.items()}))
    return min(origins, key=lambda entry: len(entry.changes), default=Origin("", {}))


def _candidates(run: RunRecord, preset: str) -> dict[str, Mapping[str, object]]:
    """Return the settings of the presets that a run may come from, by name."""
    if run.known is None or run.known.data is None:
        names = presets.names(run.task) if preset == OWN else (preset,)
        return {preset: _preset(run.task, run.cell, preset) for preset in names}
    data = run.known.tables()["data"]
    candidates: dict[str, Mapping[str, object]] = {}
    for preset in presets.OWN_PRESETS:
        try:
            tables = presets.derived(run.known.kind, run.facts.statistics, run.cell, preset)
            candidates[preset] = _flat(Config.of(presets.merged(tables, {"task": {"name": run.task}, "data": data})))
        except (ArithmeticError, KeyError, IndexError, TypeError, ValueError):  # data.json may have anything in it
            return {}
    return candidates


def own_plans(runs: Iterable[RunRecord]) -> list[Plan]:
    """Return a table and convergence for each of the user's own data, with a line for all settings run on it."""
    order = {cell: place for place, cell in enumerate(CELLS)}
    runs = sorted(runs, key=lambda run: (order.get(run.cell, len(order)), run.group))
    by_data: dict[DataVariant, dict[str, PlannedRun]] = {}
    for run in runs:
        if (variant := data_variant(run)) is None or run.known is None:
            continue
        came_from = origin(run)
        changed = [came_from.preset] if came_from.preset not in ("", presets.OWN_PRESETS[0]) else []
        line = ", ".join([line_of(run), *changed, *filter(None, (inputs(run), came_from.text))])
        entries, line = by_data.setdefault(variant, {}), line[:MAX_LINE]
        if any(entry.line == line for group, entry in entries.items() if group != run.group):
            line += f" ({run.group})"  # settings that differ, and nothing that says how
        entries.setdefault(run.group, PlannedRun(run.task, line, {}, run.known.changed({SEED: 0})))
    return [
        Plan(f"{kind}-{number}", YOURS, f"{what}: {title}", shows, False, list(by_data[variant].values()))
        for number, (variant, title) in enumerate(titles(runs).items())
        for kind, what, shows in (("own", "Results", "table"), ("convergence", "Convergence", "convergence"))
    ]


@cache
def _preset(task: str, cell: str, preset: str) -> Mapping[str, object]:
    return MappingProxyType(_flat(presets.load(task, cell, preset)))


def _flat(config: Config) -> dict[str, object]:
    """Return the settings that affect a run's result, by name, without the seed."""
    known = config.settings
    values = {f"{table}.{name}": value for table, part in config.tables().items() for name, value in part.items()}
    return {name: value for name, value in values.items() if name != SEED and not known[name].inert}


@cache
def all_plans() -> list[Plan]:
    """Return every plan for every preset and task; presets without plans come last."""
    of_paper = [
        plans.load(name, preset, tasks=plans.tasks(name, preset)) for preset in plans.PRESETS for name in plans.names()
    ]
    return [*of_paper, *_other_presets()]


def _other_presets() -> Iterator[Plan]:
    """Yield the presets that no plan has, such as the demo's, as a table and as convergence."""
    lines = {entry.cell: entry.line for entry in plans.load("table1", tasks=["jsb"]).runs}
    names = dict.fromkeys(
        preset for task in presets.tasks() for preset in presets.names(task) if preset not in plans.PRESETS
    )
    for preset in names:
        entries = [
            PlannedRun(task, _named(lines.get(cell, cell), config), {}, config)
            for task in presets.tasks()
            if preset in presets.names(task)
            for cell in presets.cells()
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
            for cell in presets.cells():
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
    if run.known and run.known.data:
        return YOURS
    return _presets().get(run.group, OWN) if run.known else ""


def line_of(run: RunRecord) -> str:
    """Return the cell or version of a run, as named in tables."""
    if run.known and run.known.data:
        return CELLS.get(run.cell, run.cell)
    return _lines().get(run.group) or (_named(run.cell, run.known) if run.known else run.cell)


@cache
def paper() -> dict[str, dict[str, dict[str, float]]]:
    """Return the paper's numbers by table, task, and cell or version."""
    return tomllib.loads(resources.files("rru.report").joinpath("paper.toml").read_text(encoding="utf-8"))
