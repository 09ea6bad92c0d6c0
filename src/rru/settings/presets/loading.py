"""Load presets from their TOML files."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from rru import data
from rru.data import OwnData
from rru.data.own.data_json import Statistics
from rru.kinds import kind_of
from rru.kinds.sizes import SMOKE_CELLS
from rru.settings.cells import PAPER_CELLS, cells, known_cell
from rru.settings.config import Config, settings_of
from rru.settings.tables import TABLES, data_table
from rru.suggestions import choice

_FOLDER = resources.files("rru.settings.presets")
_DEFAULTS = "defaults"
_EVERYWHERE = ("paper", "cpu", "smoke")
OWN_PRESETS = ("auto", "smoke")


def tasks() -> tuple[str, ...]:
    """Return the names of all tasks that have presets."""
    return tuple(name for name in data.CATALOGUE if _FOLDER.joinpath(f"{name}.toml").is_file())


def names(task: str | OwnData) -> tuple[str, ...]:
    """Return the names of the presets of a task: `paper`, `cpu`, `smoke`, and any others its file has.

    A user's own data has `auto` and `smoke`.
    """
    if isinstance(task, OwnData):
        return OWN_PRESETS
    tables = _read(choice("task", task, tasks()))
    return (*_EVERYWHERE, *(name for name in tables if name not in ("common", *cells(), *_EVERYWHERE)))


def load(task: str | OwnData, cell: str = "rru", preset: str | None = None, scale: float = 1.0) -> Config:
    """Load the preset of a task and cell; raise ValueError if there is none.

    **Arguments:**

    - `task`: one of `tasks()`, or a user's own data.
    - `cell`: one of `cells()`. A user cell gets the RRU's settings where they apply.
    - `preset`: `paper`: exactly as in the paper; `cpu`: about ten minutes on two cores, with the same budget for all
      cells; `smoke`: seconds. For own data `auto`, derived from its size, or `smoke`. Default: the first of `names`.
    - `scale`: the size of the recurrent layers in `auto`, as a multiple of the usual one.
    """
    preset = choice("preset", names(task)[0] if preset is None else preset, names(task))
    known_cell(cell)
    if isinstance(task, OwnData):
        tables, recorded = derived(task.kind, task.statistics, cell, preset, scale), task.recorded()
        named = {"task": {"name": task.name}, "data": data_table(recorded)}
        return Config.of(merged(tables, named), recorded)
    tables = _read(choice("task", task, tasks()))
    kind = data.data_set(task).kind
    merged_tables = merged(tables["common"], _of_cell(tables, kind, cell))
    if preset != "paper":
        for_all = {name: table for name, table in tables[preset].items() if name in TABLES}
        merged_tables = merged(merged_tables, for_all, _of_cell(tables[preset], kind, cell))
    return Config.of(merged(merged_tables, {"task": {"name": task}, "model": {"cell": cell}}))


def derived(kind: str, statistics: Statistics, cell: str, preset: str, scale: float = 1.0) -> dict[str, Any]:
    """Return the settings of own data, without its name and place, from its kind and counts; see `rru.kinds.sizes`."""
    record = kind_of(kind)
    if record.auto is None:
        raise ValueError(f"{kind} has no preset {preset}: it is not a kind of users' own data")
    tables = merged(_read(_DEFAULTS)["common"], record.auto(statistics, scale), _of_cell(record.cells, kind, cell))
    if preset == "smoke":
        tables = merged(tables, record.smoke(statistics), _of_cell(SMOKE_CELLS, kind, cell))
    return merged(tables, {"model": {"cell": cell}})


def _of_cell(tables: Mapping[str, Any], kind: str, cell: str) -> Mapping[str, Any]:
    """Return a cell's table; for a user cell, the RRU's settings that apply to it."""
    known = settings_of(kind, cell)
    return {
        table: {name: value for name, value in values.items() if cell in PAPER_CELLS or f"{table}.{name}" in known}
        for table, values in tables.get(cell if cell in PAPER_CELLS else "rru", {}).items()
    }


@cache
def _read(name: str) -> dict[str, Any]:
    """Read a file's tables, merged over those of the files it follows."""
    tables = tomllib.loads(_FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    follows = tables.pop("follows", None if name == _DEFAULTS else _DEFAULTS)
    return merged(_read(follows), tables) if follows else tables


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested tables recursively into a new dict; later tables win."""
    result: dict[str, Any] = {}
    for table in tables:
        for name, value in table.items():
            if isinstance(value, Mapping):
                below = result.get(name, {})
                result[name] = merged(below if isinstance(below, Mapping) else {}, value)
            else:
                result[name] = value
    return result
