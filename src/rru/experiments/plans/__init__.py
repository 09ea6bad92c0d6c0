"""Plans: the paper's tables and figures as lists of runs, each with its place in the table or figure.

```python
from rru.experiments import plans

plan = plans.load("table1", "cpu", cells=["rru", "gru"], tasks=["jsb"], seeds=[0, 1, 2])
for run in plan.runs:
    print(run.task, run.line, run.id)
```

`plans.toml` defines the plans. A plan holds no results; plans that contain the same config share its run.
"""

import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rru.data import OwnData
from rru.settings import Config, presets
from rru.settings.cells import known_cell

_Table = dict[str, Any]
"""A table of plans.toml."""
PRESETS = ("paper", "cpu", "smoke")
SEEDS_LIMIT = 1000
COMPARE = "compare"
"""The name of the plan that compares cells on a user's own data."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of a plan.

    **Arguments:**

    - `task`: the name of the task.
    - `line`: the cell, or a variant of one, as named in the table's header.
    - `point`: the run's value on each axis of the plan, by setting name.
    - `config`: all settings of the run.
    """

    task: str
    line: str
    point: Mapping[str, float]
    config: Config

    @property
    def id(self) -> str:
        """The id of the config."""
        return self.config.id

    @property
    def cell(self) -> str:
        """The name of the cell."""
        return self.config.model.cell

    @property
    def seed(self) -> int:
        """The random seed."""
        return self.config.schedule.seed

    @property
    def name(self) -> str:
        """A name to show for the run, such as `nottingham, RRU, lr 0.001, budget 1,000,000, seed 0`."""
        point = [f"{name.rpartition('.')[2]} {number_text(value)}" for name, value in self.point.items()]
        return ", ".join([self.task, self.line, *point, f"seed {self.seed}"])


@dataclass(frozen=True)
class Plan:
    """A table or figure as a list of runs.

    **Arguments:**

    - `name`: its name in `plans.toml`.
    - `preset`: the preset of its configs: `paper`, `cpu` or `smoke`.
    - `title`: the title of the table or figure.
    - `shows`: `table`, `grid` (two axes), `curve` (one axis) or `convergence`.
    - `in_paper`: whether the table or figure is in the paper.
    - `runs`: the runs, in order.
    """

    name: str
    preset: str
    title: str
    shows: str
    in_paper: bool
    runs: Sequence[PlannedRun]


def names() -> tuple[str, ...]:
    """Return the names of all plans."""
    return tuple(_read()["plans"])


def tasks(name: str, preset: str = "paper") -> tuple[str, ...]:
    """Return all tasks a plan can be loaded for, its default tasks first."""
    parts = _parts(name, preset)
    return tuple(dict.fromkeys([task for part in parts for task in part["tasks"]] + _more(parts)))


