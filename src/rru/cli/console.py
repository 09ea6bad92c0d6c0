"""Where commands print: results to standard output, progress and errors to standard error."""

import unicodedata
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from rru.data import DataError
from rru.training import RunError

out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Ends the command with the error's message alone, and exit code 1; 130 after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        err.print("stopped", style="red")
        raise typer.Exit(130) from None
    except (DataError, RunError, ValueError, OSError) as error:
        _fail(str(error))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):  # as torch says it
            raise
        _fail(f"not enough memory for this model and its batches ({error})")


def _fail(message: str) -> NoReturn:
    err.print(f"error: {message}", style="red", markup=False, soft_wrap=True)
    raise typer.Exit(1) from None


def columns(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Rows as lines, their parts below one another; the last part is left as it is, so that a path stays whole.

    **Arguments:** `rows`, equally long; `right`: which parts, counted from 0, have their ends below one another.
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


def shown(text: str) -> str:
    """Text without what would steer a terminal, such as escape codes: it may come from a file of someone else's."""
    return "".join(letter for letter in text if letter in "\n\t" or not unicodedata.category(letter).startswith("C"))


def line(text: str, style: str | None = None) -> None:
    """One line of output, left whole for whoever reads it through a pipe."""
    out.print(text, style=style, markup=False, soft_wrap=True)


def download_bars() -> Progress:
    """Bars for downloads; nothing where standard error is not a terminal."""
    numbers = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=None), *numbers)
    return Progress(*columns, console=err, disable=not err.is_terminal, transient=True, expand=True)


def file_bar() -> Progress:
    """A bar that counts files; nothing where standard error is not a terminal."""
    columns = (BarColumn(), TextColumn("{task.completed}/{task.total} {task.description}", markup=False))
    return Progress(*columns, console=err, disable=not err.is_terminal, transient=True)


def amount(size: int | None) -> str:
    """Bytes as people write them."""
    if size is None:
        return "not stated"
    number = float(size)
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
