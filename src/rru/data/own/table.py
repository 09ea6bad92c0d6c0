"""Read tables: CSV and TSV files, and Parquet where pyarrow is installed.

```python
table = read_table("energy.csv")
table.names, len(table), table["load"].kind
table["load"].numbers()  # (rows,), NaN where missing
```
"""

import csv
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own import parquet, times
from rru.data.own.parquet import STRINGS, Cells
from rru.data.streams import checked_size, data_errors
from rru.suggestions import did_you_mean

FILE_LIMIT = 4 << 30  # bytes
LINE_LIMIT = 4 << 20  # bytes
MAX_COLUMNS = 4096
MAX_CELLS = 60_000_000
CHUNK_ROWS = 20_000
SAMPLE_LINES, SAMPLE_SIZE = 50, 1 << 16  # lines and about as many characters to find the delimiter in
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
MISSING = frozenset(("", "na", "n/a", "nan", "<na>", "null", "none", "nil", "-", "--", "?", ".", "inf", "-inf"))
MAX_NUMBER = 1e30  # of a number: its scaled value must fit float32
MAX_CATEGORIES = 1000
MAX_CATEGORY = 100  # characters


@dataclass(frozen=True)
class Column:
    """A column of a table.

    **Arguments:**

    - `file`: the file of the table.
    - `name`: the column's name.
    - `cells`: (rows,), strings without spaces around them; from Parquet also floats or datetimes.
    - `lines`: (rows,), the line of each row, for messages.
    - `decimal_comma`: whether numbers are written as 1,5.
    """

    file: Path
    name: str
    cells: Cells
    lines: NDArray[np.int64]
    decimal_comma: bool = False

    @cached_property
    def missing(self) -> NDArray[np.bool_]:
        """(rows,), where a cell is empty or says that its value is missing, such as NA."""
        if self.cells.dtype.kind == "f":
            return np.asarray(~np.isfinite(self.cells))
        if self.cells.dtype.kind == "M":
            return np.asarray(np.isnat(self.cells))
        return np.fromiter((cell.lower() in MISSING for cell in self.cells.tolist()), np.bool_, len(self.cells))

    @cached_property
    def kind(self) -> str:
        """`number`, `time`, `category` (few different texts), `text`, or `empty` if every cell is missing."""
        if self.missing.all():
            return "empty"
        if self._as_numbers[1] is None:
            return "number"
        if self.cells.dtype.kind == "M":
            return "time"
        known = [text for text in self.texts() if text]
        if times.is_time(known[0]) and times.parse(known)[1] is None:
            return "time"
        different = set(known)
        few = len(different) <= min(MAX_CATEGORIES, max(len(self.cells) // 2, 20))
        return "category" if few and max(map(len, different)) <= MAX_CATEGORY else "text"

    def numbers(self) -> NDArray[np.float64]:
        """Return the cells (rows,) as numbers, NaN where missing; raise DataError at the first that is unusable."""
        numbers, wrong = self._as_numbers
        if wrong is not None:
            raise self.error(wrong, f"column {self.name!r} must have numbers, got {self._shown(wrong)}")
        if (large := np.abs(numbers) > MAX_NUMBER).any():
            row, bounds = int(large.argmax()), f"-{MAX_NUMBER:g} to {MAX_NUMBER:g}"
            raise self.error(row, f"column {self.name!r} must have numbers from {bounds}, got {self._shown(row)}")
        return numbers

    def times(self) -> NDArray[np.datetime64]:
        """Return the cells (rows,) as UTC times in microseconds; raise DataError at the first that is not one."""
        moments, wrong = self._as_times
        if wrong is not None:
            reason = f"column {self.name!r} must have times such as {times.EXAMPLES}, got {self._shown(wrong)}"
            raise self.error(wrong, reason)
        return moments

    def texts(self) -> list[str]:
        """Return the cells as texts, empty where missing."""
        text = "{:.15g}".format if self.cells.dtype.kind == "f" else str
        cells = zip(self.cells.tolist(), self.missing.tolist(), strict=True)
        return ["" if missing else text(cell) for cell, missing in cells]

    def error(self, row: int, reason: str) -> DataError:
        """Return the error to raise about a row."""
        return DataError(self.file, reason, f"line {self.lines[row]}")

    def _shown(self, row: int) -> str:
        text = str(self.cells[row])
        return "an empty cell" if not text else repr(text if len(text) <= 40 else f"{text[:40]}...")

    @cached_property
    def _as_numbers(self) -> tuple[NDArray[np.float64], int | None]:
        """The cells as numbers, and the first row that is none."""
        if self.cells.dtype.kind == "f":
            return np.where(self.missing, np.nan, self.cells), None
        if self.cells.dtype.kind == "M":
            return np.empty(0), 0
        texts = [text or "nan" for text in self.texts()]
        if self.decimal_comma:
            texts = [text.replace(",", ".") if text.count(",") == 1 and "." not in text else text for text in texts]
        try:
            return np.fromiter(map(float, texts), np.float64, len(texts)), None
        except ValueError:
            return np.empty(0), next(row for row, text in enumerate(texts) if not _is_number(text))

    @cached_property
    def _as_times(self) -> tuple[NDArray[np.datetime64], int | None]:
        """The cells as times, and the first row that is none."""
        if self.missing.any():
            return np.empty(0, "datetime64[us]"), int(self.missing.argmax())
        if self.cells.dtype.kind == "M":
            return self.cells.astype("datetime64[us]"), None
        return times.parse(self.texts())


@dataclass(frozen=True)
class Table:
    """A table: its file, and its columns by name, all of the same length."""

    path: Path
    columns: dict[str, Column]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self)).cells)

    def __getitem__(self, name: str) -> Column:
        """Return a column; raise DataError, which lists all names, if there is none."""
        if name not in self.columns:
            hint = did_you_mean(name, self.names) or f"; its columns are {listed(self.names, 20)}"
            raise DataError(self.path, f"has no column {name!r}{hint}")
        return self.columns[name]

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns.values())


