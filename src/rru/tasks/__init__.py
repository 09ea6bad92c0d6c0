"""Tasks: batches, model, loss and metric for a data set.

```python
import torch
from rru import tasks

task = tasks.load("bach")
model = task.model("rru", {"output_size": 64, "dropout": 0.7}, budget=200_000)
batch = task.epoch(torch.Generator())[0]
loss, _ = task.loss(model, batch)
```
"""

from collections.abc import Mapping
from typing import Any

from rru import data
from rru.data.own.columns import Layout
from rru.tasks.batches import Batch, Batches
from rru.tasks.classification import ClassificationTask, ImageTask, ReviewTask, SequenceTask
from rru.tasks.joint import INDEPENDENT, LOW_HIGH, UNITS, ChainHead, JointHead, NadeHead, head_of
from rru.tasks.language import LanguageTask
from rru.tasks.metrics import Metric, metric_of
from rru.tasks.models import (
    Classifier,
    Recurrent,
    SequenceModel,
    image_model,
    language_model,
    music_model,
    review_model,
    sequence_model,
)
from rru.tasks.music import MusicTask
from rru.tasks.series import QUANTILES, SeriesTask, beats_baselines, series_model, verdict
from rru.tasks.task import Task, map_state
from rru.tasks.windows import Windows

__all__ = [
    "QUANTILES",
    "Batch",
    "Batches",
    "ChainHead",
    "ClassificationTask",
    "Classifier",
    "ImageTask",
    "JointHead",
    "LanguageTask",
    "Metric",
    "MusicTask",
    "NadeHead",
    "Recurrent",
    "ReviewTask",
    "SequenceModel",
    "SequenceTask",
    "SeriesTask",
    "Task",
    "Windows",
    "beats_baselines",
    "load",
    "map_state",
    "metric_of",
    "model",
    "task_names",
    "verdict",
]

_LANGUAGE: dict[str, dict[str, Any]] = {  # Appendix 4 of the paper
    "ptb-words": {"context": 64, "batch_size": 128, "stateful": False, "embedding_size": 64},
    "ptb-chars": {"context": 512, "batch_size": 64, "stateful": True, "embedding_size": 16},
    "enwik8": {"context": 256, "batch_size": 64, "stateful": True, "embedding_size": 32},
    "text8": {"context": 256, "batch_size": 64, "stateful": True, "embedding_size": 32},
}
_LIMITS = {"context", "batch_size", "limit", "evaluation_limit"}
_MUSIC = {"output", "output_units", "key_order", "transposition"}
_OF_DATA = {"verify", "line_ends"}


def task_names() -> tuple[str, ...]:
    """Returns the names of all tasks, which are the names of their data sets."""
    return tuple(data.CATALOGUE)


def model(
    kind: str,
    cell: str,
    options: Mapping[str, Any],
    budget: int,
    *,
    tokens: int | None = None,
    stateful: bool = False,
    output: str = INDEPENDENT,
    output_units: int = UNITS,
    key_order: str = LOW_HIGH,
    about: Mapping[str, Any] | None = None,
) -> Recurrent:
    """Build the model of a task without loading its data.

    **Arguments:**

    - `kind`: the kind of the data, such as `music`.
    - `cell`, `options`, `budget`: see `Task.model`.
    - `tokens`: the size of the vocabulary, if inputs are tokens.
    - `stateful`: for language, whether training carries the state from batch to batch.
    - `output`, `output_units`, `key_order`: for music, see `rru.tasks.joint.head_of`.
    - `about`: for own data, what its run keeps about it; see `rru.data.own.OwnData.about`.
    """
    if kind == "music":
        return music_model(cell, options, budget, head_of(output, output_units, key_order))
    if kind == "images":
        return image_model(cell, options, budget)
    about = about or {}
    if kind == "sequences":
        return sequence_model(cell, options, budget, _count(about, "columns"), _count(about, "classes"))
    if kind == "series":
        return series_model(cell, options, budget, Layout.from_fields(about.get("layout", {})).size)
    if tokens is None:
        raise ValueError(f"tokens must be the size of the vocabulary for {kind}, got None")
    if kind in ("reviews", "texts"):
        return review_model(cell, options, budget, tokens, 2 if kind == "reviews" else _count(about, "classes"))
    return language_model(cell, options, budget, tokens, zero_state=stateful)


def _count(about: Mapping[str, Any], what: str) -> int:
    """Returns how many classes or columns own data has; raises ValueError if that is not known."""
    found = about.get(what)
    if not isinstance(found, list) or not found:
        raise ValueError(f"what is known about the data must have a list of {what}, got {found!r}"[:200])
    return len(found)


def load(name: str, data_dir: data.Place = None, *, own: data.OwnData | None = None, **options: Any) -> Task:
    """Load a task, by default with the settings of the paper.

    **Arguments:**

    - `name`: one of `task_names()`; with `own` any name.
    - `data_dir`: the data folder, see `rru.data.load`.
    - `own`: a user's own data; it has no default settings.
    - `context`: the maximum number of steps per sequence.
    - `batch_size`: sequences per training batch.
    - `limit`, `evaluation_limit`: the maximum number of pieces, tokens, reviews or images for training, and for
      validation and test each.
    - `stateful`: for language, whether training carries the state from batch to batch.
    - `output`, `output_units`, `key_order`, `transposition`: for music, see `MusicTask`.
    - `line_ends`: for `ptb-words`, whether the end of a line is a token.
    - `verify`: whether to check the files against the catalogue.
    """
    kind = own.kind if own else data.data_set(name).kind
    known = _LIMITS | {"verify"}
    known |= _MUSIC if kind == "music" else set()
    known |= {"stateful"} if kind in ("words", "characters", "bytes") else set()
    known |= {"line_ends"} if kind == "words" else set()
    for option in options:
        if option not in known:
            raise ValueError(f"options of task {name!r} must be among {', '.join(sorted(known))}; got {option!r}")
    of_data = {key: value for key, value in options.items() if key in _OF_DATA}
    loaded = own.load(**of_data) if own else data.load(name, data_dir, **of_data)
    settings = {key: value for key, value in options.items() if key not in _OF_DATA}
    task = _made(name, loaded, settings, own=own is not None)
    task.breaks_ties = own is not None
    return task


def _made(name: str, loaded: data.Loaded, settings: Mapping[str, Any], *, own: bool) -> Task:
    match loaded:
        case data.Music():
            return MusicTask(name, loaded, rests=own, **settings)
        case data.Text():
            return LanguageTask(name, loaded, **_LANGUAGE.get(name, {"embedding_size": 32}) | dict(settings))
        case data.Reviews():
            return ReviewTask(name, loaded, **settings)
        case data.Sequences():
            return SequenceTask(name, loaded, **settings)
        case data.Images():
            return ImageTask(name, loaded, permuted=name == "pmnist", **settings)
        case data.Series():
            return SeriesTask(name, loaded, **settings)
