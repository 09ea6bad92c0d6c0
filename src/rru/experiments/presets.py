"""Presets: the settings of every task and cell, as the paper has them and in smaller sizes; and changes to them.

```python
from rru.experiments import presets

config = presets.load("jsb", "rru", "paper")
config = presets.override(config, ["lr=0.001", "model.budget=2M"])
```

One TOML file for each task lies in `presets/`. Its table `[common]` is for all cells, `[rru]`, `[gru]`, `[lstm]` and
`[mogrifier]` are for one; together they are the size `paper`. `[cpu]`, `[smoke]` and whatever else there is are sizes:
they change what they name for all cells, and in a table of their own, such as `[smoke.rru]`, for one. A file that
`follows` another has all that the other has, and changes what it names; all files follow `defaults.toml`.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import resources
from typing import Any

from rru.experiments import own, schema
from rru.experiments.schema import KEYS, Config, Key, checked, did_you_mean

__all__ = [
    "Config",
    "cells",
    "changed",
    "checked",
    "choice",
    "config_id",
    "load",
    "merged",
    "override",
    "sizes",
    "tasks",
]

_FOLDER = resources.files("rru.experiments").joinpath("presets")
_DEFAULTS = "defaults"
_SIZES = ("paper", "cpu", "smoke")
_SUFFIXES = {"k": 10**3, "m": 10**6}


def tasks() -> tuple[str, ...]:
    """The names of all tasks that have presets."""
    return tuple(name for name in KEYS["task"]["name"].words if _FOLDER.joinpath(f"{name}.toml").is_file())


def cells() -> tuple[str, ...]:
    """The names of all cells: the paper's, and those registered beside them, which take the RRU's settings."""
    return own.cells()


def sizes(task: str) -> tuple[str, ...]:
    """The sizes a task has presets in: `paper`, `cpu`, `smoke`, and maybe more."""
    tables = _read(choice("task", task, tasks()))
    more = (name for name in tables if name not in ("common", *cells(), *_SIZES))
    return (*_SIZES, *more)


def load(task: str, cell: str = "rru", size: str = "paper") -> Config:
    """The settings of a task and cell.

    **Arguments:**

    - `task`: one of `tasks()`.
    - `cell`: one of `cells()`.
    - `size`: `paper`, exactly as in the paper; `cpu`, about ten minutes on two cores, with an equal budget for all
      cells; `smoke`, seconds.

    **Returns:** the tables `task`, `model`, `optimiser` and `schedule`, yours to change.
    """
    tables = _read(choice("task", task, tasks()))
    choice("cell", cell, cells())
    choice("size", size, sizes(task))
    names = {"task": {"name": task}, "model": {"cell": cell}}
    config = merged(tables["common"], _of_cell(tables, names))
    if size != "paper":
        for_all = {name: table for name, table in tables[size].items() if name in KEYS}
        config = merged(config, for_all, _of_cell(tables[size], names))
    return checked(merged(config, names))


def _of_cell(tables: Mapping[str, Any], names: Mapping[str, Any]) -> Mapping[str, Any]:
    """A cell's own table; for a cell that is not the paper's, as much of the RRU's as it knows."""
    cell = names["model"]["cell"]
    if cell in own.CELLS:
        found: Mapping[str, Any] = tables.get(cell, {})
        return found
    known = schema.known_keys(names)
    return {
        table: {name: value for name, value in values.items() if f"{table}.{name}" in known}
        for table, values in tables.get("rru", {}).items()
    }


def override(config: Mapping[str, Any], changes: Iterable[str]) -> Config:
    """A config with some values changed.

    **Arguments:**

    - `config`: as `load` gives it; stays as it is.
    - `changes`: each `table.key=value`, or `key=value` where only one table has that key. Whole numbers may be written
      as 5000000, 5_000_000, 5e6 or 5M. `none` takes out a key that need not be there, such as `task.limit`.

    **Returns:** the new config, checked. Whatever is not right gives a ValueError that says what would be.
    """
    result = checked(config)
    for change in changes:
        name, equals, text = (part.strip() for part in change.partition("="))
        if not equals or not name:
            raise ValueError(f"a change must be key=value, such as optimiser.lr=0.01; got {change!r}")
        name, key = _find(name, result)
        table, _, short = name.partition(".")
        if text.lower() == "none" and "none" not in key.words:
            if not key.optional:
                raise ValueError(f"{name} ({key.about}) must have a value, got {text}")
            result[table].pop(short, None)
        else:
            result[table][short] = schema.check_value(name, key, _parsed(text, key))
    return checked(result)


def changed(config: Mapping[str, Any], changes: Iterable[str]) -> set[str]:
    """The full names, such as `optimiser.lr`, of the keys that changes name, each as for `override`."""
    return {_find(change.partition("=")[0].strip(), checked(config))[0] for change in changes}


def config_id(config: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that stand for a config: the same for all that come to the same result, seed included.

    Neither the order of keys counts nor how often a run logs or writes checkpoints.
    """
    config = checked(config)
    known = schema.known_keys(config)
    counted = {
        table: {name: value for name, value in values.items() if not known[f"{table}.{name}"].inert}
        for table, values in config.items()
    }
    text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _find(name: str, config: Config) -> tuple[str, Key]:
    """A key by its full name, or by a short one that only one table has."""
    known = schema.known_keys(config)
    found = [full for full in known if name in (full, full.partition(".")[2])]
    if not found:
        raise ValueError(schema.unknown_key(name, config))
    open_to_change = [full for full in found if not known[full].chosen]
    if not open_to_change:
        raise ValueError(f"{found[0]} cannot be changed: it is chosen when a preset is loaded")
    if len(open_to_change) > 1:
        raise ValueError(f"{name!r} is ambiguous: write {' or '.join(open_to_change)}")
    return open_to_change[0], known[open_to_change[0]]


def _parsed(text: str, key: Key) -> Any:
    """A value from its text; text that is not one stays text, for the check to refuse."""
    if key.kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if key.kind is str or text in key.words:
        return text
    number, factor = text, 1
    if key.kind is int and text[-1:].lower() in _SUFFIXES:
        number, factor = text[:-1], _SUFFIXES[text[-1].lower()]
    if key.kind is int:
        with suppress(ValueError):
            return int(number) * factor  # exact, where a float has too few digits
    try:
        value = float(number) * factor
        return round(value) if key.kind is int and abs(value - round(value)) < 1e-6 else value
    except (ValueError, OverflowError):
        return text


def choice(what: str, name: str, known: Sequence[str]) -> str:
    """The name, if it is a known one; else a ValueError says which are."""
    if name not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}; got {name!r}{did_you_mean(name, known)}")
    return name


@cache
def _read(name: str) -> dict[str, Any]:
    """A file's tables, with those of the files it follows."""
    tables = tomllib.loads(_FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8"))
    follows = tables.pop("follows", None if name == _DEFAULTS else _DEFAULTS)
    return merged(_read(follows), tables) if follows else tables


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables laid over one another, later ones on top, down to single values; none of them is changed."""
    result: dict[str, Any] = {}
    for table in tables:
        for name, value in table.items():
            if isinstance(value, Mapping):
                below = result.get(name, {})
                result[name] = merged(below if isinstance(below, Mapping) else {}, value)
            else:
                result[name] = value
    return result
