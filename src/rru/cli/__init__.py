"""The command `rru`."""

from pathlib import Path
from typing import Annotated

import typer

import rru
from rru.cli import data
from rru.cli.console import plain_errors
from rru.cli.demo import demo
from rru.cli.plan import plan, run
from rru.cli.report import report
from rru.cli.train import evaluate, resume, runs, train
from rru.cli.tune import tune
from rru.cli.using import classify, compose, export, write
from rru.experiments import own

app = typer.Typer(
    name="rru",
    help="The Residual Recurrent Unit: train it and its rivals, and look after their data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
for command in (demo, train, resume, evaluate, runs, plan, run, report, tune, compose, write, classify, export):
    app.command()(command)


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
        typer.Option(envvar=own.VARIABLE, help="A Python file that registers cells of your own; it is run."),
    ] = None,
) -> None:
    with plain_errors():
        own.load(cells)


def main() -> None:
    """Runs the command line."""
    app(prog_name="rru")
