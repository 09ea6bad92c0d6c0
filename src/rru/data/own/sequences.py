"""Sequences of numbers with labels, to classify, from a table.

With `sequence`, the rows of the same value in that column are one sequence; else each row is one, and its columns are
its steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.own.data_json import SequenceFacts
from rru.data.own.detect import is_table
from rru.data.own.formats import Candidate, Format, Options
from rru.data.own.hints import hints, text_column
from rru.data.own.labels import Items, divided, label_facts
from rru.data.own.scaling import ColumnScale
from rru.data.own.table import Table, listed, read_table
from rru.data.sets import SPLITS, LabelledSequences, Sequences
from rru.data.spelling import option

if TYPE_CHECKING:
    from rru.data.own import OwnData


def prepare(own: "OwnData") -> Prepared:
    """Read the labelled sequences of a table."""
    tables = {split: read_table(place) for split, place in own.places.items()}
    columns = sequence_columns(tables["train"], own.options)
    items = {split: labelled_sequences(table, own.options, columns) for split, table in tables.items()}
    return prepare_items(own, items, columns, hints(tables["train"], own.options, columns))


def prepare_items(
    own: "OwnData",
    items: Mapping[str, Items[NDArray[np.float64]]],
    columns: "SequenceColumns",
    notes: tuple[str, ...] = (),
) -> Prepared:
    """Divide labelled sequences (T, columns), and scale each column by mean and deviation of the training part."""
    contents = items["train"].contents
    values = np.concatenate(contents) if contents else np.zeros((0, len(columns.names)))
    differ = [len(np.unique(column[~np.isnan(column)])) > 1 for column in values.T]
    flat = [name for name, differs in zip(columns.names, differ, strict=True) if not differs]
    if contents and not any(differ):
        raise DataError(own.path, f"must have columns whose numbers differ; always the same: {', '.join(flat[:5])}")
    parts = divided(own, items)
    scale = ColumnScale.of(np.concatenate(parts["train"].contents))
    arrays: dict[str, NDArray[np.generic]] = {}
    for split, part in parts.items():
        arrays[f"{split}_values"] = np.concatenate([scale.apply(each) for each in part.contents])
        arrays[f"{split}_offsets"] = part.offsets
        arrays[f"{split}_labels"] = part.indices(parts["train"].classes).astype(np.int64)
    statistics = {
        "columns": len(columns.names),
        "sequences": [len(part.contents) for part in parts.values()],
        "steps": [int(part.offsets[-1]) for part in parts.values()],
        "longest": max(map(len, parts["train"].contents)),
    }
    contents = [values for part in parts.values() for values in part.contents]
    labels = label_facts(own, items, parts, "sequences", _described(contents, columns.names), statistics)
    constant = tuple(f"column {name} always has the same value, so it says nothing" for name in flat[:3])
    more = {"notes": notes + labels.notes + constant, "columns": columns.names, "scale": scale, "wide": columns.wide}
    facts = SequenceFacts(**vars(labels) | more)
    return Prepared(arrays, facts.fields())


def _described(contents: Sequence[NDArray[np.float64]], names: Sequence[str]) -> str:
    """Describe sequences (T, columns): their lengths, columns and missing values."""
    lengths, missing = [len(values) for values in contents], sum(int(np.isnan(values).sum()) for values in contents)
    steps = f"{min(lengths):,} to {max(lengths):,} steps" if min(lengths) < max(lengths) else f"{lengths[0]:,} steps"
    return f"{steps} of {len(names)} column{'s'[: len(names) > 1]} ({listed(names, 5)}); {missing:,} values missing"


def from_prepared(ready: Prepared) -> Sequences:
    """Build the data set from cached arrays."""
    names = ("values", "offsets", "labels")
    splits = {split: LabelledSequences(*(ready.arrays[f"{split}_{name}"] for name in names)) for split in SPLITS}
    return Sequences(**splits, classes=tuple(ready.about["classes"]))


@dataclass(frozen=True)
class SequenceColumns:
    """The columns with the numbers of sequences; `wide` if each row is a sequence and the columns are its steps."""

    read: tuple[str, ...]
    wide: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values at each step."""
        return ("value",) if self.wide else self.read


