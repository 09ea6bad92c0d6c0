"""Locate runs: the folder for a config, and all runs below a folder."""

import re
from collections.abc import Callable
from pathlib import Path

from rru.files import MANIFEST, FileError, walk
from rru.settings import Config
from rru.training.errors import RunError
from rru.training.folder import Run
from rru.training.refit import REFIT
from rru.training.run_files import CONFIG, EXPORT_CONFIG

ROOT = Path("runs")
"""The folder that runs are in by default."""
PARTS = ("checkpoint", "best", "music", "tensorboard", REFIT)  # folders inside a run, which has no other runs in it


def run_folder(config: Config, root: Path) -> Path:
    """Return the folder of a config's run: `<task>/<cell>/<id>` below `root`."""
    return root.joinpath(config.task.name, config.model.cell, config.id)


def run_by_id(name: str, root: Path = ROOT) -> Path | None:
    """Return the folder of the run with this id, or the beginning of one; None if there is none below `root`.

    Raise RunError if several ids begin so.
    """
    if not re.fullmatch(r"[0-9a-f]{4,12}", name):
        return None
    folders = sorted(folder for folder in root.glob(f"*/*/{name}*") if (folder / CONFIG).is_file())
    if len(folders) > 1:
        raise RunError(f"{name}: several runs have such an id: {', '.join(map(str, folders[:3]))}; give more digits")
    return folders[0] if folders else None


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
