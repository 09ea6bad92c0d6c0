"""Evaluate a trained model, on the data it was trained on or on new data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from rru import data, tasks, training
from rru.kinds import kind_of
from rru.kinds.sources import Source
from rru.training import RunError
from rru.training.denormals import denormals_flushed
from rru.training.refit import REFIT, refits

if TYPE_CHECKING:
    from rru.inference.trained import Trained


def evaluate(
    trained: Trained,
    source: Source = None,
    labels: Iterable[object] | None = None,
    *,
    split: str = "test",
    data_dir: data.Place = None,
) -> dict[str, float]:
    """Return all scores of a model by name.

    **Arguments:**

    - `trained`: the model.
    - `source`: new data, of the kind that it was trained on: a text, or its file; MIDI files or piano rolls (T, 88);
      a table (a file, a DataFrame or a dict of columns); texts, sequences (T, columns) or images (28, 28) with
      `labels`. It is read with the vocabulary and the scales of training. Default: the data of training.
    - `labels`: the class of each item, if `source` does not have them.
    - `split`: of the training data: `train`, `validation` (or `valid`) or `test`.
    - `data_dir`: where the data set of the catalogue is, as for `rru.data.load`.
    """
    config, kind = trained.config, kind_of(trained.kind)
    with denormals_flushed():  # as in training
        if source is None and (trained.path / REFIT).is_dir():  # the weights in use were trained on every split
            return training.evaluate(trained.path, split, data_dir=data_dir)
        if source is None and trained.epoch is None and refits(config):
            whole = "the weights of an export were trained on all parts of their data"
            raise RunError(f"{trained.path}: {whole}; evaluate the run that it was exported from, or on new data")
        if source is None:
            return tasks.make(config.task, data_dir, own=config.data).evaluate(trained.model, split)
        if kind.read is None:
            raise RunError(f"{trained.path}: a model of {kind.noun} cannot be evaluated on new data")
        loaded = kind.read(trained.trained_on, kind.source(source), labels)
        settings = replace(config.task, limit=None, evaluation_limit=None)
        return kind.task(loaded, settings, own=config.data is not None).evaluate(trained.model, "test")
