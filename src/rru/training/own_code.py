"""The user's own code that a run needs: copies of the files of its cell and its kind of data. They are never run."""

from collections.abc import Mapping
from pathlib import Path

from rru.files import read_file, write_file
from rru.kinds import KINDS
from rru.settings import Config, user_cells
from rru.settings.cells import cells
from rru.training.errors import RunError
from rru.training.run_files import CELL, KIND, LIMIT, word


def own_code(config: Config) -> dict[str, bytes]:
    """Return the user's files that a config needs, by the name of their copies; empty if it needs none."""
    sources = {CELL: user_cells.source(config.model.cell), KIND: user_cells.kind_source(config.kind)}
    return {name: source for name, source in sources.items() if source is not None}


def write_own_code(folder: Path, config: Config) -> None:
    """Copy the user's files to a run folder that does not have them yet."""
    for name, source in own_code(config).items():
        if not (folder / name).exists():
            write_file(folder / name, source)


def check_own_code(folder: Path, config: Config) -> None:
    """Raise RunError if one of the user's files has changed since the run began."""
    for name, source in own_code(config).items():
        copy = folder / name
        if copy.exists() and read_file(copy, LIMIT) != source:
            raise RunError(
                f"{folder}: the {name.removesuffix('.py')}'s file has changed since this run started (the original is "
                f"{copy}); choose another folder, or remove this one to start again"
            )


def missing_code(folder: Path, tables: Mapping[str, object]) -> str:
    """Return what to load before a run or export can be used: a copy of a cell or kind that is not registered here.

    Empty if both are registered, or the folder has no copy.

    **Arguments:** `tables`: the unchecked settings.
    """
    parts = (
        (CELL, "cell", word(tables, "model", "cell"), cells()),
        (KIND, "kind of data", word(tables, "data", "kind"), KINDS),
    )
    for file, what, name, registered in parts:
        if name and name not in registered and (folder / file).is_file():
            return (
                f"{folder}: has its own {what} {name!r}, in {folder / file}. That is code, which runs only if you name "
                f"it: `rru --code {folder / file} ...`, or in Python, import it first"
            )
    return ""
