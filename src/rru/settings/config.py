"""`Config`: every setting of a run, typed, frozen, and checked when it is made.

```python
from rru.settings import Config, presets

config = presets.load("jsb", "rru", "paper")
config.optimiser.lr, config.model.options["expansion"]
config = config.changed({"optimiser.lr": 0.001})
```

Settings are declared in `tables.py`; settings specific to one cell are declared in its constructor.
"""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from rru import data
from rru.nn.options import Declared, declared
from rru.settings.cells import cells, options
from rru.settings.tables import (
    TABLES,
    DataSettings,
    FrozenDict,
    ModelSettings,
    OptimiserSettings,
    Rule,
    Schedule,
    TaskSettings,
)
from rru.suggestions import closest, did_you_mean

Tables = dict[str, dict[str, Any]]
"""A config as stored in config.toml: plain values by table and key."""

_ONLY_FOR = {"output_units": ("nade",), "key_order": ("chain", "nade")}  # settings of a task, and their outputs


@dataclass(frozen=True)
class Setting:
    """One setting of a config: its table, its declaration, and when it applies."""

    table: str
    declared: Declared
    rule: Rule

    @property
    def name(self) -> str:
        """The full name, such as `optimiser.lr`."""
        return f"{self.table}.{self.declared.name}"

    @property
    def required(self) -> bool:
        """Whether a config must give this setting."""
        return self.rule.required or self.declared.required

    def check(self, value: Any) -> Any:
        """Returns the value as its declared type; raises ValueError, saying what is allowed, if it is not valid."""
        try:
            return self.declared.check(value, self.name)
        except (TypeError, ValueError) as error:
            hint = did_you_mean(value, self.declared.option.choices) if isinstance(value, str) else ""
            raise ValueError(f"{error}{hint}") from None


@dataclass(frozen=True)
class Config:
    """All settings of a run. Make one with `presets.load`, or with `Config.of` from plain tables.

    `data` is None for a data set of the catalogue; with it, `task.name` is a free name.
    """

    task: TaskSettings
    data: DataSettings | None
    model: ModelSettings
    optimiser: OptimiserSettings
    schedule: Schedule

    @classmethod
    def of(cls, tables: Mapping[str, Any]) -> "Config":
        """Makes a config from plain tables, as stored in config.toml; raises ValueError for a wrong setting."""
        given = _given(tables)
        own, cell = bool(tables.get("data")), given["model.cell"]
        kind = given["data.kind"] if own else data.data_set(given["task.name"]).kind
        known = settings_of(kind, cell, own=own)
        for name in given:
            if name not in known:
                raise ValueError(unknown_setting(name, known, f"{given['task.name']} and {cell}"))
        values: Tables = {table: {} for table in TABLES}
        for name, setting in known.items():
            if name in given:
                values[setting.table][setting.declared.name] = setting.check(given[name])
            elif setting.required:
                raise ValueError(f"a config must have {name} ({setting.declared.option.about}), got none")
        model = values["model"]
        model["options"] = FrozenDict({name: model.pop(name) for name in options(cell) if name in model})
        made = {table: kind(**values[table]) for table, kind in TABLES.items() if table != "data" or own}
        config = cls(**{"data": None, **made})
        _check_output(config.task)
        _check_optimiser(config.optimiser)
        return config

    def tables(self) -> Tables:
        """Returns plain tables, as stored in config.toml, without settings at their default (cell options stay)."""
        tables: Tables = {}
        for table in TABLES:
            part = getattr(self, table)
            if part is None:
                continue
            fields = [field for field in dataclasses.fields(part) if field.name != "options"]
            values = {field.name: getattr(part, field.name) for field in fields}
            tables[table] = {field.name: values[field.name] for field in fields if values[field.name] != field.default}
        tables["model"] |= self.model.options
        return tables

    @property
    def kind(self) -> str:
        """The kind of the data: of the catalogue's data set, or of the user's own data."""
        return self.data.kind if self.data else data.data_set(self.task.name).kind

    @property
    def title(self) -> str:
        """The title of the data set, or the name of the user's file or folder."""
        return self.data.own.title if self.data else data.data_set(self.task.name).title

    @property
    def settings(self) -> dict[str, Setting]:
        """The settings that apply to its task and cell; see `settings_of`."""
        return settings_of(self.kind, self.model.cell, own=self.data is not None)

    def changed(self, changes: Mapping[str, Any]) -> "Config":
        """Returns a copy with some values changed, keyed by full name (`optimiser.lr`); None removes a setting.

        Another `task.output` also removes the settings that are only for the old one.
        """
        tables = self.tables()
        for name, outputs in _ONLY_FOR.items():
            if changes.get("task.output", self.task.output) not in outputs:
                tables["task"].pop(name, None)
        for name, value in changes.items():
            table, _, key = name.partition(".")
            tables.setdefault(table, {})[key] = value
        return Config.of(tables)

    @functools.cached_property
    def id(self) -> str:
        """Twelve hexadecimal digits, a hash of every setting that affects the result, the seed included."""
        inert = {name for name, setting in common_settings().items() if setting.rule.inert}
        counted = {
            table: {key: value for key, value in values.items() if f"{table}.{key}" not in inert}
            for table, values in self.tables().items()
        }
        text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def settings_of(kind: str, cell: str, *, own: bool = False) -> dict[str, Setting]:
    """Returns the settings that apply to a kind of data and a cell, by full name, in the order of config.toml.

    **Arguments:** `own`: whether it is a user's own data, which has the table `data`.
    """
    known = {name: each for name, each in common_settings().items() if not each.rule.kinds or kind in each.rule.kinds}
    known = {name: each for name, each in known.items() if own or each.table != "data"}
    of_cell = [Setting("model", option, Rule()) for option in options(cell).values()]
    known |= {setting.name: setting for setting in of_cell if setting.name not in known}
    return {name: setting for table in TABLES for name, setting in known.items() if setting.table == table}


