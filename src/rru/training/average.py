"""A running average of the weights (EMA), which is validated, tested and kept instead of the last weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

WARM_UP = 10  # the first steps average over fewer: from step t, over about t / 10 + 1 steps at most


class WeightAverage:
    """The exponential moving average of a model's parameters.

    **Arguments:** `model`: the model; `decay`: the part of the average that a step keeps.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._parameters = [parameter.detach() for parameter in model.parameters()]  # share memory with the model
        self.tensors = [parameter.clone() for parameter in self._parameters]

    def update(self, step: int) -> None:
        """Take the weights after a training step, counted from 1, into the average."""
        decay = min(self.decay, step / (WARM_UP + step))
        torch._foreach_lerp_(self.tensors, self._parameters, 1 - decay)

    def restore(self, tensors: list[Tensor]) -> None:
        """Restore the average from a checkpoint."""
        torch._foreach_copy_(self.tensors, tensors)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Give the model the averaged weights inside the `with` block."""
        last = [parameter.clone() for parameter in self._parameters]
        torch._foreach_copy_(self._parameters, self.tensors)
        try:
            yield
        finally:
            torch._foreach_copy_(self._parameters, last)
