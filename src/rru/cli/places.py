"""The folder of all runs, and which run a command is given: `latest`, the start of an id, or a folder."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from rru.cli.console import err, plain_errors, shown
from rru.cli.options import spread
from rru.training import locate
from rru.training.locate import LATEST
from rru.training.locate import ROOT as ROOT
from rru.training.locate import by_date as by_date
from rru.training.run_files import has_config

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
    """Return the folder of a run, see `rru.training.locate.named_run`; print which one is the latest."""
    folder = locate.named_run(name, root)
    if name == LATEST and folder != Path(LATEST):
        err.print(f"{LATEST}: {shown(str(folder), keep='')}", style="dim", markup=False, soft_wrap=True)
    return folder


def shortest_name(folder: Path, root: Path) -> list[str]:
    """Return the words that name a run in a command: latest if it is that, with --runs if needed, or its folder."""
    runs = by_date(root)
    if not runs or runs[0] != folder:
        return [str(folder)]
    return [LATEST] if root == ROOT else [LATEST, "--runs", str(root)]


def is_run(name: str, root: Path) -> bool:
    """Return whether a name is that of a run, or would be of several."""
    path = Path(name).expanduser()
    if path.exists() or "/" in name or path.suffix:
        return has_config(path)
    return name == LATEST or any(run.name.startswith(name) for run in by_date(root))
