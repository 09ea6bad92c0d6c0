"""Locate runs: the folder for a config, and all runs below a folder."""

from collections.abc import Callable
from pathlib import Path

from rru.files import MANIFEST, FileError, walk
from rru.settings import Config
from rru.training.errors import RunError
from rru.training.folder import Run
from rru.training.run_files import CONFIG, EXPORT_CONFIG

PARTS = ("checkpoint", "best", "music", "tensorboard")  # folders inside a run, which has no other runs in it


def run_folder(config: Config, root: Path) -> Path:
    """Return the folder of a config's run: `<task>/<cell>/<id>` below `root`."""
    return root.joinpath(config.task.name, config.model.cell, config.id)


def find_runs(root: Path, damaged: Callable[[Path, FileError], None] | None = None) -> list[Run]:
    """Find all runs below a folder, sorted by path. Follow no links; a run that vanishes meanwhile is skipped.

    **Arguments:**

    - `root`: the folder.
    - `damaged`: called with each folder that cannot be read, or whose config.toml is not a run's, and the error; the
      folder is skipped. Default: raise the first such error.
    """

    def fail(folder: Path, error: FileError) -> None:
        raise error

    tell = damaged or fail
    runs: list[Run] = []
    for folder, names in walk(root, skip=PARTS, unreadable=tell):
        if CONFIG not in names or names & {EXPORT_CONFIG, MANIFEST}:
            continue
        try:
            run = Run(folder)
            _check_names(run)
        except FileError as error:
            if (folder / CONFIG).exists():  # else it has just been removed
                tell(folder, error)
        else:
            runs.append(run)
    return runs


def _check_names(run: Run) -> None:
    """Check that a run has a task, cell and seed. Other settings are not checked: they may be from another version
    of rru or belong to a cell that is not registered here."""
    for table, name, kind in (("task", "name", str), ("model", "cell", str), ("schedule", "seed", int)):
        values = run.tables.get(table)
        if not isinstance(values, dict) or type(values.get(name)) is not kind:
            raise RunError(f"{run.path / CONFIG}: is not the config of a run: it has no {table}.{name}")