def unknown_setting(name: str, known: Mapping[str, Setting], who: str) -> str:
    """Returns the error message for a setting that does not apply.

    **Arguments:** `known`: the settings that apply; `who`: what the config is for, such as `jsb and lstm`.
    """
    short = name.rpartition(".")[2]
    owners = [
        kind
        for full, each in common_settings().items()
        if name in (full, full.partition(".")[2])
        for kind in each.rule.kinds
    ]
    owners += [one for one in cells() if name in (short, f"model.{short}") and short in options(one)]
    if owners:
        return f"{name} is only for {', '.join(owners)}; this config is for {who}"
    shorts = {full.partition(".")[2]: full for full in known}
    close = closest(name, known) or shorts.get(closest(short, shorts) or "")
    hint = f"did you mean {close}? " if close else ""
    return f"unknown key {name!r}; {hint}Known: {', '.join(known)}"


@functools.cache
def common_settings() -> dict[str, Setting]:
    """Returns the settings that do not depend on the cell, by full name."""
    found = {}
    for table, kind in TABLES.items():
        hints = get_type_hints(kind, include_extras=True)
        for name, one in declared(kind).items():
            rules = [extra for extra in getattr(hints[name], "__metadata__", ()) if isinstance(extra, Rule)]
            found[f"{table}.{name}"] = Setting(table, one, rules[0] if rules else Rule())
    return found


def _given(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Flattens plain tables to values by full name, without None; checks that they name a task and a cell."""
    for table, values in tables.items():
        if table not in TABLES:
            hint = did_you_mean(table, TABLES)
            raise ValueError(f"tables of a config must be {', '.join(TABLES)}; got {table!r}{hint}")
        if not isinstance(values, Mapping):
            raise ValueError(f"{table} must be a table of settings, got {values!r}")
    given = {
        f"{table}.{name}": value
        for table, values in tables.items()
        for name, value in values.items()
        if value is not None
    }
    for name in ("task.name", "model.cell", *(["data.kind"] if tables.get("data") else [])):
        if name not in given:
            raise ValueError(f"a config must have {name}, got none")
        common_settings()[name].check(given[name])
    _check_name(given["task.name"], own=bool(tables.get("data")))
    cell = given["model.cell"]
    if cell not in cells():
        raise ValueError(
            f"model.cell must be {' or '.join(map(repr, cells()))}, or a cell from "
            f"`rru --cells FILE ...`; got {cell!r}{did_you_mean(cell, cells())}"
        )
    return given


def _check_name(name: str, *, own: bool) -> None:
    """Checks the name of a task, which also names a folder."""
    if not own and name not in data.CATALOGUE:
        known = " or ".join(map(repr, data.CATALOGUE))
        raise ValueError(f"task.name must be {known}, got {name!r}{did_you_mean(name, data.CATALOGUE)}")
    if own and (name in data.CATALOGUE or not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,49}", name)):
        raise ValueError(f"task.name of own data must be of a-z, 0-9 and -, and not a data set's name; got {name!r}")


def _check_output(task: TaskSettings) -> None:
    """Checks that settings of an output are only given with that output."""
    for name, outputs in _ONLY_FOR.items():
        if name in task.arguments and task.output not in outputs:
            wanted = " or ".join(map(repr, outputs))
            raise ValueError(f"task.{name} is only for task.output = {wanted}, got {task.output!r}")


def _check_optimiser(optimiser: OptimiserSettings) -> None:
    """Checks the optimiser settings that depend on each other."""
    if optimiser.clipping == "adaptive" and optimiser.name != "radam":
        raise ValueError(
            f"optimiser.clipping must be 'norm' or 'none' with optimiser.name = {optimiser.name!r}: "
            "only 'radam' clips adaptively"
        )
    if optimiser.weight_decay and optimiser.name == "radam":
        raise ValueError(f"optimiser.weight_decay must be 0 with 'radam', got {optimiser.weight_decay}")
