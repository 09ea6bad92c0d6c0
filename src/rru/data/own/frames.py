"""Tables in memory: DataFrames of pandas and polars, and dicts of columns. Neither package is needed, nor imported."""

import csv
import hashlib
import io
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from rru.data.errors import DataError
from rru.data.own.in_memory import NAME, tables_folder
from rru.data.own.parquet import STRINGS, Cells
from rru.data.own.table import MAX_CELLS, MAX_COLUMNS, Column, Table, read_table
from rru.files import make_folder, write_file

Place = Path | str
Frame = Any
"""A DataFrame, or a dict of columns."""
MAX_EXACT = 1e15  # whole numbers below are written without a point, as labels are


def is_frame(source: object) -> TypeGuard[Frame]:
    """Return whether something is a table in memory."""
    named = hasattr(source, "columns") and hasattr(source, "__getitem__")
    return isinstance(source, Mapping) or (named and not isinstance(source, type))


def table_from(source: Frame | Place, *, least: int = 2, index: str = "time") -> Table:
    """Read a table from a file, see `read_table`, or from memory.

    **Arguments:**

    - `source`: a path, or a DataFrame or dict of columns.
    - `least`: the number of rows that it must have.
    - `index`: the name to give to a pandas index of times that has none. An index with a name is a column, too.
    """
    if not is_frame(source):
        return read_table(source, least=least)
    columns = {str(name): np.asarray(values) for name, values in _columns(source, index).items()}
    rows = {len(values) for values in columns.values()}
    if not 0 < len(columns) <= MAX_COLUMNS or len(rows) > 1:
        sizes = f"{len(columns):,} columns of {sorted(rows)[:3]} rows"
        raise DataError(NAME, f"must have from 1 to {MAX_COLUMNS:,} columns, all equally long; got {sizes}")
    (count,) = rows
    if count < least or count * len(columns) > MAX_CELLS:
        most = MAX_CELLS // len(columns)
        raise DataError(NAME, f"must have from {least} to {most:,} rows, got {count:,}")
    lines = np.arange(1, count + 1)
    cells = {name: _cells(name, values) for name, values in columns.items()}
    return Table(NAME, {name: _Column(NAME, name, each, lines) for name, each in cells.items()})


class _Column(Column):
    """A column that has rows instead of lines."""

    def error(self, row: int, reason: str) -> DataError:
        """Return the error to raise about a row."""
        return DataError(self.file, reason, f"row {self.lines[row]}")


def _columns(frame: Frame, index: str) -> Mapping[object, Any]:
    """Return the columns of a frame by name, with the index of a pandas DataFrame if it says something."""
    if isinstance(frame, Mapping):
        return frame
    if (rows := getattr(frame, "index", None)) is not None and hasattr(frame, "reset_index"):
        if rows.name is not None:
            frame = frame.reset_index()
        elif getattr(rows, "dtype", np.dtype(int)).kind == "M":
            frame = frame.reset_index(names=index)
    names = list(frame.columns)
    if len({str(name) for name in names}) < len(names):
        raise DataError(NAME, f"must have columns of different names, got {', '.join(map(str, names[:12]))}")
    return {name: frame[name].to_numpy() for name in names}


def _cells(name: str, values: Cells) -> Cells:
    """Return a column as floats, datetimes or strings; raise DataError if it is something else."""
    if values.ndim != 1 or values.dtype.kind not in "biufMUOT":
        what = f"{values.dtype} of {values.ndim} dimensions"
        raise DataError(NAME, f"column {name!r} must have numbers, times or texts, has {what}")
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    if values.dtype.kind == "M":
        return values.astype("datetime64[us]")
    cells = [None if _is_missing(value) else value for value in values.tolist()]
    known = [value for value in cells if value is not None]
    if known and all(isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in known):
        return np.array([np.nan if value is None else float(value) for value in cells])
    return np.array(["" if value is None else _text(name, value) for value in cells], STRINGS)


def _is_missing(value: object) -> bool:
    """Return whether a cell is None, NaN, or one of the values that pandas has for missing ones."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, np.ndarray | list | tuple | dict | bytes):
        raise DataError(NAME, f"column {name!r} must have numbers, times or texts, has a {type(value).__name__}")
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value).strip()


def saved(frame: Frame, name: str | None = None) -> Path:
    """Write a table in memory to a CSV file in the cache folder, and return its path.

    **Arguments:** `frame`: the table; `name`: of the file, in a folder named by its content; else the file is so named.
    """
    if name is not None and (not isinstance(name, str) or not re.fullmatch(r"\w[\w .-]{0,59}", name)):
        raise ValueError(f"name must be up to 60 letters, digits, spaces, dots, - and _; got {name!r}")
    table, text = table_from(frame), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.names)
    writer.writerows(zip(*(_written(column) for column in table), strict=True))
    content = text.getvalue().encode()
    key = hashlib.sha256(content).hexdigest()[:12]
    path = tables_folder() / (f"table-{key}.csv" if name is None else f"{key}/{name}.csv")
    make_folder(path.parent)
    if not path.exists():
        write_file(path, content)
    return path


def _written(column: Column) -> list[str]:
    """Return the cells of a column as they are written to a file: they read back as the same values."""
    if column.cells.dtype.kind != "f":
        return column.texts()
    numbers = zip(column.cells.tolist(), column.missing.tolist(), strict=True)
    return ["" if missing else _number(value) for value, missing in numbers]


def _number(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() and abs(value) < MAX_EXACT else repr(value)
