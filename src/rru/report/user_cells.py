"""Users' own cells: read the settings of their runs without their code, and compare these with the RRU's.

A user's cell has the RRU's settings unless they were changed, but no options that only the RRU has.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from rru.settings import Config
from rru.settings.cells import PAPER_CELLS
from rru.settings.tables import INERT, ModelSettings

SEED = "schedule.seed"
SHARED = frozenset(field.name for field in fields(ModelSettings)) - {"cell_options"}
"""The settings of the table `model` that all cells have."""

FlatSettings = Mapping[str, object]
"""The settings that affect a run's result, by full name, without the seed."""


def is_user_cell(cell: str) -> bool:
    """Return whether a cell is not one of the paper's."""
    return cell not in PAPER_CELLS


def config_without_code(tables: Mapping[str, Any]) -> Config:
    """Return the config of a run whose cell is not loaded; raise ValueError for a wrong setting.

    The options of the cell are taken as they are written, since only its code could check them.
    """
    model = dict(tables["model"])
    options = {name: model.pop(name) for name in list(model) if name not in SHARED}
    for name, value in options.items():
        if not isinstance(value, str | int | float):
            raise ValueError(f"model.{name} must be a number or a word, got {value!r}")
    config = Config.of({**tables, "model": {**model, "cell": PAPER_CELLS[0]}})
    return replace(config, model=replace(config.model, cell=tables["model"]["cell"], cell_options=(*options.items(),)))


def with_first_seed(config: Config) -> Config:
    """Return the config with seed 0. Its cell need not be loaded."""
    return replace(config, schedule=replace(config.schedule, seed=0))


def flat(config: Config) -> FlatSettings:
    """Return the settings of a config that affect its result, by full name, without the seed."""
    values = {f"{table}.{name}": value for table, part in config.tables().items() for name, value in part.items()}
    return {name: value for name, value in values.items() if name != SEED and name not in INERT}


def is_option(name: str) -> bool:
    """Return whether a setting, by its full name, is an option of a cell."""
    table, _, short = name.partition(".")
    return table == "model" and short not in SHARED


def of_any_cell(settings: FlatSettings) -> frozenset[tuple[str, str]]:
    """Return settings without the cell and its options: what runs of different cells can have in common."""
    shared = (name for name in settings if name != "model.cell" and not is_option(name))
    return frozenset((name, repr(settings[name])) for name in shared)


def as_cell(theirs: FlatSettings, mine: FlatSettings) -> FlatSettings:
    """Return the settings of an RRU as those of another cell: with its name, and only with options that it has."""
    fitting = {name: value for name, value in theirs.items() if name in mine or not is_option(name)}
    return {**fitting, "model.cell": mine["model.cell"]}
