"""The base class of tasks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rru.data import SPLITS
from rru.nn import checks
from rru.tasks.batches import Batch, Batches
from rru.tasks.metrics import Metric
from rru.tasks.models import device_of


class Task(ABC):
    """Defines batches, model, loss and metric for a data set.

    **Arguments:**

    - `name`: the name of the task.
    - `context`: the maximum number of steps per sequence.
    - `batch_size`: sequences per training batch. The last batch may have more.
    """

    metric: Metric
    """The main metric, whose `key` is a key of the result of `evaluate`."""

    starts_well = False
    """Whether the untrained model is good already, so that a training loss above its loss is no sign of divergence."""

    breaks_ties = False
    """Whether of two epochs with the same metric the one with the lower loss is better, for small validation splits."""

    def __init__(self, name: str, context: int, batch_size: int) -> None:
        self.name = name
        self.context = checks.positive("context", context)
        self.batch_size = checks.positive("batch_size", batch_size)

    @abstractmethod
    def model(self, cell: str, cell_options: Mapping[str, Any], budget: int) -> nn.Module:
        """Build a new model. Weights are drawn from the default generator of torch.

        **Arguments:**

        - `cell`: the name of a registered cell.
        - `cell_options`: keyword arguments of the layer: `num_layers`, `dropout` and the options of the cell; if inputs
          are tokens, also `embedding_size`.
        - `budget`: the maximum number of parameters of the model, which determines its hidden size.
        """

    @abstractmethod
    def steps_per_epoch(self) -> int:
        """Returns the number of batches per training epoch."""

    @abstractmethod
    def epoch(self, generator: torch.Generator) -> Batches:
        """Returns the batches of one training epoch. Their order depends only on the state of the generator."""

    def loss(self, model: nn.Module, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Computes the training loss of a batch, on the device of the model.

        **Arguments:**

        - `model`: a model from `model`.
        - `batch`: a batch from `epoch`.
        - `state`: the state that the previous batch returned; ignored if the batch is fresh.

        **Returns:** the loss, a scalar; and the detached state for the next batch, or None if the task is stateless.
        """
        loss, carried = self._loss(model, batch.to(device_of(model)), None if batch.fresh else state)
        return loss, map_state(Tensor.detach, carried)

    @abstractmethod
    def _loss(self, model: nn.Module, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        """Implements `loss` for a batch on the device of the model."""

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        """Evaluate a model on a split. Returns `metric`, further metrics by name, and `loss` as in training.

        **Arguments:** `split`: `train`, `valid` or `test`.
        """
        checks.choice("split", split, SPLITS)
        with _evaluating(model):
            return self._scores(model, split)

    @abstractmethod
    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        """Implements `evaluate` for a model in evaluation mode."""

    def calibrate(self, model: nn.Module) -> None:
        """Sets the buffers of a model that are found after an epoch, not trained, such as the width of intervals."""
        with _evaluating(model):
            self._calibrate(model)

    def _calibrate(self, model: nn.Module) -> None:  # noqa: B027
        """Implements `calibrate` for a model in evaluation mode."""

    def better(self, scores: Mapping[str, float], best: Mapping[str, float]) -> bool:
        """Returns whether the scores of an epoch are better than the best so far."""
        one, other = scores[self.metric.key], best[self.metric.key]
        if self.breaks_ties and one == other:
            return scores["loss"] < best["loss"]
        return self.metric.better(one, other)

    def details(self, model: nn.Module) -> dict[str, Any]:
        """Returns what the report shows of the test split besides scores, as JSON values; empty if there is nothing."""
        with _evaluating(model):
            return self._details(model)

    def _details(self, model: nn.Module) -> dict[str, Any]:
        """Implements `details` for a model in evaluation mode."""
        return {}


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switches to evaluation mode without gradients, and restores the mode of every module afterwards."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in before:
            module.training = training


def map_state(change: Callable[[Tensor], Tensor], state: Any) -> Any:
    """Applies a function to each tensor of a recurrent state: a tensor, a tuple of states, or None."""
    if isinstance(state, Tensor):
        return change(state)
    return None if state is None else tuple(map_state(change, part) for part in state)


def limited(count: int, split: str, limit: int | None, evaluation_limit: int | None) -> int:
    """Returns how many of the `count` items of a split to use. A limit of None uses all."""
    name, most = ("limit", limit) if split == "train" else ("evaluation_limit", evaluation_limit)
    return count if most is None else min(count, checks.positive(name, most))
