"""Tables in memory are kept as files in the cache folder; errors about these name the table in memory."""

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rru.data.errors import DataError
from rru.data.folder import cache_dir

NAME = Path("the DataFrame")
"""Stands for the file of a table in messages."""


def tables_folder() -> Path:
    """Return the folder of the files."""
    return cache_dir().absolute() / "tables"


@contextmanager
def frame_errors() -> Iterator[None]:
    """In errors about the file of a table in memory, name the table, and its row instead of the line."""
    folder = tables_folder()
    try:
        yield
    except DataError as error:
        if folder not in Path(error.file).absolute().parents:
            raise
        raise DataError(NAME, _named(error.reason, folder), _row(Path(error.file), error.place)) from error
    except ValueError as error:
        if type(error) is not ValueError or str(folder) not in str(error):
            raise
        raise ValueError(_named(str(error), folder)) from error


def _named(text: str, folder: Path) -> str:
    """Return a text with the name of the table in place of the paths of files in a folder."""
    return re.sub(rf"{re.escape(str(folder))}.*?\.csv", str(NAME), text)


def _row(path: Path, place: str) -> str:
    """Return the row, counted from 1, that a line of a file is in; a cell may have several lines."""
    if not (match := re.fullmatch(r"line (\d+)", place)):
        return place
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        rows = next((row for row, _ in enumerate(reader) if reader.line_num >= int(match[1])), 0)
    return f"row {rows}"
