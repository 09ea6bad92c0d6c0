"""The arguments of a fused scan with the memory that its loops use, and products over all steps."""

import torch
from torch import Tensor

from rru.scan.arguments import ScanArguments
from rru.scan.fused import devices
from rru.scan.fused.rows import Masks, Pointwise

TensorSpecs = list[tuple[tuple[int, ...], torch.dtype]]
"""Shapes and dtypes of tensors."""


class FusedScan(ScanArguments):
    """The arguments of a scan.

    Matrix products take and give tensors of dtype `narrow`: that of autocast, else that of the weights. Sums, norms and
    states have the dtype of the weights, `wide`.
    """

    @property
    def wide(self) -> torch.dtype:
        """The dtype of the weights, sums, norms and states."""
        return self.weights[0].dtype

    @property
    def narrow(self) -> torch.dtype:
        """The dtype of matrix products and of what is saved for them."""
        autocast = self.spec.autocast
        return self.wide if autocast is None or self.wide == torch.float64 else autocast

    @property
    def order(self) -> range:
        """The steps in the order in which the forward loop runs them."""
        steps = range(self.x.shape[0])
        return steps[::-1] if self.spec.reverse else steps

    @property
    def pointwise(self) -> Pointwise:
        """The pointwise functions to use."""
        return devices.pointwise(self.x.device, self.wide)

    def masks(self, features: int, *, backward: bool = False) -> Masks:
        """Return the dropout masks over `features` and the ends of sequences, for `at(t)` in the order of the loop."""
        return self.pointwise.masks(self, features, self.order[::-1] if backward else self.order)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return uninitialized memory, `narrow` unless told."""
        return self.x.new_empty(shape, dtype=dtype or self.narrow)

    def rows(self, saved: Tensor | None, *shape: int) -> list[Tensor]:
        """Return the row of each step t in `saved` (T, ...), or if nothing is saved the same scratch row T times."""
        return [self.empty(*shape)] * len(self.x) if saved is None else list(saved.unbind())

    def states(self, saved: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """Return, for each step t, the rows for the state before it and after it, as products read it.

        `saved` (T, B, n) holds the state before each step, starting with the initial state.
        """
        steps, batch, _, n = self.sizes
        in_turns = [self.empty(batch, n), self.empty(batch, n)] * steps
        before = in_turns[:steps] if saved is None else list(saved.unbind())
        before[self.order[0]].copy_(self.state[0])
        last = self.empty(batch, n)  # no product reads it
        return before, [last, *before[:-1]] if self.spec.reverse else [*before[1:], last]

    def narrowed(self, *tensors: Tensor) -> list[Tensor]:
        """Return the tensors as products take them."""
        return [tensor.to(self.narrow) for tensor in tensors]

    def without_padding(self, outputs: Tensor) -> Tensor:
        """Set the outputs (T, B, p) after the end of each sequence to zero, in place."""
        if self.lengths is None:
            return outputs
        steps = torch.arange(len(outputs), device=outputs.device).unsqueeze(1)
        return outputs.masked_fill_((steps >= self.lengths).unsqueeze(2), 0)


def linear(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
    """Return x (T, B, m) times the transposed weight (q, m), plus the bias: (T, B, q), written to `out` if given."""
    if out is None:  # not a view, which users could not change in place
        out = x.new_empty(*x.shape[:2], len(weight))
    torch.addmm(bias, x.flatten(0, 1), weight.T, out=out.flatten(0, 1))
    return out


def over_steps(gradient: Tensor, values: Tensor, out: Tensor | None = None) -> Tensor:
    """Return a matrix gradient (q, m): gradient (T, B, q) times values (T, B, m), summed over T and B."""
    return torch.mm(gradient.flatten(0, 1).T, values.flatten(0, 1), out=out)


def summed(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a bias gradient (out,): gradient (T, B, out) summed over T and B."""
    return gradient.sum((0, 1), dtype=dtype)
