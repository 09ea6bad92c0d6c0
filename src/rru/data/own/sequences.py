"""Sequences of numbers with labels, to classify, from a table.

With `sequence`, the rows of the same value in that column are one sequence; else each row is one, and its columns are
its steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rru.data.cache import Prepared
from rru.data.errors import DataError
from rru.data.own.data_json import SequenceFacts
from rru.data.own.detect import is_table
from rru.data.own.formats import Candidate, Format, Options
from rru.data.own.labels import Items, about_labels, content_hash, divided
from rru.data.own.scaling import ColumnScale
from rru.data.own.table import Table, read_table
from rru.data.sets import SPLITS, LabelledSequences, Sequences

if TYPE_CHECKING:
    from rru.data.own import OwnData


def prepare(own: "OwnData") -> Prepared:
    """Read the labelled sequences of a table."""
    tables = {split: read_table(place) for split, place in own.places.items()}
    columns = sequence_columns(tables["train"], own.options)
    return prepare_items(
        own, {split: _labelled(table, own.options, columns) for split, table in tables.items()}, columns
    )


def prepare_items(own: "OwnData", items: Mapping[str, Items], columns: "SequenceColumns") -> Prepared:
    """Divide labelled sequences (T, columns), and scale each column by mean and deviation of the training part."""
    flat = _constant(items["train"], columns)
    if items["train"].contents and len(flat) == len(columns.names):
        raise DataError(own.path, f"must have columns whose numbers differ; always the same: {', '.join(flat[:5])}")
    keys = {split: [content_hash(values.tobytes()) for values in some.contents] for split, some in items.items()}
    parts = divided(own, items, keys)
    scale = ColumnScale.of(np.concatenate(parts["train"].contents))
    classes = parts["train"].classes
    arrays: dict[str, NDArray[Any]] = {}
    for split, part in parts.items():
        arrays[f"{split}_values"] = np.concatenate([scale.apply(each) for each in part.contents])
        arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, part.contents)], dtype=np.int64)
        arrays[f"{split}_labels"] = part.indices(classes).astype(np.int64)
    contents = [values for part in parts.values() for values in part.contents]
    labels = about_labels(own, parts, items, "sequences", _described(contents, columns.names))
    constant = tuple(f"column {name} always has the same value, so it says nothing" for name in flat[:3])
    facts = SequenceFacts(
        **labels | {"notes": (*labels["notes"], *constant)},
        statistics={
            "columns": len(columns.names),
            "sequences": [len(parts[split].contents) for split in SPLITS],
            "steps": [int(arrays[f"{split}_offsets"][-1]) for split in SPLITS],
            "longest": max(map(len, parts["train"].contents)),
            "classes": len(classes),
        },
        columns=columns.names,
        scale=scale,
        wide=columns.wide,
    )
    return Prepared(arrays, facts.fields())


def _described(contents: Sequence[NDArray[np.float64]], names: Sequence[str]) -> str:
    """Describe sequences (T, columns): their lengths, columns and missing values."""
    lengths, missing = [len(values) for values in contents], sum(int(np.isnan(values).sum()) for values in contents)
    steps = f"{min(lengths):,} to {max(lengths):,} steps" if min(lengths) < max(lengths) else f"{lengths[0]:,} steps"
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"{steps} of {len(names)} column{'s'[: len(names) > 1]} ({shown}); {missing:,} values missing"


def _constant(items: Items, columns: "SequenceColumns") -> list[str]:
    """Return the names of the columns that always have the same value."""
    values = np.concatenate(items.contents) if items.contents else np.zeros((0, len(columns.names)))
    same = [len(np.unique(column[~np.isnan(column)])) < 2 for column in values.T]
    return [name for name, is_constant in zip(columns.names, same, strict=True) if is_constant]


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
        advice = "or name the column that tells sequences apart with --sequence" if wide else "see --columns"
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
    sequences = []
    for name, rows in _groups(table[options["sequence"]].texts()):
        if (time := options.get("time")) is not None:
            column = table[time]
            when = column.numbers() if column.kind == "number" else column.times()
            rows = rows[np.argsort(when[rows], kind="stable")]
        sequences.append((name, values[rows], rows))
    return sequences


def _labelled(table: Table, options: Options, columns: SequenceColumns) -> Items:
    label = table[options["label"]]
    labels = label.texts()
    contents, names, left_out = [], [], 0
    for name, values, rows in sequences_in(table, options, columns):
        own_labels = {labels[row] for row in rows.tolist()}
        if len(own_labels) > 1:
            some = " and ".join(repr(each) for each in sorted(own_labels)[:2])
            raise DataError(table.path, f"sequence {name!r} must have one label in {label.name!r}, got {some}")
        (class_name,) = own_labels
        if not class_name or np.isnan(values).all():
            left_out += 1
            continue
        contents.append(values)
        names.append(class_name)
    return Items(contents, names, left_out)


def _groups(names: Sequence[str]) -> list[tuple[str, NDArray[np.int64]]]:
    """Return the rows of each name, in the order of their first row; rows without a name are left out."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        if name:
            rows.setdefault(name, []).append(row)
    return [(name, np.array(some, np.int64)) for name, some in rows.items()]


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
)