def read_table(path: Path | str, *, least: int = 2) -> Table:
    """Read a CSV or TSV file, or a Parquet file if pyarrow is installed.

    The first line must have the names of the columns. The delimiter (comma, semicolon, tab or bar) is found from the
    first lines. With semicolons, numbers may have decimal commas. Raises DataError if the file is not a table, has
    fewer than `least` rows or is too large.
    """
    path = Path(path)
    size = checked_size(path, FILE_LIMIT)
    with data_errors(path), path.open("rb") as file:
        if file.read(4) == parquet.MAGIC:
            names, cells = parquet.read(path, MAX_COLUMNS, MAX_CELLS)
            lines, comma = np.arange(1, len(cells[0]) + 1), False
        else:
            file.seek(0)
            delimiter = _delimiter(path, file)
            file.seek(0)
            names, cells, lines = _read(path, file, delimiter)
            comma = delimiter == ";"
    if len(lines) < least:
        rows = "two rows" if least == 2 else "one row"
        raise DataError(path, f"must have at least {rows} below its column names, got {len(lines)} ({size} bytes)")
    columns = {name: Column(path, name, some, lines, comma) for name, some in zip(names, cells, strict=True)}
    return Table(path, columns)


def _lines(path: Path, file: IO[bytes]) -> Iterator[str]:
    """Yield the lines of a text file, decoded; raise DataError if it is not text."""
    for number, line in enumerate(iter(lambda: file.readline(LINE_LIMIT + 1), b""), 1):
        if number == 1:
            if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError(path, "is UTF-16; save it as UTF-8")
            line = line.removeprefix(b"\xef\xbb\xbf")
        if b"\0" in line:
            raise DataError(path, "is a binary file; a table must be CSV, TSV or Parquet", f"line {number}")
        if len(line) > LINE_LIMIT:
            raise DataError(path, f"has more than {LINE_LIMIT} bytes in a line", f"line {number}")
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise DataError(path, f"is not UTF-8 ({error.reason}); save it as UTF-8", f"line {number}") from None


