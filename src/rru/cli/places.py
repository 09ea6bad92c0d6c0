"""The folder of all runs, and which run a command is given: `latest`, the start of an id, or a folder."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from rru.cli.console import err, plain_errors, shown
from rru.cli.options import spread
from rru.training import RunError, find_runs
from rru.training.run_files import has_config, last_change

ROOT = Path("runs")
LATEST = "latest"
MAX_LISTED = 5  # runs that an error lists

Root = Annotated[Path, typer.Option("--runs", metavar="FOLDER", help="The folder that all runs are in.")]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run: latest, the start of its id, or its folder, as `rru runs` lists them.",
        show_default=False,
    ),
]


def with_run(command: Callable[..., None]) -> Callable[..., None]:
    """Add RUN and --runs to a command, which gets the folder of the run as its argument `folder`."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter("run", keyword, annotation=RunName),
        inspect.Parameter("root", keyword, default=ROOT, annotation=Root),
    ]
    return spread(command, "folder", options, _named_run)


def _named_run(run: str, root: Path) -> Path:
    with plain_errors():
        return named_run(run, root)


def named_run(name: str, root: Path) -> Path:
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
        err.print(f"{LATEST}: {shown(str(runs[0]), keep='')}", style="dim", markup=False, soft_wrap=True)
        return runs[0]
    matches = [run for run in runs if run.name.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise RunError(f"{name}: is the start of {len(matches)} ids; write more of it: {_listed(matches)}")
    raise RunError(
        f"{name}: is not a run: it has no config.toml, and no id starts with it; runs in {root}: {_listed(runs)}"
    )


def shortest_name(folder: Path, root: Path) -> list[str]:
    """Return the words that name a run in a command: latest if it is that, with --runs if needed, or its folder."""
    runs = by_date(root)
    if not runs or runs[0] != folder:
        return [str(folder)]
    return [LATEST] if root == ROOT else [LATEST, "--runs", str(root)]


def by_date(root: Path) -> list[Path]:
    """Return the folders of all readable runs below a folder, the latest first."""
    if not root.is_dir():
        return []
    folders = [run.path for run in find_runs(root, damaged=lambda folder, error: None)]
    return sorted(folders, key=lambda folder: (last_change(folder) or 0.0, str(folder)), reverse=True)


def is_run(name: str, root: Path) -> bool:
    """Return whether a name is that of a run, or would be of several."""
    path = Path(name).expanduser()
    if path.exists() or "/" in name or path.suffix:
        return has_config(path)
    return name == LATEST or any(run.name.startswith(name) for run in by_date(root))


def _listed(runs: Sequence[Path]) -> str:
    more = f" and {len(runs) - MAX_LISTED} more" if len(runs) > MAX_LISTED else ""
    return ", ".join(map(str, runs[:MAX_LISTED])) + more
