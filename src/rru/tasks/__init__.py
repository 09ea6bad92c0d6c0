"""Tasks by name: how data becomes batches, model, loss and metric.

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
from rru.tasks.batches import Batch, Batches
from rru.tasks.classification import ClassificationTask, ImageTask, ReviewTask
from rru.tasks.language import LanguageTask
from rru.tasks.models import (
    Classifier,
    Recurrent,
    SequenceModel,
    image_model,
    language_model,
    music_model,
    review_model,
)
from rru.tasks.music import MusicTask
from rru.tasks.task import Task

__all__ = [
    "Batch",
    "Batches",
    "ClassificationTask",
    "Classifier",
    "ImageTask",
    "LanguageTask",
    "MusicTask",
    "Recurrent",
    "ReviewTask",
    "SequenceModel",
    "Task",
    "load",
    "model",
    "score",
    "task_names",
]

_LANGUAGE: dict[str, dict[str, Any]] = {  # the paper's, Appendix 4
    "ptb-words": {"context": 64, "batch_size": 128, "stateful": False, "embedding_size": 64},
    "ptb-chars": {"context": 512, "batch_size": 64, "stateful": True, "embedding_size": 16},
    "enwik8": {"context": 256, "batch_size": 64, "stateful": True, "embedding_size": 32},
    "text8": {"context": 256, "batch_size": 64, "stateful": True, "embedding_size": 32},
}
_SCORES = {  # by the kind of data
    "music": ("nll", False),
    "words": ("perplexity", False),
    "characters": ("bpc", False),
    "bytes": ("bpc", False),
    "reviews": ("accuracy", True),
    "images": ("accuracy", True),
}
_LIMITS = {"context", "batch_size", "limit", "evaluation_limit"}
_OF_DATA = {"verify", "line_ends"}


def task_names() -> tuple[str, ...]:
    """The names of all tasks, which are those of their data sets."""
    return tuple(data.CATALOGUE)


def model(
    name: str,
    cell: str,
    options: Mapping[str, Any],
    budget: int,
    *,
    tokens: int | None = None,
    stateful: bool = False,
) -> Recurrent:
    """A task's model without its data, as `Task.model` makes it.

    **Arguments:**

    - `name`: one of `task_names()`.
    - `cell`, `options`, `budget`: as for `Task.model`.
    - `tokens`: how many the vocabulary has, where inputs are tokens.
    - `stateful`: for language: whether training carries the state on.
    """
    kind = data.entry(name).kind
    if kind == "music":
        return music_model(cell, options, budget)
    if kind == "images":
        return image_model(cell, options, budget)
    if tokens is None:
        raise ValueError(f"the model of {name} depends on how many tokens there are, got none")
    if kind == "reviews":
        return review_model(cell, options, budget, tokens)
    return language_model(cell, options, budget, tokens, zero_state=stateful)


def score(name: str) -> tuple[str, bool]:
    """The metric of a task, and whether a larger one is better; known without its data."""
    return _SCORES[data.entry(name).kind]


def load(name: str, data_dir: data.Place = None, **options: Any) -> Task:
    """A task by name, with the paper's settings unless told otherwise.

    **Arguments:**

    - `name`: one of `task_names()`.
    - `data_dir`: the data folder, as for `rru.data.load`.
    - `context`: the most steps that are run over at once.
    - `batch_size`: sequences in a batch of training.
    - `limit`, `evaluation_limit`: the most pieces, tokens, reviews or images to train on, and to validate and test on.
    - `stateful`: for language: whether the state is carried on in training.
    - `line_ends`: for `ptb-words`: whether a line's end is a word.
    - `verify`: whether data must be the very files the catalogue knows.
    """
    kind = data.entry(name).kind
    known = _LIMITS | {"verify"}
    known |= {"stateful"} if name in _LANGUAGE else set()
    known |= {"line_ends"} if kind == "words" else set()
    for option in options:
        if option not in known:
            raise ValueError(f"options of the task {name!r} must be among {', '.join(sorted(known))}; got {option!r}")
    loaded = data.load(name, data_dir, **{key: value for key, value in options.items() if key in _OF_DATA})
    settings = {key: value for key, value in options.items() if key not in _OF_DATA}
    match loaded:
        case data.Music():
            return MusicTask(name, loaded, **settings)
        case data.Text():
            return LanguageTask(name, loaded, **_LANGUAGE[name] | settings)
        case data.Reviews():
            return ReviewTask(name, loaded, **settings)
        case data.Images():
            return ImageTask(name, loaded, permuted=name == "pmnist", **settings)