def number_text(value: float) -> str:
    """Format the value of an axis: `0.0013`, `15,000,000`."""
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def seeds_of(text: str) -> tuple[int, ...]:
    """Parse seeds from a text such as `0,1,2`, `0-4` or `0-2,7`, without duplicates; ValueError if it is malformed."""
    seeds: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,19})(?:-([0-9]{1,19}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + SEEDS_LIMIT:
            raise ValueError(
                f"seeds must be whole numbers or ranges of at most {SEEDS_LIMIT:,}, such as 0,1,2 or 0-4; got {text!r}"
            )
        seeds.update(dict.fromkeys(range(first, last + 1)))
    return tuple(seeds)


def load(
    name: str,
    preset: str = "paper",
    *,
    cells: Iterable[str] | None = None,
    tasks: Iterable[str] | None = None,
    seeds: Iterable[int] = (0,),
) -> Plan:
    """Load a plan; raise ValueError for an unknown plan, preset, cell or task.

    **Arguments:**

    - `name`: one of `names()`.
    - `preset`: `paper`, `cpu` or `smoke`.
    - `cells`, `tasks`: include only these. Default: the plan's own. Plans that compare cells also accept registered
      user cells.
    - `seeds`: the plan has each run once for each seed.
    """
    parts = _parts(name, preset)
    table = _table(name, preset)
    chosen_tasks = _filtered("task", tasks, [task for part in parts for task in part["tasks"]], _more(parts))
    lines = {line: dict(settings) for line, settings in _read()["lines"][table["lines"]].items()}
    known = tuple(dict.fromkeys(settings["cell"] for settings in lines.values()))
    others = [cell for cell in presets.cells() if cell not in known] if table["lines"] == "cells" else []
    lines |= {cell: {"cell": cell} for cell in others}
    chosen_cells = _filtered("cell", cells, known, others)
    runs = [
        run
        for part in parts
        for task in chosen_tasks
        if task in (*part["tasks"], *part.get("more", ()))
        for line, settings in lines.items()
        if settings["cell"] in chosen_cells
        for run in _runs(part, preset, task, line, settings, tuple(seeds))
    ]
    return Plan(name, preset, table["title"], table["shows"], not table.get("own", False), runs)


def compare(
    data: OwnData,
    preset: str | None = None,
    *,
    cells: Iterable[str] | None = None,
    seeds: Iterable[int] = (0,),
    changes: Iterable[str] = (),
) -> Plan:
    """Return the plan that compares cells on a user's own data, with equally many parameters.

    **Arguments:**

    - `data`: the data.
    - `preset`: `auto` or `smoke`. Default: `auto`.
    - `cells`: the cells. Default: the paper's four.
    - `seeds`: the plan has each run once for each seed.
    - `changes`: as for `presets.override`.
    """
    preset, seeds, changes = preset or presets.names(data)[0], tuple(seeds), tuple(changes)
    names = {settings["cell"]: line for line, settings in _read()["lines"]["cells"].items()}
    chosen = _filtered("cell", cells, names, [cell for cell in presets.cells() if cell not in names])
    configs = {cell: presets.override(presets.load(data, cell, preset), changes) for cell in chosen}
    runs = [
        PlannedRun(data.name, names.get(cell, cell), {}, config.changed({"schedule.seed": seed}))
        for cell, config in configs.items()
        for seed in seeds
    ]
    return Plan(COMPARE, preset, f"Comparison on {data.title}", "table", False, runs)


def _runs(
    part: _Table, preset: str, task: str, line: str, settings: _Table, seeds: Sequence[int]
) -> Iterator[PlannedRun]:
    """Yield the runs of a line on a task, one for each point and seed."""
    cell = settings["cell"]
    of_line = {name: value for name, value in settings.items() if name != "cell"}
    tables = [part.get("set", {}), part.get(task, {}), part.get(cell, {}), of_line]
    config = Config.of(presets.merged(presets.load(task, cell, preset).tables(), *tables))
    axes: dict[str, list[float]] = part.get("axes", {})
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        for seed in seeds:
            yield PlannedRun(task, line, point, config.changed({**point, "schedule.seed": seed}))


def _table(name: str, preset: str) -> _Table:
    """Return a plan's table for a preset, merged over the plan it follows, if any."""
    table = dict(_read()["plans"][name])
    if "follows" in table:
        table = presets.merged(_read()["plans"][table.pop("follows")], table)
    at_preset = table.get(preset, {})
    return presets.merged({key: value for key, value in table.items() if key not in PRESETS}, at_preset)


def _parts(name: str, preset: str) -> list[_Table]:
    """Return the tables of a plan's parts, or its own table if it has no parts."""
    table = _table(presets.choice("plan", name, names()), presets.choice("preset", preset, PRESETS))
    return [_table(part, preset) | {"lines": table["lines"]} for part in table.get("parts", ())] or [table]


def _more(parts: Iterable[_Table]) -> list[str]:
    return [task for part in parts for task in part.get("more", ())]


def _filtered(what: str, asked: Iterable[str] | None, usual: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """Return the names asked for, in the plan's order; the usual ones if `asked` is None."""
    usual, more = tuple(dict.fromkeys(usual)), tuple(more)
    if asked is None:
        return usual
    names = [known_cell(name) if what == "cell" else name for name in asked]
    wanted = [presets.choice(what, name, (*usual, *more)) for name in names]
    return tuple(name for name in (*usual, *more) if name in wanted)


@cache
def _read() -> _Table:
    return tomllib.loads(resources.files("rru.experiments.plans").joinpath("plans.toml").read_text(encoding="utf-8"))
