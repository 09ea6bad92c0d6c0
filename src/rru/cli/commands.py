"""Assemble all commands into the application. The module of a command is imported when the command runs."""

import ast
import importlib
import inspect
import re
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

import rru
from rru.cli import interrupts
from rru.extras import extra

MODULES = {
    "Train": {"demo": "demo", "train": "train", "resume": "train", "evaluate": "train", "tune": "tune"},
    "Look at results": {"runs": "runs", "report": "report"},
    "Reproduce the paper": {"plan": "plan", "run": "plan"},
    "Use a trained model": {
        "forecast": "forecast",
        "compose": "inference",
        "write": "inference",
        "classify": "inference",
        "stream": "stream",
        "export": "inference",
    },
    "Data": {"data": "data"},
}
"""The module of each command, by heading."""

app = typer.Typer(
    name="rru",
    help="The Residual Recurrent Unit: train it, compare it with GRU and LSTM, and use what was trained.",
    epilog="New here? `rru demo` trains all four cells on Bach chorales in minutes and needs no download.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Deferred(typer.core.TyperCommand):
    """Stand for a command in the list of commands; import and run it when it is called."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        """Return the context of the command itself."""
        command = loaded(str(self.name))
        interrupts.interrupt()
        return command.make_context(info_name, args, *rest, **extra)


def loaded(name: str) -> Any:
    """Import the module of a command and return the command, or the group of commands."""
    (module,) = (modules[name] for modules in MODULES.values() if name in modules)
    with extra("train"):
        imported = importlib.import_module(f"rru.cli.{module}")
    if hasattr(imported, "app"):
        return typer.main.get_command(imported.app)
    command = getattr(imported, name)
    alone = typer.Typer(add_completion=False)
    alone.command(name, help=_joined(inspect.getdoc(command) or ""))(command)
    return typer.main.get_command(alone)


def _docstrings(module: str) -> dict[str, str]:
    """Return the docstrings of a module's functions, by name, without importing it."""
    tree = ast.parse(resources.files("rru.cli").joinpath(f"{module}.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {function.name: ast.get_docstring(function) or "" for function in functions}


def _joined(text: str) -> str:
    """Join the lines of a docstring's paragraphs: typer would keep the line breaks."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


for heading, modules in MODULES.items():
    for name, module in modules.items():
        text = _joined(_docstrings(module)[name])
        app.command(name, cls=Deferred, rich_help_panel=heading, help=text)(lambda: None)


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
            envvar="RRU_CELLS",  # `user_cells.VARIABLE`, whose module imports torch
            metavar="FILE",
            help="A Python file that registers your own cells. It is executed.",
        ),
    ] = None,
) -> None:
    if cells is not None:
        from rru.cli.console import plain_errors
        from rru.settings import user_cells

        with plain_errors():
            user_cells.load(cells)
