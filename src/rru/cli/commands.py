"""Assemble all commands into the application. The module of a command is imported when the command runs."""

import ast
import importlib
import inspect
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

import rru
from rru.cli import interrupts
from rru.cli.help import HelpfulCommand, HelpfulGroup
from rru.extras import extra

MODULES = {
    "Train": {"demo": "demo", "train": "train", "tune": "tune", "evaluate": "train"},
    "Use a trained model": {
        "use": "use",
        "write": "inference",
        "compose": "inference",
        "forecast": "forecast",
        "backtest": "backtest",
        "classify": "inference",
        "stream": "stream",
        "export": "inference",
        "verify": "verify",
    },
    "Look at results": {"runs": "runs", "report": "report"},
    "Compare cells, reproduce the paper": {"run": "plan"},
    "Data": {"data": "data"},
}
"""The module of each command, by heading."""
OLD_NAMES = {"resume": ("train",), "plan": ("run", "--dry-run")}
"""What commands are called now, by the names they had before 0.2. They go with the next release."""

HELP = """The Residual Recurrent Unit: train it, compare it with GRU and LSTM, and use what was trained.

    rru demo                            # four cells learn Bach chorales in minutes, without a download
    rru train novel.txt                 # learn your own text, MIDI files or table
    rru use latest                      # write, compose, forecast or classify with the last run
    rru run compare --data novel.txt    # compare all cells on your own data
"""

app = typer.Typer(
    name="rru",
    help=HELP,
    cls=HelpfulGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Deferred(typer.core.TyperCommand):
    """Stand for a command in the list of commands; import and run it when it is called."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        """Return the context of the command itself."""
        name, *first = OLD_NAMES.get(str(self.name), (str(self.name),))
        command = loaded(name)
        interrupts.interrupt()
        return command.make_context(info_name, [*first, *args], *rest, **extra)


def loaded(name: str) -> Any:
    """Import the module of a command and return the command, or the group of commands."""
    (module,) = (modules[name] for modules in MODULES.values() if name in modules)
    with extra("train"):
        imported = importlib.import_module(f"rru.cli.{module}")
    if hasattr(imported, "app"):
        return typer.main.get_command(imported.app)
    command = getattr(imported, name)
    alone = typer.Typer(add_completion=False)
    alone.command(name, cls=HelpfulCommand, help=inspect.getdoc(command))(command)
    return typer.main.get_command(alone)


def _docstrings(module: str) -> dict[str, str]:
    """Return the docstrings of a module's functions, by name, without importing it."""
    tree = ast.parse(resources.files("rru.cli").joinpath(f"{module}.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {function.name: ast.get_docstring(function) or "" for function in functions}


for heading, modules in MODULES.items():
    for name, module in modules.items():
        app.command(name, cls=Deferred, rich_help_panel=heading, help=_docstrings(module)[name])(lambda: None)
for name in OLD_NAMES:
    app.command(name, cls=Deferred, hidden=True)(lambda: None)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rru {rru.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    code: Annotated[
        Path | None,
        typer.Option(
            envvar=["RRU_CODE", "RRU_CELLS"],  # `user_cells.VARIABLE`, whose module imports torch, and its old name
            metavar="FILE",
            help="A Python file that registers your own cells or kinds of data. It is executed.",
        ),
    ] = None,
    cells: Annotated[Path | None, typer.Option(hidden=True, help="The old name of --code.")] = None,
) -> None:
    if (file := code or cells) is not None:
        from rru.cli.console import plain_errors
        from rru.settings import user_cells

        with plain_errors():
            user_cells.load(file)
