"""Loads presets from their TOML files."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from rru import data
from rru.data import OwnData
from rru.settings.cells import PAPER_CELLS, cells
from rru.settings.config import Config, settings_of
from rru.settings.presets import auto
from rru.settings.tables import TABLES, DataSettings
from rru.suggestions import did_you_mean

_FOLDER = resources.files("rru.settings.presets")
_DEFAULTS = "defaults"
_EVERYWHERE = ("paper", "cpu", "smoke")


def tasks() -> tuple[str, ...]:
    """Returns the names of all tasks that have presets."""
    return tuple(name for name in data.CATALOGUE if _FOLDER.joinpath(f"{name}.toml").is_file())


def names(task: str | OwnData) -> tuple[str, ...]:
    """Returns the names of the presets of a task: `paper`, `cpu`, `smoke`, and any others its file has.

    A user's own data has `auto` and `smoke`.
    """
    if isinstance(task, OwnData):
        return auto.PRESETS
    tables = _read(choice("task", task, tasks()))
    more = (name for name in tables if name not in ("common", *cells(), *_EVERYWHERE))
    return (*_EVERYWHERE, *more)


def load(task: str | OwnData, cell: str = "rru", preset: str | None = None) -> Config:
    """Loads the preset of a task and cell; raises ValueError if there is none.

    **Arguments:**

    - `task`: one of `tasks()`, or a user's own data.
    - `cell`: one of `cells()`. A user cell gets the RRU's settings where they apply.
    - `preset`: `paper`: exactly as in the paper; `cpu`: about ten minutes on two cores, with the same budget for all
      cells; `smoke`: seconds. For own data `auto`, derived from its size, or `smoke`. Default: the first of `names`.
    """
    preset = choice("preset", names(task)[0] if preset is None else preset, names(task))
    choice("cell", cell, cells())
    if isinstance(task, OwnData):
        found = derived(task.kind, task.statistics, cell, preset)
        return Config.of(merged(found, {"task": {"name": task.name}, "data": DataSettings.tables_of(task)}))
    tables = _read(choice("task", task, tasks()))
    kind = data.data_set(task).kind
    found = merged(tables["common"], _of_cell(tables, kind, cell))
    if preset != "paper":
        for_all = {name: table for name, table in tables[preset].items() if name in TABLES}
        found = merged(found, for_all, _of_cell(tables[preset], kind, cell))
    return Config.of(merged(found, {"task": {"name": task}, "model": {"cell": cell}}))


def derived(kind: str, statistics: Mapping[str, Any], cell: str, preset: str) -> dict[str, Any]:
    """Returns the settings of own data, without its name and place, from its kind and counts; see `auto.py`."""
    found = merged(
        _read(_DEFAULTS)["common"], auto.settings(kind, statistics), _of_cell(auto.of_cell(kind), kind, cell)
    )
    if preset == "smoke":
        found = merged(found, auto.smoke(kind, statistics), _of_cell(auto.SMOKE_OF_CELL, kind, cell))
    return merged(found, {"model": {"cell": cell}})


def _of_cell(tables: Mapping[str, Any], kind: str, cell: str) -> Mapping[str, Any]:
    """Returns a cell's table; for a user cell, the RRU's settings that apply to it."""
    if cell in PAPER_CELLS:
        found: Mapping[str, Any] = tables.get(cell, {})
        return found
    known = settings_of(kind, cell)
    return {
        table: {name: value for name, value in values.items() if f"{table}.{name}" in known}
        for table, values in tables.get("rru", {}).items()
    }


def choice(what: str, name: str, known: Sequence[str]) -> str:
    """Returns the name if it is known; otherwise raises ValueError and lists the known names."""
    if name not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}; got {name!r}{did_you_mean(name, known)}")
    return name


@cache
def _read(name: str) -> dict[str, Any]:
    """Reads a file's tables, merged over those of the files it follows."""
    tables = tomllib.loads(_FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    follows = tables.pop("follows", None if name == _DEFAULTS else _DEFAULTS)
    return merged(_read(follows), tables) if follows else tables


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Merges nested tables recursively into a new dict; later tables win."""
    result: dict[str, Any] = {}
    for table in tables:
        for name, value in table.items():
            if isinstance(value, Mapping):
                below = result.get(name, {})
                result[name] = merged(below if isinstance(below, Mapping) else {}, value)
            else:
                result[name] = value
    return result
