"""`rru data`: what there is, what is here, and getting the rest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.progress import TaskID
from rich.table import Table
from rich.text import Text

from rru.cli.console import amount, download_bars, err, file_bar, line, out, plain_errors
from rru.data import CATALOGUE, Entry, RemoteFile, data_dir, entry, present
from rru.data.fetch import fetch as fetch_files
from rru.data.verify import Verdict
from rru.data.verify import verify as verify_files

app = typer.Typer(help="The data sets: what there is, what is here, and getting the rest.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Data sets, as `rru data list` names them.")]
Folder = Annotated[
    Path | None,
    typer.Option("--data-dir", help="The data folder. Default: RRU_DATA_DIR, else the user's cache folder."),
]
COLOURS = {"wrong": "bold red", "missing": "yellow", "can be fetched": "yellow"}


@app.command("list")
def list_sets(folder: Folder = None) -> None:
    """Show every data set: what it is, how large, and whether it is here."""
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


@app.command()
def info(name: Annotated[str, typer.Argument(help="A data set.")], folder: Folder = None) -> None:
    """Show one set's card: what it holds, counts, licence, whom to cite, where its files are or would go."""
    with plain_errors():
        this, place = entry(name), data_dir(folder)
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
        if (found := present(this, place)) is not None:
            for path in found.paths:
                line(f"  {path}")
        else:
            for file in this.files:
                line(f"  {file.url}\n    -> {place / file.path}\n    size {amount(file.size)}, {file.hash}")


@app.command()
def fetch(
    names: Names,
    folder: Folder = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also replace files that are here but not as published.")
    ] = False,
) -> None:
    """Download sets. A file appears only when it is whole and its hash is right."""
    with plain_errors():
        place = data_dir(folder)
        for this in [entry(name) for name in names]:
            if this.embedded:
                line(f"{this.name}: inside the package, nothing to fetch")
            elif fetched := _fetch(this, place, force):
                line(f"{this.name}: fetched {len(fetched)} file{'s' * (len(fetched) > 1)}, hashes right, to {place}")
            else:
                line(f"{this.name}: here already; `rru data verify {this.name}` looks closer")


@app.command()
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Data sets. Default: all that are here.")
    ] = None,
    folder: Folder = None,
) -> None:
    """Read every file and say whether it is the published one. Ends with 1 if one is wrong, or named and missing."""
    with plain_errors():
        place = data_dir(folder)
        chosen = [entry(name) for name in names or CATALOGUE]
        if not names:
            chosen = [this for this in chosen if not this.view_of and present(this, place)]
        verdicts = []
        with file_bar() as bar:
            task = bar.add_task("", total=sum(len(this.files) for this in chosen))
            for this in chosen:
                found = verify_files(this, place, lambda path: bar.update(task, advance=1, description=path.name))
                verdicts += [(this, verdict) for verdict in found]
        for this, verdict in verdicts:
            _show(this, verdict, place)
        line(f"data folder: {place}")
        if any(verdict.state in ("wrong", "missing") for _, verdict in verdicts):
            raise typer.Exit(1)


@app.command()
def path(folder: Folder = None) -> None:
    """Print the data folder."""
    with plain_errors():
        line(str(data_dir(folder).absolute()))


def _state(this: Entry, place: Path) -> str:
    if this.embedded:
        return "embedded"
    return "here" if present(this, place) else "can be fetched"


def _counts(statistics: Mapping[str, Any]) -> dict[str, str]:
    """The counts among a set's statistics, in words; lists are train, valid, test."""
    counts = {}
    for name, value in statistics.items():
        values = value if isinstance(value, list) else [value]
        if all(isinstance(number, int) for number in values):
            counts[name.replace("_", " ")] = " / ".join(f"{number:,}" for number in values)
    return counts


def _fetch(this: Entry, place: Path, force: bool) -> list[Path]:
    """Downloads with a bar for each file on a terminal, with a line for each elsewhere."""
    tasks: dict[RemoteFile, TaskID] = {}
    with download_bars() as bars:

        def progress(file: RemoteFile, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file.name, total=total)
                if not err.is_terminal:
                    line(f"{this.name}: {file.url} -> {place / file.path}")
            bars.update(tasks[file], completed=done, total=total)

        return fetch_files(this, place, progress, force=force)


def _show(this: Entry, verdict: Verdict, place: Path) -> None:
    file = verdict.path.relative_to(place) if verdict.path.is_relative_to(place) else verdict.path
    line(f"{this.name}: {file}: {verdict.detail}", style=COLOURS.get(verdict.state))
