"""The interface of the time loops. Each cell has its own file, with one loop forward and one backward.

As in the reference, everything that needs no earlier step is outside the loop: the products with all inputs before it,
readouts and weight gradients after it. The loops only launch kernels: they read nothing back from the device, and
allocate no memory but what an operation of `pointwise` needs.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from rru.scan.fused.scan import FusedScan, TensorSpecs


class FusedCell(ABC):
    """The loops of a cell. Weights and options are in the order of `NATIVE_CELLS`."""

    @abstractmethod
    def outputs(self, scan: FusedScan) -> tuple[tuple[int, ...], torch.dtype]:
        """Return the shape and dtype of the outputs."""

    @abstractmethod
    def saved(self, scan: FusedScan) -> TensorSpecs:
        """Return the shapes and dtypes of what the forward pass saves for the backward pass."""

    @abstractmethod
    def forward(self, scan: FusedScan, saved: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Write to `saved`, which is empty if nothing is to be saved. Return the outputs and the last state."""

    @abstractmethod
    def backward(self, scan: FusedScan, saved: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Return the gradients of [x, *state, *weights], given those of [outputs, *last state]."""


class GatedCell(FusedCell):
    """What LSTM, GRU and Mogrifier have in common: the output is h."""

    def outputs(self, scan: FusedScan) -> tuple[tuple[int, ...], torch.dtype]:
        steps, batch, _, n = scan.sizes
        return (steps, batch, n), scan.wide
