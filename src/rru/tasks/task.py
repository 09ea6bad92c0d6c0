"""What every task gives: model, batches, loss and metric."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rru.nn import checks
from rru.tasks.batches import Batch, Batches

SPLITS = ("train", "valid", "test")


class Task(ABC):
    """How a data set becomes batches, model, loss and metric.

    **Arguments:**

    - `name`: what it is called.
    - `context`: the most steps of a sequence that are run over at once.
    - `batch_size`: sequences in a batch of training; the last batch may have more.
    """

    metric: str
    """The score that matters, one of those `evaluate` gives."""

    higher_is_better: ClassVar[bool] = False
    """Whether a larger `metric` is a better one."""

    def __init__(self, name: str, context: int, batch_size: int) -> None:
        self.name = name
        self.context = checks.positive("context", context)
        self.batch_size = checks.positive("batch_size", batch_size)

    @abstractmethod
    def model(self, cell: str, cell_options: Mapping[str, Any], budget: int) -> nn.Module:
        """A new model, with weights from torch's generator.

        **Arguments:**

        - `cell`: the name of a registered cell.
        - `cell_options`: the layer's keyword arguments: `num_layers`, `dropout`, the cell's own; where inputs are
          tokens also `embedding_size`.
        - `budget`: the most parameters the whole model may have; its hidden size is the largest that fits.
        """

    @abstractmethod
    def steps_per_epoch(self) -> int:
        """How many batches an epoch of training has."""

    @abstractmethod
    def epoch(self, generator: torch.Generator) -> Batches:
        """The batches of one epoch of training. Their order depends on nothing but the generator's state."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """What training makes small.

        **Arguments:**

        - `model`: as `model` gives it.
        - `batch`: one of an epoch's.
        - `state`: what the batch before gave; not used where the batch is fresh.

        **Returns:** the loss, a scalar to differentiate; and the state for the next batch, free of gradients, or None
        where none is carried on.
        """

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        """Every score of a model on a split: `metric`, others by name, and `loss` in the unit of training's.

        **Arguments:** `split`: `train`, `valid` or `test`, read as a test is read.
        """
        checks.choice("split", split, SPLITS)
        with _evaluating(model):
            return self._scores(model, split)

    @abstractmethod
    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        """As `evaluate`, the model being ready for it."""


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients; afterwards every module is in the mode it was in."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in before:
            module.training = training


def limited(count: int, split: str, limit: int | None, evaluation_limit: int | None) -> int:
    """How many of the `count` things of a split are used under its limit; None is no limit."""
    name, most = ("limit", limit) if split == "train" else ("evaluation_limit", evaluation_limit)
    return count if most is None else min(count, checks.positive(name, most))
