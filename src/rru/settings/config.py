"""`Config`: every setting of a run, typed, frozen, and checked when it is made.

```python
from rru.settings import Config, presets

config = presets.load("jsb", "rru", "paper")
config.optimiser.lr, config.model.options["expansion"]
config = config.changed({"optimiser.lr": 0.001})
```

`tables.py` says where settings are declared.
"""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rru import data
from rru.data import OwnData
from rru.kinds import KINDS, Kind, kind_of
from rru.nn.options import Declared, declared
from rru.settings.cells import cells, options
from rru.settings.tables import (
    INERT,
    TABLES,
    DataSettings,
    ModelSettings,
    OptimiserSettings,
    Schedule,
    data_table,
    own_data,
)
from rru.suggestions import choice, closest, did_you_mean
from rru.tasks import TaskSettings

EVERYTHING = "scores would be of steps that were trained on. `task.refit` trains on all parts once scores are known"
"""Why `task.everything` is only for the training that `task.refit` asks for."""
PlainTables = Mapping[str, Any]
"""Tables that were not checked yet."""
Tables = dict[str, dict[str, Any]]
"""A config as stored in config.toml: plain values by table and key."""


@dataclass(frozen=True)
class Setting:
    """One setting of a config: its table, its declaration, and whether a config must have it."""

    table: str
    declared: Declared
    required: bool

    @property
    def name(self) -> str:
        """The full name, such as `optimiser.lr`."""
        return f"{self.table}.{self.declared.name}"

    @property
    def fixed(self) -> str:
        """Why users cannot change it, in words; empty if they can."""
        if self.table == "data" or self.name in ("task.name", "model.cell"):
            return "it selects the preset and the data"
        return EVERYTHING if self.name == "task.everything" else ""

    @property
    def inert(self) -> bool:
        """Whether it does not affect the result, so that the id of a config ignores it."""
        return self.name in INERT

    def check(self, value: object) -> Any:
        """Return the value as its declared type; raise ValueError, saying what is allowed, if it is not valid."""
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
    data: OwnData | None
    model: ModelSettings
    optimiser: OptimiserSettings
    schedule: Schedule

    @classmethod
    def of(cls, tables: PlainTables, data: OwnData | None = None) -> "Config":
        """Make a config from plain tables, as stored in config.toml; raise ValueError for a wrong setting.

        **Arguments:** `tables`: the tables; `data`: the user's data, if it was read already: used instead of an equal
        description in `tables`, so that it is not read again.
        """
        given = _given(tables)
        kind, cell = _kind_of(tables), given["model.cell"]
        known = settings_of(kind.name, cell, own=bool(tables.get("data")))
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
        model["cell_options"] = tuple((name, model.pop(name)) for name in options(cell) if name in model)
        recorded = own_data(values["data"]) if values["data"] else None
        config = cls(
            kind.task.settings_class(**values["task"]),
            data if data == recorded else recorded,
            ModelSettings(**model),
            OptimiserSettings(**values["optimiser"]),
            Schedule(**values["schedule"]),
        )
        config.task.check()
        _check_optimiser(config.optimiser)
        return config

    def tables(self) -> Tables:
        """Return plain tables, as stored in config.toml, without settings at their default (cell options stay)."""
        tables: Tables = {}
        for table in TABLES:
            part = getattr(self, table)
            if isinstance(part, OwnData):
                tables[table] = data_table(part)
            elif part is not None:
                tables[table] = {
                    field.name: getattr(part, field.name)
                    for field in dataclasses.fields(part)
                    if field.name != "cell_options" and getattr(part, field.name) != field.default
                }
        tables["model"] |= self.model.options
        return tables

    @property
    def kind(self) -> str:
        """The name of the kind of data: of the catalogue's data set, or of the user's own data."""
        return self.data.kind if self.data else data.data_set(self.task.name).kind

    @property
    def title(self) -> str:
        """The title of the data set, or the name of the user's file or folder."""
        return self.data.title if self.data else data.data_set(self.task.name).title

    @property
    def settings(self) -> dict[str, Setting]:
        """The settings that apply to its task and cell; see `settings_of`."""
        return settings_of(self.kind, self.model.cell, own=self.data is not None)

    def changed(self, changes: Mapping[str, object]) -> "Config":
        """Return a copy with some values changed, keyed by full name (`optimiser.lr`); None removes a setting.

        Settings that only apply to the old value of another one, such as `task.output`, are removed too.
        """
        tables = self.tables()
        of_task = {name.partition(".")[2]: value for name, value in changes.items() if name.startswith("task.")}
        tables["task"] = {name: value for name, value in tables["task"].items() if self.task.uses(name, of_task)}
        for name, value in changes.items():
            table, _, key = name.partition(".")
            tables.setdefault(table, {})[key] = value
        return Config.of(tables, self.data)

    @functools.cached_property
    def id(self) -> str:
        """Twelve hexadecimal digits, a hash of every setting that affects the result, the seed included."""
        counted = {
            table: {key: value for key, value in values.items() if f"{table}.{key}" not in INERT}
            for table, values in self.tables().items()
        }
        text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def settings_of(kind: str, cell: str, *, own: bool = False) -> dict[str, Setting]:
    """Return the settings that apply to a kind of data and a cell, by full name, in the order of config.toml.

    **Arguments:** `own`: whether it is a user's own data, which has the table `data`.
    """
    record = kind_of(kind)
    task = declared(record.task.settings_class)
    reading = {**declared(DataSettings), **record.declared_options} if own else {}
    shared = {name: each for name, each in _SHARED.items() if name != "embedding_size" or record.vocabularies}
    model = shared | {name: each for name, each in options(cell).items() if name not in shared}
    return _settings("task", task) | _settings("data", reading) | _settings("model", model) | TRAINING_SETTINGS


