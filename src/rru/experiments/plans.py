"""Plans: the paper's tables and figures as lists of configs, each with its place in the table or figure.

```python
from rru.experiments import plans

plan = plans.load("table1", "cpu", cells=["rru", "gru"], tasks=["jsb"], seeds=[0, 1, 2])
for entry in plan.entries:
    print(entry.task, entry.line, entry.id)
```

What they consist of is in `plans.toml`. A plan says nothing of results: two plans that ask for the same config share
its run.
"""

import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rru.experiments import presets
from rru.experiments.schema import Config, checked

SIZES = ("paper", "cpu", "smoke")
SEEDS_LIMIT = 1000


@dataclass(frozen=True)
class Entry:
    """A run of a plan.

    **Arguments:**

    - `task`, `line`: whose result it is: a task, and a cell or a version of one, as a table's head names it.
    - `point`: the value of each of the plan's axes, by the setting's name.
    - `config`: all its settings.
    """

    task: str
    line: str
    point: Mapping[str, float]
    config: Config

    @property
    def id(self) -> str:
        """That of its config, seed included."""
        return presets.config_id(self.config)

    @property
    def cell(self) -> str:
        """The cell's name."""
        return str(self.config["model"]["cell"])

    @property
    def seed(self) -> int:
        """What all its randomness depends on."""
        return int(self.config["schedule"]["seed"])

    @property
    def name(self) -> str:
        """What to call it among the plan's runs, such as `nottingham, RRU, lr 0.001, budget 1000000, seed 0`."""
        point = [f"{name.rpartition('.')[2]} {number_text(value)}" for name, value in self.point.items()]
        return ", ".join([self.task, self.line, *point, f"seed {self.seed}"])


@dataclass(frozen=True)
class Plan:
    """A table or figure as a list of runs.

    **Arguments:**

    - `name`, `preset`, `title`: what it is.
    - `shows`: `table`, `grid` (two axes), `curve` (one axis) or `convergence`.
    - `in_paper`: whether the paper has such a table or figure.
    - `entries`: the runs, in order.
    """

    name: str
    preset: str
    title: str
    shows: str
    in_paper: bool
    entries: Sequence[Entry]


def names() -> tuple[str, ...]:
    """All plans."""
    return tuple(_read()["plans"])


def tasks(name: str, preset: str = "paper") -> tuple[str, ...]:
    """All tasks a plan can be made for, those it has by itself first."""
    parts = _parts(name, preset)
    return tuple(dict.fromkeys([task for part in parts for task in part["tasks"]] + _more(parts)))


def number_text(value: float) -> str:
    """A value of an axis as people write it: `0.0013`, `15,000,000`."""
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def seeds_of(text: str) -> tuple[int, ...]:
    """Seeds from a text such as `0,1,2`, `0-4` or `0-2,7`, each once."""
    seeds: dict[int, None] = {}
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,19})(?:-([0-9]{1,19}))?\s*", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
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
    """A plan.

    **Arguments:**

    - `name`: one of `names()`.
    - `preset`: `paper`, `cpu` or `smoke`.
    - `cells`, `tasks`: only these. Default: those of the paper. A registered cell of one's own may be among them.
    - `seeds`: each run once with each of them.
    """
    parts = _parts(name, preset)
    table = _table(name, preset)
    chosen = _filtered("task", tasks, [task for part in parts for task in part["tasks"]], _more(parts))
    lines = {line: dict(about) for line, about in _read()["lines"][table["lines"]].items()}
    known = tuple(dict.fromkeys(about["cell"] for about in lines.values()))
    others = [cell for cell in presets.cells() if cell not in known] if table["lines"] == "cells" else []
    lines |= {cell: {"cell": cell} for cell in others}
    kept = _filtered("cell", cells, known, others)
    entries = [
        entry
        for part in parts
        for task in chosen
        if task in (*part["tasks"], *part.get("more", ()))
        for line, about in lines.items()
        if about["cell"] in kept
        for entry in _entries(part, preset, task, line, about, tuple(seeds))
    ]
    return Plan(name, preset, table["title"], table["shows"], not table.get("own", False), entries)


def _entries(
    part: Mapping[str, Any], preset: str, task: str, line: str, about: dict[str, Any], seeds: Sequence[int]
) -> Iterator[Entry]:
    """A line's entries on a task: a run for each point and seed."""
    cell = about["cell"]
    of_line = {name: value for name, value in about.items() if name != "cell"}
    config = presets.load(task, cell, preset)
    for changes in (part.get("set", {}), part.get(task, {}), part.get(cell, {}), of_line):
        config = presets.merged(config, changes)
    axes: dict[str, list[float]] = part.get("axes", {})
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        for seed in seeds:
            changed = presets.merged(config, {"schedule": {"seed": seed}})
            for name, value in point.items():
                table, _, key = name.partition(".")
                changed = presets.merged(changed, {table: {key: value}})
            yield Entry(task, line, point, checked(changed))


def _table(name: str, preset: str) -> dict[str, Any]:
    """A plan's table at a size, with what it follows."""
    table = dict(_read()["plans"][name])
    if "follows" in table:
        table = presets.merged(_read()["plans"][table.pop("follows")], table)
    at_size = table.get(preset, {})
    return presets.merged({key: value for key, value in table.items() if key not in SIZES}, at_size)


def _parts(name: str, preset: str) -> list[dict[str, Any]]:
    """The tables a plan consists of: its own, or those of the plans it puts together."""
    table = _table(presets.choice("plan", name, names()), presets.choice("preset", preset, SIZES))
    return [_table(part, preset) | {"lines": table["lines"]} for part in table.get("parts", ())] or [table]


def _more(parts: Iterable[Mapping[str, Any]]) -> list[str]:
    return [task for part in parts for task in part.get("more", ())]


def _filtered(what: str, asked: Iterable[str] | None, usual: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """Those asked for, in the plan's own order; those that are usual if none are."""
    usual, more = tuple(dict.fromkeys(usual)), tuple(more)
    if asked is None:
        return usual
    wanted = [presets.choice(what, name, (*usual, *more)) for name in asked]
    return tuple(name for name in (*usual, *more) if name in wanted)


@cache
def _read() -> dict[str, Any]:
    return tomllib.loads(resources.files("rru.experiments").joinpath("plans.toml").read_text(encoding="utf-8"))
