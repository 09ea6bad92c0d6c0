"""The interface of the time loops. Each cell has its own file, with one loop forward and one backward.

As in the reference, everything that needs no earlier step is outside the loop: the products with all inputs before it,
readouts and weight gradients after it. The loops only launch kernels: they read nothing back from the device, and
allocate no memory but what a torch operation of `torch_form` needs.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rru.scan.fused.call import Call, Described


class FusedCell(ABC):
    """The loops of a cell. Weights and options are in the order of `NATIVE_CELLS`."""

    @abstractmethod
    def outputs(self, call: Call) -> tuple[tuple[int, ...], torch.dtype]:
        """Returns the shape and dtype of the outputs."""

    @abstractmethod
    def saved(self, call: Call) -> Described:
        """Returns the shapes and dtypes of what the forward pass saves for the backward pass."""

    @abstractmethod
    def forward(self, call: Call, saved: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Writes to `saved`, which is empty if nothing is to be saved. Returns the outputs and the last state."""

    @abstractmethod
    def backward(self, call: Call, saved: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Returns the gradients of [x, *state, *weights], given those of [outputs, *last state]."""


class GatedCell(FusedCell):
    """What LSTM, GRU and Mogrifier have in common: the output is h."""

    def outputs(self, call: Call) -> tuple[tuple[int, ...], torch.dtype]:
        steps, batch, _, n = call.sizes
        return (steps, batch, n), call.wide