def _settings(table: str, declarations: Mapping[str, Declared]) -> dict[str, Setting]:
    settings = [Setting(table, each, each.required or name == "embedding_size") for name, each in declarations.items()]
    return {setting.name: setting for setting in settings}


_SHARED = declared(ModelSettings)
TRAINING_SETTINGS = _settings("optimiser", declared(OptimiserSettings)) | _settings("schedule", declared(Schedule))
"""The settings of the tables `optimiser` and `schedule`, by full name."""


def unknown_setting(name: str, known: Mapping[str, Setting], who: str) -> str:
    """Return the error message for a setting that does not apply.

    **Arguments:** `known`: the settings that apply; `who`: what the config is for, such as `jsb and lstm`.
    """
    short = name.rpartition(".")[2]
    owners = [
        kind.name for kind in KINDS.values() if {name, f"task.{name}", f"data.{name}", f"model.{name}"} & _special(kind)
    ]
    owners += [cell for cell in cells() if name in (short, f"model.{short}") and short in options(cell)]
    if owners:
        return f"{name} is only for {', '.join(owners)}; this config is for {who}"
    shorts = {full.partition(".")[2]: full for full in known}
    close = closest(name, known) or shorts.get(closest(short, shorts) or "")
    return f"unknown key {name!r}; " + (f"did you mean {close}?" if close else f"known: {', '.join(known)}")


def _special(kind: Kind) -> set[str]:
    """Return the full names of the settings that not all kinds have."""
    of_task = set(declared(kind.task.settings_class)) - set(declared(TaskSettings))
    names = {f"task.{name}" for name in of_task} | {f"data.{name}" for name in kind.declared_options}
    return names | ({"model.embedding_size"} if kind.vocabularies else set())


def _kind_of(tables: PlainTables) -> Kind:
    """Return the kind of data that tables describe; raise ValueError if there is none."""
    if not tables.get("data"):
        return kind_of(data.data_set(tables["task"]["name"]).kind)
    known = [each.name for each in KINDS.values() if each.auto is not None]
    return kind_of(choice("data.kind", tables["data"]["kind"], known))


def _given(tables: PlainTables) -> dict[str, Any]:
    """Flatten plain tables to values by full name, without None; check that they name a task and a cell."""
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
        if not isinstance(given[name], str):
            raise ValueError(f"{name} must be a word, got {given[name]!r} of type {type(given[name]).__name__}")
    _check_name(given["task.name"], own=bool(tables.get("data")))
    cell = given["model.cell"]
    if cell not in cells():
        raise ValueError(
            f"model.cell must be {' or '.join(map(repr, cells()))}, or a cell from "
            f"`rru --code FILE ...`; got {cell!r}{did_you_mean(cell, cells())}"
        )
    return given


def _check_name(name: str, *, own: bool) -> None:
    """Check the name of a task, which also names a folder."""
    if not own:
        choice("task.name", name, data.CATALOGUE)
    elif name in data.CATALOGUE or not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,49}", name):
        raise ValueError(f"task.name of own data must be of a-z, 0-9 and -, and not a data set's name; got {name!r}")


def _check_optimiser(optimiser: OptimiserSettings) -> None:
    """Check the optimiser settings that depend on each other."""
    if optimiser.clipping == "adaptive" and optimiser.name != "radam":
        raise ValueError(
            f"optimiser.clipping must be 'norm' or 'none' with optimiser.name = {optimiser.name!r}: "
            "only 'radam' clips adaptively"
        )
    if optimiser.weight_decay and optimiser.name == "radam":
        raise ValueError(f"optimiser.weight_decay must be 0 with 'radam', got {optimiser.weight_decay}")