def _rows(path: Path, lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows with their line numbers, without empty lines; in a single column they are missing values."""
    reader = csv.reader(lines, delimiter=delimiter or "\x1f", skipinitialspace=True, strict=True)
    began = False
    try:
        for row in reader:
            if any(map(str.strip, row)):
                began = True
                yield reader.line_num, row
            elif began and not delimiter:
                yield reader.line_num, [""]
    except csv.Error as error:
        reason = "a quoted field does not end" if "end of data" in str(error) else str(error)
        raise DataError(path, f"cannot be read as CSV: {reason}", f"line {reader.line_num}") from None


def _delimiter(path: Path, file: IO[bytes]) -> str:
    """Return the delimiter that divides the first lines into the same number of columns; empty if there is none."""
    head: list[str] = []
    for line in itertools.islice(_lines(path, file), SAMPLE_LINES):
        head.append(line)
        if sum(map(len, head)) > SAMPLE_SIZE:
            break
    if not any(map(str.strip, head)):
        raise DataError(path, "is empty" if not head else "has only empty lines")
    best, most = "", (0, 1)
    for delimiter in DELIMITERS:
        try:
            counts = [len(row) for _, row in _rows(path, iter(head), delimiter)]
        except DataError:  # a quoted field may go on after the sample, or this is not the delimiter
            counts = [len(next(csv.reader([head[0]], delimiter=delimiter)))]
        alike = sum(count == counts[0] for count in counts) * 10 // len(counts)
        if counts[0] > 1 and (alike, counts[0]) > most:
            best, most = delimiter, (alike, counts[0])
    return best


def _read(path: Path, file: IO[bytes], delimiter: str) -> tuple[list[str], list[Cells], NDArray[np.int64]]:
    """Return the names of the columns, their cells, and the line of each row."""
    rows = _rows(path, _lines(path, file), delimiter)
    names = _names(path, next(rows)[1])
    chunks: list[list[Cells]] = [[] for _ in names]
    lines: list[NDArray[np.int64]] = []
    total = 0
    while chunk := list(itertools.islice(rows, CHUNK_ROWS)):
        total += len(chunk)
        if total * len(names) > MAX_CELLS:
            raise DataError(path, f"has more than {MAX_CELLS:,} cells; use a part of it")
        for line, row in chunk:
            if len(row) != len(names):
                raise DataError(path, _ragged(row, names, delimiter), f"line {line}")
        lines.append(np.array([line for line, _ in chunk], np.int64))
        for column, cells in zip(chunks, zip(*(row for _, row in chunk), strict=True), strict=True):
            column.append(np.array([cell.strip() for cell in cells], STRINGS))
    joined = [np.concatenate(column) if column else np.empty(0, STRINGS) for column in chunks]
    return names, joined, np.concatenate(lines) if lines else np.empty(0, np.int64)


def _names(path: Path, header: Sequence[str]) -> list[str]:
    """Check the first row, and name columns without a name by their number."""
    if len(header) > MAX_COLUMNS:
        raise DataError(path, f"must have at most {MAX_COLUMNS:,} columns, got {len(header):,}", "line 1")
    names = [name.strip() or f"column {number}" for number, name in enumerate(header, 1)]
    if all(map(_is_number, names)):
        reason = f"must begin with the names of the columns, got numbers: {', '.join(names[:5])}"
        raise DataError(path, reason, "line 1")
    for name in names:
        if names.count(name) > 1:
            raise DataError(path, f"has two columns named {name!r}; names must differ", "line 1")
    return names


def _ragged(row: Sequence[str], names: Sequence[str], delimiter: str) -> str:
    """Return what is wrong with a row that does not have one field for each name."""
    text = (delimiter or " ").join(row)
    others = [other for other in DELIMITERS if other != delimiter and text.count(other) == len(names) - 1 > 0]
    if others:
        return f"is delimited by {DELIMITERS[others[0]]}, the first line by {DELIMITERS[delimiter]}; use one delimiter"
    by = f", delimited by {DELIMITERS[delimiter]}" if delimiter else ""
    return f"has {len(row)} field{'s' if len(row) != 1 else ''}, but there are {len(names)} column names{by}"


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names for a message: `load, price, ...`."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
