"""Sequences of numbers with labels, to classify, from users' tables."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rru.data import DataError, LabelledSequences, Sequences
from rru.data.own import sequences
from rru.data.own.data_json import SequenceFacts, Statistics
from rru.data.own.detect import TABLES
from rru.data.own.formats import Options
from rru.data.own.frames import is_frame, table_from
from rru.data.own.table import Table
from rru.kinds import sizes
from rru.kinds.kind import Card, Kind, TrainedOn, probable_classes
from rru.kinds.sizes import Tables
from rru.kinds.sources import Source, items_of, labelled, numbers_of
from rru.tasks import SequenceTask

SCALE = """import json
from pathlib import Path

facts = json.loads(Path("data.json").read_text())
mean, deviation = facts["scale"]["mean"], facts["scale"]["deviation"]
values = np.array([mean] * 12)  # (steps, columns): your own, in the order of facts["columns"]
inputs = ((values - mean) / deviation).astype(np.float32)[:, None]  # (steps, 1, columns)
"""


def _auto(statistics: Statistics, scale: float) -> Tables:
    steps, count = statistics["steps"][0], statistics["sequences"][0]
    task = {
        "context": statistics["longest"],
        "batch_size": sizes.power_of_two(count / 10, sizes.MIN_BATCH, sizes.MAX_BATCH),
    }
    layers = sizes.scaled(sizes.between(steps * 2, 20_000, 300_000), scale, statistics.get("columns", 0))
    model = {"budget": sizes.rounded(layers), "dropout": sizes.by_size(steps, (100_000, 0.3), (0, 0.2))}
    return sizes.decaying(sizes.between(10_000_000 // max(steps, 1), 20, 120), task, model)


def _items(trained: TrainedOn, source: Source) -> Iterator[tuple[str, Tensor]]:
    """Yield the last `context` steps of each sequence in a table or in memory, (T, 1, columns)."""
    facts, options = _known(trained)
    if isinstance(source, Path) or is_frame(source):
        table = _table(source)
        columns = _columns(table, facts, options)
        rows = sequences.sequences_in(table, options, columns)
        given = [(name if "sequence" in options else f"row {name}", values) for name, values, _ in rows]
    else:
        given = list(_arrays(facts, source))
    for name, values in given:
        if len(values):
            yield name, torch.from_numpy(facts.scale.apply(values)[-trained.settings.context :])[:, None]


def _known(trained: TrainedOn) -> tuple[SequenceFacts, Options]:
    """Return what is known about the data that a model was trained on, and how it was read."""
    assert isinstance(trained.facts, SequenceFacts)  # every model of sequences has them
    assert trained.data is not None
    return trained.facts, trained.data.options


def _table(source: Source) -> Table:
    if isinstance(source, Path) and source.suffix.lower() not in TABLES:
        raise DataError(source, f"must be a table with the columns that the run was trained on, one of {TABLES}")
    return table_from(source, least=1)


def _columns(table: Table, facts: SequenceFacts, options: Options) -> sequences.SequenceColumns:
    """Return the columns to read: those of the training data; of a wide table all but texts. It may have no labels."""
    names, label = list(facts.columns), options.get("label")
    if "sequence" not in options:
        names = [column.name for column in table if column.kind in ("number", "empty") and column.name != label]
    without_label = {name: value for name, value in options.items() if name != "label"}
    return sequences.sequence_columns(table, {"columns": ",".join(names), **without_label})


def _arrays(facts: SequenceFacts, source: Source) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield the names and values (T, columns) of sequences in memory; of a wide table, one is (T,)."""
    shape = (None,) if facts.wide else (None, len(facts.columns))
    for name, item in items_of(source, len(shape)):
        yield name, numbers_of(item, shape, "a sequence").reshape(-1, len(facts.columns))


def _read(trained: TrainedOn, source: Source, labels: Iterable[object] | None) -> Sequences:
    """Read labelled sequences: a table, or arrays and their labels."""
    facts, options = _known(trained)
    if labels is not None:
        items = labelled([values for _, values in _arrays(facts, source)], labels)
    elif isinstance(source, Path) or is_frame(source):
        table = _table(source)
        items = sequences.labelled_sequences(table, options, _columns(table, facts, options))
    else:
        raise ValueError("labels must be given with sequences: the class of each, such as labels=['up', 'down']")
    values = np.concatenate([facts.scale.apply(each) for each in items.contents])
    part = LabelledSequences(values, items.offsets, items.indices(facts.classes).astype(np.int64))
    return Sequences(part, part, part, facts.classes)


def _line(trained: TrainedOn, line: str) -> Tensor:
    """Return the numbers of one step, (1, 1, columns)."""
    assert isinstance(trained.facts, SequenceFacts)
    names = trained.facts.columns
    try:
        values = [float(field) for field in line.split(",")]
    except ValueError as error:
        raise ValueError(f"must have numbers separated by commas, got {line.strip()[:80]!r}") from error
    if len(values) != len(names):
        raise ValueError(f"must have {len(names)} numbers ({', '.join(names)}), got {len(values)}")
    return torch.from_numpy(trained.facts.scale.apply(np.array([values])))[:, None]


SEQUENCES = Kind(
    format=sequences.FORMAT,
    task=SequenceTask,
    noun="labelled sequences",
    commands=("classify", "stream"),
    steps=sizes.counted("steps", "sequences"),
    inputs="(steps, batch, columns) float32, scaled as data.json says; logits are of the classes there",
    auto=_auto,
    cells=sizes.BALANCED_CELLS,
    items=_items,
    read=_read,
    line=_line,
    figure="confusion matrix",
    page="sequences",
    card_of=lambda *_: Card(SCALE, probable_classes('facts["classes"]')),
)
