"""Notice what a user may have forgotten to say about a table with labels."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rru.data.own.formats import Options
from rru.data.own.table import Table, listed
from rru.data.spelling import option

if TYPE_CHECKING:
    from rru.data.own.sequences import SequenceColumns

WORDS = 3  # mean words in the cells of a column of texts
ROWS = 2  # mean rows of a sequence, at least


def hints(table: Table, options: Options, columns: "SequenceColumns") -> tuple[str, ...]:
    """Return notes about a table whose rows are read as sequences, if that may not be what its user wants."""
    if not columns.wide:
        return ()
    notes = []
    if name := _sequence_column(table, options["label"]):
        now = f"now each row is a sequence of {len(columns.read)} steps ({listed(columns.read, 4)})"
        notes.append(f"column {name} seems to say which sequence a row belongs to: {option('sequence', name)}; {now}")
    if name := text_column(table):
        notes.append(f"column {name} has texts, which are left out; to classify these: {option('text', name)}")
    return tuple(notes)


def text_column(table: Table) -> str | None:
    """Return the name of the first column of texts of several words; None if there is none."""
    for column in table:
        if column.kind in ("text", "category"):
            words = [len(text.split()) for text in column.texts() if text]
            if sum(words) >= WORDS * len(words):
                return column.name
    return None


def _sequence_column(table: Table, label: str) -> str | None:
    """Return the first column whose equal values are in neighbouring rows with one label; None if there is none."""
    labels = table[label].texts()
    classes = len(set(labels))
    for column in table:
        if column.name != label and _tells_apart(column.texts(), labels, classes):
            return column.name
    return None


def _tells_apart(values: Sequence[str], labels: Sequence[str], classes: int) -> bool:
    """Return whether a column has a value for each of several groups of rows, all of one label."""
    names = [name for name, _ in groupby(values)]
    if len(set(names)) != len(names) or not classes < len(names) <= len(values) / ROWS:
        return False
    return len(set(zip(values, labels, strict=True))) == len(names)
