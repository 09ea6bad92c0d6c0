"""A column of a table: its cells, and what they are as numbers, times, texts or groups."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.own import times
from rru.data.own.parquet import Cells
from rru.data.own.times import Frequency

MISSING = frozenset(("", "na", "n/a", "nan", "<na>", "null", "none", "nil", "-", "--", "?", "."))
MAX_NUMBER = 1e30  # of a number: its scaled value must fit float32
MAX_CATEGORIES = 1000
MAX_CATEGORY = 100  # characters
SIGNS = {"currency": "$€£¥₹", "percent": "%"}
_SIGN = re.compile(rf"\s*[{''.join(SIGNS.values())}]\s*")
PART = 200_000  # cells that are made Python objects at once


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
        if self._floats is not None:
            return np.asarray(np.isnan(self._floats))
        if self.cells.dtype.kind == "M":
            return np.asarray(np.isnat(self.cells))
        return np.fromiter((cell.lower() in MISSING for cell in self._each()), np.bool_, len(self.cells))

    @cached_property
    def kind(self) -> str:
        """`number`, `time`, `category` (few different texts), `text`, or `empty` if every cell is missing."""
        if self.missing.all():
            return "empty"
        if self._as_numbers[1] is None:
            return "number"
        if self.cells.dtype.kind == "M":
            return "time"
        different = [text for text in self.groups[0] if text]
        if times.is_time(different[0]) and times.parse(different)[1] is None:
            return "time"
        few = len(different) <= min(MAX_CATEGORIES, max(len(self.cells) // 2, 20))
        return "category" if few and max(map(len, different)) <= MAX_CATEGORY else "text"

    @cached_property
    def groups(self) -> tuple[list[str], NDArray[np.int64]]:
        """The different texts of the cells, and the number (rows,) of each cell's text among them.

        Strings are in the order in which they come first; a missing cell has the empty text.
        """
        if self.cells.dtype.kind in "fM":
            some, first, numbers = np.unique(self.cells, return_index=True, return_inverse=True)
            return Column(self.file, self.name, some, self.lines[first]).texts(), np.asarray(numbers, np.int64)
        known: dict[str, int] = {}
        numbers = np.fromiter((known.setdefault(text, len(known)) for text in self._each()), np.int64, len(self.cells))
        return ["" if text.lower() in MISSING else text for text in known], numbers

    def numbers(self) -> NDArray[np.float64]:
        """Return the cells (rows,) as numbers, NaN where missing; raise DataError at the first that is unusable."""
        numbers, wrong = self._as_numbers
        if wrong is not None:
            raise self.error(
                wrong, f"column {self.name!r} must have numbers, got {self._shown(wrong)}{self._advice(wrong)}"
            )
        if (large := np.abs(numbers) > MAX_NUMBER).any():
            row, bounds = int(large.argmax()), f"-{MAX_NUMBER:g} to {MAX_NUMBER:g}"
            right = f"numbers from {bounds}, or empty cells where they are missing"
            raise self.error(row, f"column {self.name!r} must have {right}; got {self._shown(row)}")
        return numbers

    def times(self, frequency: Frequency | None = None) -> NDArray[np.datetime64]:
        """Return the cells (rows,) as UTC times in microseconds; raise DataError at the first that is not one.

        `frequency`, if it is known, says which is the day and which the month of dates such as 3/4/2026.
        """
        moments, wrong = self._as_times(frequency)
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

    def _advice(self, row: int) -> str:
        """Return what to do about a cell that would be a number without a sign; nothing if it would not."""
        text = str(self.cells[row])
        plain = _SIGN.sub("", text)
        bare = re.sub(r"(?<=\d)[,.' \u00a0\u202f](?=\d{3}(?!\d))", "", plain)
        if not any(is_number(each.replace(",", ".")) for each in (plain, bare)):
            return ""
        signs = [f"{name} sign" for name, letters in SIGNS.items() if any(letter in text for letter in letters)]
        found = [*signs, *(["thousands separator"] if bare != plain else [])]
        if not found and "," in plain:
            return ", which has a decimal comma: write a point, or separate columns by semicolons"
        return f", which has a {' and a '.join(found)}: remove {'them' if len(found) > 1 else 'it'}" if found else ""

    def _each(self) -> Iterator[str]:
        """Yield the cells, which are strings, without a list of all of them."""
        for start in range(0, len(self.cells), PART):
            yield from self.cells[start : start + PART].tolist()

    def _shown(self, row: int) -> str:
        text = str(self.cells[row])
        return "an empty cell" if not text else repr(text if len(text) <= 40 else f"{text[:40]}...")

    @cached_property
    def _floats(self) -> NDArray[np.float64] | None:
        """The cells as floats, if all of them are numbers or `nan`: a fast pass, all that most columns need."""
        if self.cells.dtype.kind == "M":
            return None
        try:
            return np.asarray(self.cells.astype(np.float64, copy=False))
        except ValueError:
            return None

    @cached_property
    def _as_numbers(self) -> tuple[NDArray[np.float64], int | None]:
        """The cells as numbers, and the first row that is none."""
        if self._floats is not None:
            return self._floats, None
        if self.cells.dtype.kind == "M":
            return np.empty(0), 0
        texts = [text or "nan" for text in self.texts()]
        if self.decimal_comma:
            texts = [text.replace(",", ".") if text.count(",") == 1 and "." not in text else text for text in texts]
        try:
            return np.fromiter(map(float, texts), np.float64, len(texts)), None
        except ValueError:
            return np.empty(0), next(row for row, text in enumerate(texts) if not is_number(text))

    def _as_times(self, frequency: Frequency | None) -> tuple[NDArray[np.datetime64], int | None]:
        """The cells as times, and the first row that is none."""
        if self.missing.any():
            return np.empty(0, "datetime64[us]"), int(self.missing.argmax())
        if self.cells.dtype.kind == "M":
            return self.cells.astype("datetime64[us]"), None
        different, numbers = self.groups  # series often have the same times
        moments, wrong = times.parse(different, frequency)
        return (moments[numbers], None) if wrong is None else (moments, int((numbers == wrong).argmax()))


def is_number(text: str) -> bool:
    """Return whether a text is a number, as Python writes them."""
    try:
        float(text)
    except ValueError:
        return False
    return True
