"""Printing for commands: results to standard output, progress and errors to standard error."""

import os
import shlex
import unicodedata
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import Progress, ProgressColumn

from rru.data import DataError
from rru.data.spelling import command_spelling
from rru.extras import MissingExtraError
from rru.files import FileError
from rru.settings import user_cells

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


@contextmanager
def plain_errors() -> Iterator[None]:
    """On an error, print only its message and exit; after Ctrl-C, exit with 130.

    The exit code is 2 if a value that the user gave is wrong (ValueError), 1 if something else is, such as a file.
    """
    try:
        with command_spelling():
            yield
    except KeyboardInterrupt:
        err.print("stopped", style="red")
        raise typer.Exit(130) from None
    except (DataError, FileError, MissingExtraError, OSError) as error:
        fail(str(error))
        raise typer.Exit(1) from None
    except ValueError as error:
        fail(str(error))
        raise typer.Exit(2) from None
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):  # torch's wording
            raise
        fail("not enough memory for this model and its batches" + (f" ({error})" if str(error) else ""))
        raise typer.Exit(1) from None


def fail(message: str) -> None:
    """Print an error; the command continues."""
    err.print(f"error: {shown(message)}", style="red", markup=False, soft_wrap=True)


def warn_damaged(problem: str) -> None:
    """Print what is wrong with a file, on one line."""
    text = problem if problem.startswith("damaged: ") else f"damaged: {problem}"
    warn(shown(text, keep=""))


def warn(message: str) -> None:
    """Print a warning."""
    err.print(shown(message), style="yellow", markup=False, soft_wrap=True)


class Bars(Progress):
    """Progress bars on standard error that are removed at the end. They are hidden if that is not a terminal."""

    shown = 0
    """The number of bars on the screen now."""

    def __init__(self, *columns: ProgressColumn) -> None:
        super().__init__(
            *columns,
            console=err,
            disable=not err.is_terminal,
            transient=True,
            expand=True,
            redirect_stdout=False,  # rich would wrap printed text and send it to standard error
        )
        self._counted = False

    def start(self) -> None:
        """Show the bars."""
        super().start()
        if not self.disable and not self._counted:
            Bars.shown, self._counted = Bars.shown + 1, True

    def stop(self) -> None:
        """Remove the bars."""
        super().stop()
        if self._counted:
            Bars.shown, self._counted = Bars.shown - 1, False


def line(text: str, style: str | None = None) -> None:
    """Print one line of output. It is never wrapped, so paths can be copied and pipes read whole lines."""
    console = err if Bars.shown and out.is_terminal else out  # the console that draws bars prints above them
    console.print(shown(text), style=style, markup=False, soft_wrap=True)


def prose(text: str) -> None:
    """Print a sentence or two, wrapped between words in a terminal. For text without paths."""
    out.print(shown(text), markup=False, soft_wrap=not out.is_terminal)


def columns(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Align rows in columns. The last column is not padded, so a path stays whole.

    **Arguments:** `rows`: all of the same length; `right`: indices of the columns to align to the right.
    """
    widths = [max(map(len, parts)) for parts in zip(*rows, strict=True)]
    lines = []
    for *parts, last in rows:
        padded = [
            part.rjust(width) if at in right else part.ljust(width)
            for at, (part, width) in enumerate(zip(parts, widths, strict=False))
        ]
        lines.append("  ".join([*padded, last]))
    return lines


def shown(text: str, keep: str = "\n\t") -> str:
    """Show control characters such as escape codes as `\\x1b`: the text may come from someone else's file.

    **Arguments:** `keep`: control characters to leave as they are; pass an empty string for a name or a single line.
    """
    return "".join(
        letter if letter in keep or not unicodedata.category(letter).startswith("C") else ascii(letter)[1:-1]
        for letter in text
    )


def command(*words: str) -> str:
    """Return a command to type, with the file of the user's own code if there is one."""
    code = os.environ.get(user_cells.VARIABLE)
    return shlex.join(["rru", *(["--code", code] if code else []), *words])


def next_command(*words: str) -> None:
    """Print the command that a user is likely to want next; to standard error, since it is no part of the result."""
    next_step(command(*words))


def next_step(text: str) -> None:
    """Print what a user is likely to want to do next."""
    err.print(f"Next: {shown(text, keep='')}", style="dim", markup=False, soft_wrap=True)


def warn_stopping() -> None:
    """Tell the user what happens after Ctrl-C; for `stop_on_signals`."""
    warn("stopping after the current step or validation; press Ctrl-C again to stop at once")
