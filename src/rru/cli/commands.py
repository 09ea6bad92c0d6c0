"""Assemble all commands into the application."""

import inspect
import re
from pathlib import Path
from typing import Annotated

import typer

import rru
from rru.cli import data
from rru.cli.console import plain_errors
from rru.cli.demo import demo
from rru.cli.forecast import forecast
from rru.cli.inference import classify, compose, export, write
from rru.cli.plan import plan, run
from rru.cli.report import report
from rru.cli.runs import runs
from rru.cli.stream import stream
from rru.cli.train import evaluate, resume, train
from rru.cli.tune import tune
from rru.settings import user_cells

app = typer.Typer(
    name="rru",
    help="The Residual Recurrent Unit: train it, compare it with GRU and LSTM, and use what was trained.",
    epilog="New here? `rru demo` trains all four cells on Bach chorales in minutes and needs no download.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
GROUPS = {
    "Train": (demo, train, resume, evaluate, tune),
    "Look at results": (runs, report),
    "Reproduce the paper": (plan, run),
    "Use a trained model": (forecast, compose, write, classify, stream, export),
}
for group, commands in GROUPS.items():
    for command in commands:
        # A docstring's lines are joined: typer would keep its line breaks.
        text = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command) or "")
        app.command(rich_help_panel=group, help=text)(command)
app.add_typer(data.app, name="data", rich_help_panel="Data")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rru {rru.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    cells: Annotated[
        Path | None,
        typer.Option(
            envvar=user_cells.VARIABLE,
            metavar="FILE",
            help="A Python file that registers your own cells. It is executed.",
        ),
    ] = None,
) -> None:
    with plain_errors():
        user_cells.load(cells)