def sequence_columns(table: Table, options: Options) -> SequenceColumns:
    """Return the columns to read: those the user named, else all with numbers."""
    wide = options.get("sequence") is None
    special = [options[name] for name in ("label", "sequence", "time") if options.get(name) is not None]
    for name in special:
        table[name]  # raises DataError if it is not there
    if (given := options.get("columns")) is not None:
        names = tuple(name.strip() for name in given.split(","))
        for name in names:
            table[name].numbers()
    else:
        names = tuple(column.name for column in table if column.kind == "number" and column.name not in special)
    if not names or (wide and len(names) < 2):
        apart = f"or name the column that tells sequences apart with {option('sequence')}"
        advice = apart if wide else f"see {option('columns')}"
        if text := text_column(table):
            advice = f"to classify the texts in it, give {option('text', text)}"
        raise DataError(table.path, f"must have columns with numbers beside {', '.join(special)}; {advice}")
    return SequenceColumns(names, wide)


def sequences_in(
    table: Table, options: Options, columns: SequenceColumns
) -> list[tuple[str, NDArray[np.float64], NDArray[np.int64]]]:
    """Return the name, the values (T, columns) and the rows of each sequence in a table."""
    values = np.stack([table[name].numbers() for name in columns.read], axis=1)  # (rows, columns)
    if columns.wide:
        lengths = [int(np.flatnonzero(~np.isnan(row))[-1]) + 1 if (~np.isnan(row)).any() else 0 for row in values]
        return [(str(row + 1), values[row, :length, None], np.array([row])) for row, length in enumerate(lengths)]
    order = np.arange(len(table))
    if (time := options.get("time")) is not None:
        when = table[time].numbers() if table[time].kind == "number" else table[time].times()
        order = np.argsort(when, kind="stable")
    names = table[options["sequence"]].texts()
    groups: dict[str, list[int]] = {name: [] for name in names if name}  # in the order of the file
    for row in order.tolist():
        if names[row]:
            groups[names[row]].append(row)
    return [(name, values[rows], np.array(rows)) for name, rows in groups.items()]


def labelled_sequences(table: Table, options: Options, columns: SequenceColumns) -> Items[NDArray[np.float64]]:
    """Return the values (T, columns) and the labels of the sequences in a table; those without either are left out."""
    labels = table[options["label"]].texts()
    labelled, left_out = list[tuple[NDArray[np.float64], str]](), 0
    for name, values, rows in sequences_in(table, options, columns):
        first, *others = sorted({labels[row] for row in rows.tolist()})
        if others:
            some = f"{first!r} and {others[0]!r}"
            raise DataError(table.path, f"sequence {name!r} must have one label in {options['label']!r}, got {some}")
        if not first or np.isnan(values).all():
            left_out += 1
        else:
            labelled.append((values, first))
    return Items([values for values, _ in labelled], [label for _, label in labelled], left_out)


def _complete(path: Path, options: Options) -> Options:
    if "time" in options and "sequence" not in options:
        apart = f"give {option('sequence', 'COLUMN')}, which tells sequences apart"
        raise ValueError(f"{option('time')} sorts the rows of a sequence, but each row of {path} is one; {apart}")
    return options


def _recognise(candidate: Candidate) -> bool:
    return is_table(candidate) and "label" in candidate.options and "text" not in candidate.options


FORMAT = Format(
    "sequences",
    "sequences of numbers with labels",
    from_prepared,
    prepare,
    SequenceFacts,
    options=("label", "sequence", "time", "columns"),
    recognise=_recognise,
    complete=_complete,
)
