"""Train on sequences in memory, for estimators: the tasks, settings and loop of `rru.fit`, without files."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rru.data import LabelledSequences, Sequences
from rru.data.own.scaling import ColumnScale
from rru.data.own.splits import by_content, stratified
from rru.integrations.scratch import scratch_folder
from rru.settings import Config, presets
from rru.tasks import Recurrent, SequenceTask, evaluating
from rru.tasks.batches import by_length
from rru.tasks.regression import RegressionTask
from rru.training import Result, Run, train
from rru.training.from_config import optimiser_of

Contents = Sequence[NDArray[np.float64]]
"""Sequences, (steps, features) each; NaN is missing."""
MIN_HELD_OUT = 20  # sequences; of fewer, a tenth says too little, and validation is on those trained on
PREDICTED = 256  # sequences at once
REGRESSION_RATE = 0.01  # with the lower one of classes, a few hundred sequences are often learnt by half
KIND, NAME = "sequences", "arrays"


class _ClassificationTask(SequenceTask):
    """As of `rru train`, but no single epoch ends training: an epoch of a few sequences may be one noisy batch."""

    starts_well = True


@dataclass(frozen=True)
class SequenceFit:
    """A model trained on sequences.

    **Arguments:**

    - `model`: the model, in float64, so that a prediction does not depend on what is predicted along with it.
    - `scale`: of the features.
    - `context`: the steps of a sequence that are read, its last ones.
    - `result`: the result of training.
    """

    model: Recurrent
    scale: ColumnScale
    context: int
    result: Result

    def outputs(self, contents: Contents) -> NDArray[np.float64]:
        """Return the outputs (N, outputs) of the model for sequences."""
        features = [self.scale.apply(each)[-self.context :] for each in contents]
        lengths = np.array([len(each) for each in features], np.int64)
        found = np.empty((len(features), self.model.head.out_features))
        with evaluating(self.model):
            for numbers in by_length(lengths, PREDICTED):
                inputs = torch.zeros(int(lengths[numbers].max()), len(numbers), features[0].shape[1])  # (T, B, m)
                for column, number in enumerate(numbers):
                    inputs[: lengths[number], column] = torch.from_numpy(features[number])
                outputs, _ = self.model(inputs, lengths=torch.from_numpy(lengths[numbers]))
                found[numbers] = outputs.numpy()
        return found


def fit_classes(
    contents: Contents, labels: NDArray[np.int64], cell: str, changes: Mapping[str, object], seed: int
) -> SequenceFit:
    """Train a classifier.

    **Arguments:**

    - `contents`: the sequences.
    - `labels`: (N,), the index of the class of each, from 0; every class is there.
    - `cell`: the name of a cell.
    - `changes`: settings to change, as for `rru.fit`.
    - `seed`: random seed.
    """
    names = [str(label) for label in range(int(labels.max()) + 1)]
    valid = _held_out(contents, [names[label] for label in labels])
    return _fit(_ClassificationTask, contents, labels, tuple(names), valid, cell, {"seed": seed, **changes})


def fit_numbers(
    contents: Contents, targets: NDArray[np.float32], cell: str, changes: Mapping[str, object], seed: int
) -> SequenceFit:
    """Train a regressor on scaled targets (N, numbers); others as for `fit_classes`."""
    valid = _held_out(contents, None)
    return _fit(RegressionTask, contents, targets, (), valid, cell, {"seed": seed, "lr": REGRESSION_RATE, **changes})


def _held_out(contents: Contents, labels: Sequence[str] | None) -> NDArray[np.bool_]:
    """Return which sequences (N,) to validate on: a tenth, of every class; chosen by content, with all copies."""
    keys = [hashlib.sha256(each.tobytes()).hexdigest() for each in contents]
    if len(set(keys)) < MIN_HELD_OUT:
        return np.zeros(len(keys), bool)
    missing = ("valid",)
    splits = by_content(keys, missing, Path(), "") if labels is None else stratified(keys, labels, missing)
    return np.array([split == "valid" for split in splits])


def _fit(
    task_class: type[SequenceTask],
    contents: Contents,
    labels: NDArray[Any],
    classes: tuple[str, ...],
    valid: NDArray[np.bool_],
    cell: str,
    changes: Mapping[str, object],
) -> SequenceFit:
    training = np.flatnonzero(~valid)
    scale = ColumnScale.of(np.concatenate([contents[number] for number in training.tolist()]))
    trained = _part(contents, labels, training, scale)
    validated = _part(contents, labels, np.flatnonzero(valid), scale) if valid.any() else trained
    statistics = {
        "columns": contents[0].shape[1],
        "sequences": [len(trained)],
        "steps": [len(trained.values)],
        "longest": int(np.diff(trained.offsets).max()),
        "classes": len(classes),
    }
    config = _config(statistics, cell, changes)
    task = task_class(Sequences(trained, validated, validated, classes), config.task, own=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.schedule.seed)
        model = task.model(config.model.cell, config.model.arguments, config.model.budget)
    with scratch_folder() as folder:
        run = Run.create(folder / "run", config)
        result = train(task, model, optimiser_of(model, config.optimiser), run)
    if not result.best_epoch:
        raise ValueError(f"training ended without a model: {result.status}, {result.reason}; try a lower lr")
    return SequenceFit(model.double().eval(), scale, config.task.context, result)


def _part(
    contents: Contents, labels: NDArray[Any], numbers: NDArray[np.int64], scale: ColumnScale
) -> LabelledSequences:
    values = [scale.apply(contents[number]) for number in numbers]
    return LabelledSequences(np.concatenate(values), np.cumsum([0, *map(len, values)]), labels[numbers])


def _config(statistics: Mapping[str, Any], cell: str, changes: Mapping[str, object]) -> Config:
    """Return the settings that `rru train` derives for sequences of this size, with some changed."""
    tables = presets.derived(KIND, statistics, cell, "auto")
    no_file = {"kind": KIND, "path": NAME, "size": 0, "hash": "", "label": "label"}
    config = Config.of(presets.merged(tables, {"task": {"name": NAME}, "data": no_file}))
    return config.changed(presets.settings_by_name(changes, config.settings, f"{KIND} and {cell}"))
