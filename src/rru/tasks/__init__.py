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

from typing import Any

from rru import data
from rru.tasks.batches import Batch, Batches
from rru.tasks.classification import ClassificationTask, ImageTask, ReviewTask, SequenceTask
from rru.tasks.forecaster import QUANTILES, Forecaster
from rru.tasks.joint import ChainHead, JointHead, LinearJointHead, NadeHead
from rru.tasks.language import LanguageTask, WordTask, sampled
from rru.tasks.metrics import Metric, from_loss
from rru.tasks.models import Architecture, Classifier, LayerState, Options, Recurrent, SequenceModel
from rru.tasks.music import MusicTask
from rru.tasks.series import SeriesTask, beats_baselines, verdict
from rru.tasks.settings import LanguageSettings, MusicSettings, SeriesSettings, TaskSettings, WordSettings
from rru.tasks.stepwise import StepwiseWindows
from rru.tasks.task import Task, evaluating, map_state
from rru.tasks.tied import ChordNetwork, ChordStep, TiedModel
from rru.tasks.windows import SeriesPart, Windows

__all__ = [
    "QUANTILES",
    "Architecture",
    "Batch",
    "Batches",
    "ChainHead",
    "ChordNetwork",
    "ChordStep",
    "ClassificationTask",
    "Classifier",
    "Forecaster",
    "ImageTask",
    "JointHead",
    "LanguageSettings",
    "LanguageTask",
    "LayerState",
    "LinearJointHead",
    "Metric",
    "MusicSettings",
    "MusicTask",
    "NadeHead",
    "Options",
    "Recurrent",
    "ReviewTask",
    "SequenceModel",
    "SequenceTask",
    "SeriesPart",
    "SeriesSettings",
    "SeriesTask",
    "StepwiseWindows",
    "Task",
    "TaskSettings",
    "TiedModel",
    "Windows",
    "WordSettings",
    "WordTask",
    "beats_baselines",
    "evaluating",
    "from_loss",
    "load",
    "make",
    "map_state",
    "sampled",
    "task_names",
    "verdict",
]

TASKS: dict[str, type[Task]] = {
    "characters": LanguageTask,
    "words": WordTask,
    "bytes": LanguageTask,
    "music": MusicTask,
    "reviews": ReviewTask,
    "texts": ReviewTask,
    "images": ImageTask,
    "sequences": SequenceTask,
    "series": SeriesTask,
}
"""The task of each kind of data."""


def task_names() -> tuple[str, ...]:
    """Return the names of all tasks of the catalogue, which are the names of their data sets."""
    return tuple(data.CATALOGUE)


def load(name: str, data_dir: data.Place = None, *, own: data.OwnData | None = None, **options: Any) -> Task:
    """Load a task, by default with the settings of the paper.

    **Arguments:**

    - `name`: one of `task_names()`; with `own` any name.
    - `data_dir`: the data folder, see `rru.data.load`.
    - `own`: a user's own data; it has no default settings.
    - `verify`: whether to check the files against the catalogue.
    - `options`: settings, as in the table `task` of a config: `context` (the maximum number of steps per sequence),
      `batch_size`, `limit` and `evaluation_limit` (the maximum number of pieces, tokens, reviews or images for
      training, and for validation and test each); for language `stateful`, for words `line_ends`; for music `output`,
      `output_units`, `key_order` and `transposition`. See `TaskSettings` and its subclasses.
    """
    task_class = TASKS[own.kind if own else data.data_set(name).kind]
    verify = {"verify": options.pop("verify")} if "verify" in options else {}
    settings = task_class.settings_of(name, own=own is not None, **options)
    return make(settings, data_dir, own=own, **verify)


def make(
    settings: TaskSettings, data_dir: data.Place = None, *, own: data.OwnData | None = None, **verify: bool
) -> Task:
    """Load the data of a task and make the task, from its settings.

    **Arguments:** `settings`: of the class that its task needs; others as for `load`.
    """
    options = {**settings.data_options, **verify}
    loaded = own.load(**options) if own else data.load(settings.name, data_dir, **options)
    task_class = TASKS[own.kind if own else data.data_set(settings.name).kind]
    return task_class(loaded, settings, own=own is not None)
