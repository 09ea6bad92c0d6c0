"""Sequences of numbers with labels, to classify, from users' tables."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rru.data import DataError
from rru.data.own import sequences
from rru.data.own.data_json import SequenceFacts, Statistics
from rru.data.own.detect import TABLES
from rru.data.own.table import read_table
from rru.kinds import sizes
from rru.kinds.kind import Card, Kind, TrainedOn, probable_classes
from rru.kinds.sizes import Tables
from rru.tasks import SequenceTask

SCALE = """import json
from pathlib import Path

facts = json.loads(Path("data.json").read_text())
mean, deviation = facts["scale"]["mean"], facts["scale"]["deviation"]
values = np.array([mean] * 12)  # (steps, columns): your own, in the order of facts["columns"]
inputs = ((values - mean) / deviation).astype(np.float32)[:, None]  # (steps, 1, columns)
"""


def _auto(statistics: Statistics) -> Tables:
    steps, count = statistics["steps"][0], statistics["sequences"][0]
    task = {
        "context": statistics["longest"],
        "batch_size": sizes.power_of_two(count / 10, sizes.MIN_BATCH, sizes.MAX_BATCH),
    }
    budget = max(sizes.between(steps * 2, 20_000, 300_000), sizes.room(statistics.get("columns", 0), 128))
    return sizes.tables(
        steps, task, {"budget": sizes.rounded(budget), "dropout": sizes.by_size(steps, (100_000, 0.3), (0, 0.2))}
    )


def _items(trained: TrainedOn, path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the last `context` steps of each sequence in a table, (T, 1, columns)."""
    assert isinstance(trained.facts, SequenceFacts)  # every model of sequences has them
    assert trained.data is not None
    if path.suffix.lower() not in TABLES:
        raise DataError(path, f"must be a table with the columns that the run was trained on, one of {TABLES}")
    table = read_table(path, least=1)
    options = {name: value for name, value in trained.data.options.items() if name != "label"}
    names = list(trained.facts.columns)
    if "sequence" not in options:  # a wide table: all but texts
        label = trained.data.options.get("label")
        names = [column.name for column in table if column.kind in ("number", "empty") and column.name != label]
    columns = sequences.sequence_columns(table, {"columns": ",".join(names), **options})
    for name, values, _ in sequences.sequences_in(table, options, columns):
        if len(values):
            inputs = torch.from_numpy(trained.facts.scale.apply(values)[-trained.settings.context :])
            yield name if "sequence" in options else f"row {name}", inputs[:, None]


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
    items=_items,
    line=_line,
    figure="confusion matrix",
    card_of=lambda *_: Card(SCALE, probable_classes('facts["classes"]')),
)
