"""The help of commands: what each does, examples of it, and its options by group."""

import inspect
import shlex
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

OPTIONS, COMMANDS = "Options", "Commands"
MAX_NAMES = 30  # characters of an option and its value beside which its help begins


class _Helpful:
    """Help that begins with examples, as do errors about a missing argument."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; raise errors that say what to type."""
        given = list(args)  # parsing takes them away
        try:
            parsed: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        except Exception as error:
            _advise(self, ctx, error, given)
            raise
        return parsed

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        print_help(self, ctx)


class HelpfulCommand(_Helpful, typer.core.TyperCommand):
    """A command whose help begins with examples."""


class HelpfulGroup(_Helpful, typer.core.TyperGroup):
    """A group of commands whose help begins with examples."""


def _advise(command: Any, ctx: Any, error: Exception, given: Sequence[str]) -> None:
    """Add an example to an error about a missing argument; let one about an unknown option suggest only listed ones.

    If the unknown option is a setting, and the command can change settings, say how.
    """
    if isinstance(error, typer.BadParameter) and type(error).__name__ == "MissingParameter":
        _, examples, _ = parts_of(command.help or "")
        if examples:
            error.message = f"For example: {examples[0]}"
    if possible := getattr(error, "possibilities", None):
        params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
        known = {name for param in params for name in (*param.opts, *param.secondary_opts)}
        error.possibilities = [name for name in possible if name in known]  # type: ignore[attr-defined]
    option, sets = getattr(error, "option_name", None), any("--set" in param.opts for param in command.get_params(ctx))
    if option and sets and (change := _as_setting(option, given)):
        error.message = f"No such option: {option}. It is a setting: {change}"  # type: ignore[attr-defined]
        error.possibilities = []  # type: ignore[attr-defined]


def _as_setting(option: str, given: Sequence[str]) -> str | None:
    """Return how to change the setting that an unknown option names, with the value it was given; None if none has it.

    **Arguments:** `option`: such as `--epochs`; `given`: all arguments of the command.
    """
    from rru.settings.presets import all_settings  # imports torch

    key = option.lstrip("-").replace("-", "_")
    names = [name for name in all_settings() if key in (name, name.partition(".")[2])]
    if not names:
        return None
    words = [*given, ""]
    values = [
        word.partition("=")[2] or words[at + 1] for at, word in enumerate(given) if word.partition("=")[0] == option
    ]
    value = next((value for value in values if value and not value.startswith("--")), "VALUE")
    return " or ".join(f"--set {shlex.quote(f'{key if len(names) == 1 else name}={value}')}" for name in names)


def parts_of(docstring: str) -> tuple[str, list[str], list[str]]:
    """Return what a docstring has: its first paragraph, the examples, which are lines of commands, and what is left."""
    first, *others = inspect.cleandoc(docstring).split("\n\n")
    commands = [part for part in others if part.lstrip().startswith("rru ")]
    examples = [line.strip() for part in commands for line in part.splitlines()]
    return _joined(first), examples, [_joined(part) for part in others if part not in commands]


def _joined(text: str) -> str:
    return " ".join(text.split())


def print_help(command: Any, ctx: Any) -> None:
    """Print the help of a command or a group of commands."""
    console = Console(highlight=False, emoji=False, markup=False)
    first, examples, others = parts_of(command.help or "")
    shown = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    arguments = [param for param in shown if param.param_type_name == "argument"]
    words = [_value(param) if param.required else f"[{_value(param)}]" for param in arguments]
    below = ["COMMAND"] if hasattr(command, "commands") else []
    console.print(f"Usage: {ctx.command_path} {' '.join([*words, *below, '[OPTIONS]'])}", soft_wrap=True)
    _paragraph(console, first)
    _lines(console, "Examples", examples)
    for text in others:
        _paragraph(console, text)
    _table(console, "Arguments", [(_value(param), _help(param)) for param in arguments])
    _commands(console, command, ctx)
    groups: dict[str, list[tuple[str, str]]] = {OPTIONS: []}
    for param in shown:
        if param not in arguments:
            groups.setdefault(getattr(param, "rich_help_panel", None) or OPTIONS, []).append(_row(param))
    for name, rows in groups.items():
        _table(console, name, rows)
    if command.epilog:
        _paragraph(console, command.epilog)


def _commands(console: Console, group: Any, ctx: Any) -> None:
    panels: dict[str, list[tuple[str, str]]] = {}
    for name, each in getattr(group, "commands", {}).items():
        if not each.hidden:
            panel = getattr(each, "rich_help_panel", None)
            heading = panel if isinstance(panel, str) else COMMANDS
            panels.setdefault(heading, []).append((name, parts_of(each.help or "")[0]))
    for heading, rows in panels.items():
        _table(console, heading, rows)


def _row(param: Any) -> tuple[str, str]:
    """Return the names of an option with its value, and its help."""
    shortest_last = sorted(param.opts, key=len, reverse=True)
    value = "" if param.is_flag or getattr(param, "count", False) else f" {_value(param)}"
    return ", ".join([*shortest_last, *param.secondary_opts]) + value, _help(param)


def _value(param: Any) -> str:
    """Return what stands for the value of a parameter, such as FOLDER."""
    return str(param.metavar or param.name.upper().replace("_", "-"))


def _help(param: Any) -> str:
    """Return the help of a parameter with its default, if it has one that the help does not name."""
    text = (param.help or "").replace("\\[", "[")
    default = param.default
    says = isinstance(default, str | int | float | PurePath) and not isinstance(default, bool) and str(default)
    return text if not says or "efault" in text else f"{text} Default: {default}."


def _paragraph(console: Console, text: str) -> None:
    console.print()
    console.print(text.replace("\\[", "["))


def _lines(console: Console, heading: str, lines: Sequence[str]) -> None:
    if lines:
        console.print()
        console.print(f"{heading}:", style="bold")
        for line in lines:
            console.print(f"  {line}", soft_wrap=True)


def _table(console: Console, heading: str, rows: Iterable[tuple[str, str]]) -> None:
    """Print names and texts side by side; a long name has its text below."""
    rows = list(rows)
    if not rows:
        return
    console.print()
    console.print(f"{heading}:", style="bold")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=min(max(len(name) for name, _ in rows), MAX_NAMES))
    table.add_column(ratio=1)
    for name, text in rows:
        table.add_row(Text(name, style="cyan"), Text(text))
    console.print(Padding(table, (0, 0, 0, 2)))
