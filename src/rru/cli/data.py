"""`rru data`: list, download and verify data sets; inspect a user's own data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.progress import TaskID
from rich.table import Table
from rich.text import Text

from rru.cli.console import err, line, next_command, out, plain_errors
from rru.cli.display import download_bars, file_bar
from rru.cli.help import HelpfulCommand, HelpfulGroup
from rru.cli.own import Given, shown_data, with_own_data
from rru.data import CATALOGUE, DataSet, RemoteFile, data_dir, data_set, present
from rru.data.fetch import fetch as fetch_files
from rru.data.verify import FileCheck
from rru.data.verify import verify as verify_files
from rru.report.formatting import amount, counted
from rru.settings import presets

app = typer.Typer(cls=HelpfulGroup, no_args_is_help=True, add_completion=False)

Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of data sets, as `rru data list` shows them.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        help="The folder that data is in. Default: $RRU_DATA_DIR, else the user's cache.",
    ),
]
COLOURS = {"wrong": "bold red", "missing": "yellow", "not here": "yellow"}


@app.callback()
def data() -> None:
    """List, download and verify data sets; show how your own data is understood.

    rru data list
    rru data fetch jsb
    rru data inspect novel.txt
    """


@app.command("list", cls=HelpfulCommand)
def list_sets(folder: Folder = None) -> None:
    """List all data sets: what each is, its size, and whether it is on this machine.

    rru data list
    """
    with plain_errors():
        place = data_dir(folder)
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("name", style="bold", no_wrap=True)
        table.add_column("what")
        table.add_column("download", justify="right", no_wrap=True)
        table.add_column("where", no_wrap=True)
        for this in CATALOGUE.values():
            state = _state(this, place)
            size = "-" if this.embedded else amount(this.size)
            table.add_row(this.name, this.title, size, Text(state, COLOURS.get(state, "green")))
        out.print(table)
        line(f"data folder: {place}")
        next_command("data", "info", "bach")


@app.command(cls=HelpfulCommand)
def info(
    name: Annotated[str, typer.Argument(help="Name of a data set, as `rru data list` shows it.")], folder: Folder = None
) -> None:
    """Describe a data set: contents, counts, licence, citation, and where its files are or will be.

    rru data info bach
    """
    with plain_errors():
        this, place = data_set(name), data_dir(folder)
        line(f"{this.title} ({this.name})", style="bold")
        card = Table.grid(padding=(0, 2))
        card.add_column(style="dim", no_wrap=True)
        card.add_column(overflow="fold")
        card.add_row("what", Text(this.description))
        for what, counts in _counts(this.statistics).items():
            card.add_row(what, Text(counts))
        card.add_row("licence", Text(this.licence))
        card.add_row("cite", Text(this.citation))
        card.add_row("where", Text(_state(this, place)))
        out.print(card)
        if (here := present(this, place)) is not None:
            for path in here.paths:
                line(f"  {path}")
        else:
            for file in this.files:
                line(f"  {file.url}\n    -> {place / file.path}\n    size {amount(file.size)}, {file.hash}")
        usable = this.embedded or here is not None
        next_command(*(["train", name, "--preset", "cpu"] if usable else ["data", "fetch", name]))


@app.command(cls=HelpfulCommand)
@with_own_data
def inspect(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file or folder of your own.")], given: Given
) -> None:
    """Show how your own file or folder is understood: its kind, size, vocabulary, columns and split.

    rru data inspect novel.txt --by words
    rru data inspect energy.csv --target load --horizon 24
    """
    with plain_errors():
        data = shown_data(path, given.options)
        line(presets.described(presets.load(data), presets.names(data)[0]))
        next_command("train", str(path), *given.arguments)


@app.command(cls=HelpfulCommand)
def fetch(
    names: Names,
    folder: Folder = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that differ from the published ones.")] = False,
) -> None:
    """Download data sets. A file is kept only if it is complete and its hash is right.

    rru data fetch jsb
    rru data fetch ptb-words mnist
    """
    with plain_errors():
        place = data_dir(folder)
        for this in [data_set(name) for name in names]:
            if this.embedded:
                line(f"{this.name}: part of the package, nothing to download")
            elif fetched := _fetch(this, place, force):
                line(f"{this.name}: downloaded {counted(len(fetched), 'file')} with the right hash to {place}")
            else:
                line(f"{this.name}: already here; `rru data verify {this.name}` checks the files")
        next_command("train", names[0], "--preset", "cpu")


@app.command(cls=HelpfulCommand)
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Names of data sets. Default: all that are on this machine."),
    ] = None,
    folder: Folder = None,
) -> None:
    """Check that files are the published ones. The exit code is 1 if one differs, or a named one is missing.

    rru data verify
    rru data verify jsb
    """
    with plain_errors():
        place = data_dir(folder)
        chosen = [data_set(name) for name in names or CATALOGUE]
        if not names:
            chosen = [this for this in chosen if not this.view_of and present(this, place)]
        checks = []
        with file_bar() as bar:
            task = bar.add_task("", total=sum(len(this.files) for this in chosen))
            for this in chosen:
                checked = verify_files(this, place, lambda path: bar.update(task, advance=1, description=path.name))
                checks += [(this, check) for check in checked]
        for this, check in checks:
            _show(this, check, place)
        line(f"data folder: {place}")
        if any(check.state in ("wrong", "missing") for _, check in checks):
            raise typer.Exit(1)


@app.command(cls=HelpfulCommand)
def path(folder: Folder = None) -> None:
    """Print the folder that data is in.

    rru data path
    """
    with plain_errors():
        line(str(data_dir(folder).absolute()))


def _state(this: DataSet, place: Path) -> str:
    if this.embedded:
        return "in the package"
    return "here" if present(this, place) else "not here"


def _counts(statistics: Mapping[str, object]) -> dict[str, str]:
    """Return the counts in a data set's statistics as text; lists are train, valid, test."""
    counts = {}
    for name, value in statistics.items():
        values = value if isinstance(value, list) else [value]
        if all(isinstance(number, int) for number in values):
            counts[name.replace("_", " ")] = " / ".join(f"{number:,}" for number in values)
    return counts


def _fetch(this: DataSet, place: Path, force: bool) -> list[Path]:
    """Download a data set, showing a bar per file in a terminal, else a line per file."""
    tasks: dict[RemoteFile, TaskID] = {}
    with download_bars() as bars:

        def progress(file: RemoteFile, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file.name, total=total)
                if not err.is_terminal:
                    line(f"{this.name}: {file.url} -> {place / file.path}")
            bars.update(tasks[file], completed=done, total=total)

        return fetch_files(this, place, progress, force=force)


def _show(this: DataSet, check: FileCheck, place: Path) -> None:
    file = check.path.relative_to(place) if check.path.is_relative_to(place) else check.path
    line(f"{this.name}: {file}: {check.detail}", style=COLOURS.get(check.state))
