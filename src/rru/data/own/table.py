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
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own import parquet
from rru.data.own.column import Column as Column
from rru.data.own.column import is_number
from rru.data.own.parquet import STRINGS, Cells
from rru.data.own.times import is_time
from rru.data.streams import checked_size, data_errors
from rru.suggestions import did_you_mean

FILE_LIMIT = 4 << 30  # bytes
LINE_LIMIT = 4 << 20  # bytes
MAX_COLUMNS = 4096
MAX_CELLS = 60_000_000
CHUNK_ROWS = 20_000
BLOCK = 1 << 20  # bytes of lines that are taken apart at once
PLAIN_LINE = 1 << 16  # characters: longer lines may have fields that are too long for CSV
SAMPLE_LINES, SAMPLE_SIZE = 50, 1 << 16  # lines and about as many characters to find the delimiter in
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


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
            hint = did_you_mean(name, self.names) or f"; its columns are {listed(self.names, 20)}{self._headless}"
            raise DataError(self.path, f"has no column {name!r}{hint}")
        return self.columns[name]

    @property
    def _headless(self) -> str:
        """A question if the names look like the values of a row."""
        values = [name for name in self.names if is_number(name) or is_time(name)]
        return "; does it lack the line with the names of the columns?" if len(values) > len(self.names) / 2 else ""

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


def _lines(path: Path, file: IO[bytes], before: int = 0) -> Iterator[str]:
    """Yield the lines of a text file, decoded, where `before` are read already; raise DataError if it is not text."""
    for number, line in enumerate(iter(lambda: file.readline(LINE_LIMIT + 1), b""), before + 1):
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


def _rows(path: Path, lines: Iterator[str], delimiter: str, before: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows with their line numbers, without empty lines; in a single column they are missing values."""
    reader = csv.reader(lines, delimiter=delimiter or "\x1f", skipinitialspace=True, strict=True)
    began = before > 0
    try:
        for row in reader:
            if any(map(str.strip, row)):
                began = True
                yield before + reader.line_num, row
            elif began and not delimiter:
                yield before + reader.line_num, [""]
    except csv.Error as error:
        reason = "a quoted field does not end" if "end of data" in str(error) else str(error)
        raise DataError(path, f"cannot be read as CSV: {reason}", f"line {before + reader.line_num}") from None


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
    first, header = next(rows)
    names = _names(path, header)
    chunks: list[list[Cells]] = [[] for _ in names]
    lines: list[NDArray[np.int64]] = []
    total = 0
    for numbers, columns in _chunks(path, file, delimiter, names, first):
        total += len(numbers)
        if total * len(names) > MAX_CELLS:
            raise DataError(path, f"has more than {MAX_CELLS:,} cells; use a part of it")
        lines.append(numbers)
        for chunk, cells in zip(chunks, columns, strict=True):
            chunk.append(np.array(cells, STRINGS))
    joined = list[Cells]()
    for chunk in chunks:
        joined.append(np.concatenate(chunk) if chunk else np.empty(0, STRINGS))
        chunk.clear()
    return names, joined, np.concatenate(lines) if lines else np.empty(0, np.int64)


def _chunks(
    path: Path, file: IO[bytes], delimiter: str, names: Sequence[str], before: int
) -> Iterator[tuple[NDArray[np.int64], list[list[str]]]]:
    """Yield the lines and the columns of some rows at a time, after the first `before` lines.

    Lines that need no rules of CSV are taken apart in blocks, several times faster; from the first that does, by row.
    """
    place = file.tell()
    while block := file.read(BLOCK) + file.readline(LINE_LIMIT + 1):
        if (columns := _plain(block, delimiter, len(names))) is None:
            break
        yield np.arange(before + 1, before + 1 + len(columns[0])), columns
        place, before = file.tell(), before + len(columns[0])
    file.seek(place)
    rows = _rows(path, _lines(path, file, before), delimiter, before)
    while chunk := list(itertools.islice(rows, CHUNK_ROWS)):
        for line, row in chunk:
            if len(row) != len(names):
                raise DataError(path, _ragged(row, names, delimiter), f"line {line}")
        cells = zip(*(row for _, row in chunk), strict=True)
        yield np.array([line for line, _ in chunk], np.int64), [[cell.strip() for cell in column] for column in cells]


def _plain(block: bytes, delimiter: str, width: int) -> list[list[str]] | None:
    """Return the columns of whole lines; None if they have quotes, empty rows or anything else that needs rules."""
    try:
        text = block.decode().replace("\r\n", "\n").removesuffix("\n")
    except UnicodeDecodeError:
        return None
    if any(letter in text for letter in '"\0\r\x1f'):
        return None
    lines = text.split("\n")
    if max(map(len, lines)) > min(PLAIN_LINE, LINE_LIMIT // 4):  # a letter has up to four bytes
        return None
    if not delimiter:
        return [list(map(str.strip, lines))] if width == 1 else None
    if set(map(str.count, lines, itertools.repeat(delimiter))) != {width - 1}:
        return None
    cells = list(map(str.strip, text.replace("\n", delimiter).split(delimiter)))
    columns = [cells[number::width] for number in range(width)]
    empty = all("" in column for column in columns) and not all(map(any, zip(*columns, strict=True)))
    return None if empty else columns


def _names(path: Path, header: Sequence[str]) -> list[str]:
    """Check the first row, and name columns without a name by their number."""
    if len(header) > MAX_COLUMNS:
        raise DataError(path, f"must have at most {MAX_COLUMNS:,} columns, got {len(header):,}", "line 1")
    names = [name.strip() or f"column {number}" for number, name in enumerate(header, 1)]
    if all(map(is_number, names)):
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
