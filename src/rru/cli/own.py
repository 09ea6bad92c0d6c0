"""The options that describe a user's own data, shared by commands; and the lines that say what was understood."""

import copy
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rru.cli.console import line, warn
from rru.cli.options import spread
from rru.data import OwnData, from_path
from rru.data.own.detect import set_or_path
from rru.kinds import KINDS, reading_options
from rru.nn.options import Declared

PANEL = "Your own data"
TEXT, MIDI = "Your own text", "Your own MIDI files"
SERIES, LABELS = "Your own series to forecast, and other tables", "Your own texts or sequences with labels"
PANELS = {"words": TEXT, "music": MIDI, "series": SERIES, "texts": LABELS, "sequences": LABELS}
"""The heading of the options of a kind of data; an option of several kinds is below the first."""
_BY = Annotated[
    str | None, typer.Option(help="Read a text by characters (default), words or bytes.", rich_help_panel=TEXT)
]
_SPLIT = "A file or folder to {} on. Default: a tenth of the data."
_VALID = Annotated[
    Path | None,
    typer.Option("--valid", "--validation", metavar="PATH", help=_SPLIT.format("validate"), rich_help_panel=PANEL),
]
_TEST = Annotated[Path | None, typer.Option(metavar="PATH", help=_SPLIT.format("test"), rich_help_panel=PANEL)]
_TRANSPOSE = Annotated[
    int | None,
    typer.Option(min=0, max=87, help="Also train on pieces moved by up to this many semitones.", rich_help_panel=MIDI),
]


class Given:
    """The options of own data that a command was given, by name.

    **Arguments:** `options`: their values; None means not given.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        self.options = {name: value for name, value in options.items() if value is not None and name != "transpose"}
        transpose = options.get("transpose")
        self.changes = [] if transpose is None else [f"task.transposition={transpose}"]

    @property
    def arguments(self) -> list[str]:
        """The options as a command's arguments."""
        words: list[str] = []
        for name, value in self.options.items():
            option = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{option}" if value else f"--no-{option}")
            else:
                words += [f"--{option}", str(value)]
        return words

    def task(self, name: str) -> str | OwnData:
        """Return the task of a command: the name of a data set, or the own data in a place, which is printed."""
        task = set_or_path(name)
        if isinstance(task, Path):
            return shown_data(task, self.options)
        if Path(name).expanduser().exists():
            warn(f"using the data set {name}; write ./{name} to use the file or folder of that name")
        self.refuse(name)
        return task

    def refuse(self, name: str) -> None:
        """Raise ValueError if an option was given that only own data has."""
        for option in self.options:
            raise ValueError(f"--{option.replace('_', '-')} is only for your own data, not for {name}")


def with_own_data(command: Callable[..., None], *, hidden: bool = False) -> Callable[..., None]:
    """Add the options of own data to a command, which gets them as its argument `given`.

    **Arguments:** `command`: the command; `hidden`: whether its help leaves them out.
    """
    extra = {"valid": _VALID, "test": _TEST, "by": _BY, "transpose": _TRANSPOSE} | {
        name: _option(name, declared) for name, declared in reading_options().items()
    }
    if hidden:
        extra = {name: _hidden(hint) for name, hint in extra.items()}
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [inspect.Parameter(name, keyword, default=None, annotation=hint) for name, hint in extra.items()]
    return spread(command, "given", options, lambda **values: Given(values))


def _option(name: str, declared: Declared) -> object:
    """Return the annotation of a command's option, from the declaration of a setting."""
    kind = next(kind for kind in declared.kinds if kind is not type(None))
    text = declared.option.about[0].upper() + declared.option.about[1:]
    choices = f": {' or '.join(declared.option.choices)}" if declared.option.choices else ""
    return Annotated[kind | None, typer.Option(help=f"{text}{choices}.", rich_help_panel=_panel(name))]


def _panel(option: str) -> str:
    """Return the heading of an option: that of the first kind of data that has it."""
    kinds = [name for name in (*PANELS, *KINDS) if option in KINDS[name].declared_options]
    return PANELS.get(kinds[0], f"Your own {KINDS[kinds[0]].noun}")


def _hidden(hint: Any) -> object:
    """Return the annotation of an option that the help leaves out."""
    option = copy.copy(hint.__metadata__[0])
    option.hidden = True
    return Annotated[hint.__origin__, option]


def shown_data(path: Path | str, options: Mapping[str, Any]) -> OwnData:
    """Read own data, and print what was understood of it."""
    data = from_path(path, **options)
    line(data.summary)
    for note in data.notes:
        warn(f"  {note}")
    return data
