"""Locate runs: the folder for a config, the run of a name, and all runs below a folder."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rru.files import MANIFEST, FileError, walk
from rru.settings import Config
from rru.training.errors import RunError
from rru.training.folder import Run
from rru.training.refit import REFIT
from rru.training.run_files import CONFIG, EXPORT_CONFIG, last_change

ROOT = Path("runs")
"""The folder that runs are in by default."""
LATEST = "latest"
MAX_LISTED = 5  # runs that an error lists
PARTS = ("checkpoint", "best", "music", "tensorboard", REFIT)  # folders inside a run, which has no other runs in it


def run_folder(config: Config, root: Path) -> Path:
    """Return the folder of a config's run: `<task>/<cell>/<id>` below `root`."""
    return root.joinpath(config.task.name, config.model.cell, config.id)


def named_run(name: str, root: Path = ROOT) -> Path:
    """Return the folder of a run; raise RunError, which lists runs, if there is none or more than one of this name.

    **Arguments:** `name`: a folder, `latest`, or the start of the name of a folder below `root`; `root`: all runs.
    """
    path = Path(name).expanduser()
    if path.is_dir() or "/" in name or not name:
        return path
    runs = by_date(root)
    if not runs:
        raise RunError(f"{name}: is not a run: it has no config.toml, and there are no runs in {root}")
    if name == LATEST:
        return runs[0]
    matches = [run for run in runs if run.name.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise RunError(f"{name}: is the start of {len(matches)} ids; write more of it: {_listed(matches)}")
    raise RunError(
        f"{name}: is not a run: it has no config.toml, and no id starts with it; runs in {root}: {_listed(runs)}"
    )


def by_date(root: Path) -> list[Path]:
    """Return the folders of all readable runs below a folder, the latest first."""
    if not root.is_dir():
        return []
    folders = [run.path for run in find_runs(root, damaged=lambda folder, error: None)]
    return sorted(folders, key=lambda folder: (last_change(folder) or 0.0, str(folder)), reverse=True)


def _listed(runs: Sequence[Path]) -> str:
    more = f" and {len(runs) - MAX_LISTED} more" if len(runs) > MAX_LISTED else ""
    return ", ".join(map(str, runs[:MAX_LISTED])) + more


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
