"""The base class of tasks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from rru.data import SPLITS, Facts
from rru.nn import checks
from rru.tasks.batches import Batch, Batches
from rru.tasks.metrics import Metric
from rru.tasks.models import Architecture, LayerState, Options, Recurrent, device_of
from rru.tasks.settings import TaskSettings


class Task(ABC):
    """Define batches, model, loss and metric for a data set.

    **Arguments:**

    - `data`: the loaded data, which only subclasses read.
    - `settings`: how it is cut into batches, and which model it has.
    - `own`: whether it is a user's own data.
    """

    metric: Metric
    """The main metric, whose `key` is a key of the result of `evaluate`."""

    chosen_by: ClassVar[str] = ""
    """The score that epochs are compared by, the lower the better; empty if it is the metric."""

    starts_well: ClassVar[bool] = False
    """Whether the untrained model is good already, so that a training loss above its loss is no sign of divergence."""

    breaks_ties = False
    """Whether of two epochs with the same metric the one with the lower loss is better, for small validation splits."""

    settings_class: ClassVar[type[TaskSettings]] = TaskSettings
    """The class of its settings."""

    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The paper's settings by the name of the task (Appendix 4); `` has those of all others."""

    architecture: Architecture
    """Its model, except for the recurrent layers."""

    def __init__(self, data: object, settings: TaskSettings, *, own: bool = False) -> None:
        self.settings = settings
        self.name, self.context, self.batch_size = settings.name, settings.context, settings.batch_size
        self.breaks_ties = own

    @classmethod
    def of(cls, name: str, data: object, *, own: bool = False, **options: Any) -> Self:
        """Make a task with some settings; others are those of the paper, if it has this task.

        **Arguments:** `name`: its name; `data`: the loaded data; `own`: whether it is a user's; `options`: settings.
        """
        return cls(data, cls.settings_of(name, own=own, **options), own=own)

    @classmethod
    def settings_of(cls, name: str, *, own: bool = False, **options: Any) -> TaskSettings:
        """Return settings; see `of`. Raise ValueError for one that the task does not have."""
        known = sorted({each.name for each in fields(cls.settings_class)} - {"name"})
        for option in options:
            if option not in known:
                raise ValueError(f"options of task {name!r} must be among {', '.join(known)}; got {option!r}")
        defaults = {} if own else cls.defaults.get(name, cls.defaults.get("", {}))
        return cls.settings_class(name=name, **{**defaults, **options})

    @classmethod
    def architecture_of(cls, settings: TaskSettings, facts: Facts | None, tokens: int | None) -> Architecture:
        """Return the architecture of its model without loading the data.

        **Arguments:**

        - `settings`: its settings.
        - `facts`: what is known about a user's own data.
        - `tokens`: the size of the vocabulary, if inputs are tokens.
        """
        raise TypeError(f"{cls.__name__} has no model of its own")

    def model(self, cell: str, cell_options: Options, budget: int) -> Recurrent:
        """Build a new model. Weights are drawn from the default generator of torch.

        **Arguments:**

        - `cell`: the name of a registered cell.
        - `cell_options`: keyword arguments of the layer: `num_layers`, `dropout` and the options of the cell; if inputs
          are tokens, also `embedding_size`.
        - `budget`: the maximum number of parameters of the model, which determines its hidden size.
        """
        return self.architecture.build(cell, cell_options, budget)

    @abstractmethod
    def steps_per_epoch(self) -> int:
        """Return the number of batches per training epoch."""

    @abstractmethod
    def epoch(self, generator: torch.Generator) -> Batches:
        """Return the batches of one training epoch. Their order depends only on the state of the generator."""

    def loss(self, model: nn.Module, batch: Batch, state: LayerState = None) -> tuple[Tensor, LayerState]:
        """Compute the training loss of a batch, on the device of the model.

        **Arguments:**

        - `model`: a model from `model`.
        - `batch`: a batch from `epoch`.
        - `state`: the state that the previous batch returned; ignored if the batch is fresh.

        **Returns:** the loss, a scalar; and the detached state for the next batch, or None if the task is stateless.
        """
        loss, carried = self._loss(model, batch.to(device_of(model)), None if batch.fresh else state)
        return loss, map_state(Tensor.detach, carried)

    @abstractmethod
    def _loss(self, model: nn.Module, batch: Batch, state: LayerState) -> tuple[Tensor, LayerState]:
        """Implement `loss` for a batch on the device of the model."""

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        """Evaluate a model on a split. Return `metric`, further metrics by name, and `loss` as in training.

        **Arguments:** `split`: `train`, `valid` (or `validation`) or `test`.
        """
        split = "valid" if split == "validation" else split
        checks.choice("split", split, SPLITS)
        with evaluating(model):
            return self._scores(model, split)

    @abstractmethod
    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        """Implement `evaluate` for a model in evaluation mode."""

    def calibrate(self, model: nn.Module) -> None:
        """Set the buffers of a model that are found after an epoch, not trained, such as the width of intervals."""
        with evaluating(model):
            self._calibrate(model)

    def _calibrate(self, model: nn.Module) -> None:  # noqa: B027
        """Implement `calibrate` for a model in evaluation mode."""

    def inherit(self, model: nn.Module, weights: Mapping[str, Tensor]) -> None:  # noqa: B027
        """Take over what `calibrate` found from the weights of a model that was not trained on all data."""

    def better(self, scores: Mapping[str, float], best: Mapping[str, float]) -> bool:
        """Return whether the scores of an epoch are better than the best so far."""
        if self.chosen_by:
            return scores[self.chosen_by] < best[self.chosen_by]
        score, best_score = scores[self.metric.key], best[self.metric.key]
        if self.breaks_ties and score == best_score:
            return scores["loss"] < best["loss"]
        return self.metric.better(score, best_score)

    def details(self, model: nn.Module) -> dict[str, object]:
        """Return what the report shows of the test split besides scores, as JSON values; empty if there is nothing."""
        with evaluating(model):
            return self._details(model)

    def _details(self, model: nn.Module) -> dict[str, object]:
        """Implement `details` for a model in evaluation mode."""
        return {}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode without gradients, and restore the mode of every module afterwards."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in before:
            module.training = training


def map_state(change: Callable[[Tensor], Tensor], state: LayerState) -> LayerState:
    """Apply a function to each tensor of a recurrent state: a tensor, a tuple of states, or None."""
    if isinstance(state, Tensor):
        return change(state)
    return None if state is None else tuple(map(change, state))
