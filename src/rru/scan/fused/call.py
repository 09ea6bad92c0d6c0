"""The arguments of a fused scan, and the memory that its loops use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rru.scan.fused import forms
from rru.scan.fused.forms import Form

MOST_STATE, MOST_UNITS = 128, 1024
"""The largest n and g of an RRU whose whole loop is one kernel. A program must hold the states, and a few units'
weights, in registers. The weights then take at most 1 MB, which stays in the second-level cache of every GPU that
Triton supports."""
Described = list[tuple[tuple[int, ...], torch.dtype]]
"""Shapes and dtypes of tensors."""


@dataclass(frozen=True)
class Call:
    """All arguments of a scan over `x` (T, B, m).

    Matrix products take and give tensors of dtype `narrow`: that of autocast, else that of the weights. Sums, norms and
    states have the dtype of the weights, `wide`.
    """

    x: Tensor
    state: list[Tensor]
    weights: list[Tensor]
    lengths: Tensor | None
    seed: Tensor | None
    dropout: float
    options: Any
    reverse: bool
    save: bool
    autocast: torch.dtype | None

    @property
    def wide(self) -> torch.dtype:
        """The dtype of the weights, sums, norms and states."""
        return self.weights[0].dtype

    @property
    def narrow(self) -> torch.dtype:
        """The dtype of matrix products and of what is saved for them."""
        return self.wide if self.autocast is None or self.wide == torch.float64 else self.autocast

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """T, B, m and n."""
        steps, batch, m = self.x.shape
        return steps, batch, m, self.state[0].shape[1]

    @property
    def order(self) -> Sequence[int]:
        """The steps in the order in which the forward loop runs them."""
        steps = range(self.x.shape[0])
        return steps[::-1] if self.reverse else steps

    @property
    def form(self) -> Form:
        """The pointwise functions to use."""
        return forms.of(self.x.device, self.wide)

    def masks(self, features: int, *, backward: bool = False) -> Any:
        """Returns the dropout masks over `features` and the ends of sequences, for `at(t)` in the order of the loop."""
        order = self.order[::-1] if backward else self.order
        return self.form.Masks(self.lengths, self.seed, self.dropout, order, self.x.shape[1], features, self.wide)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Returns uninitialized memory, `narrow` unless told."""
        return self.x.new_empty(shape, dtype=dtype or self.narrow)

    def rows(self, saved: Tensor | None, *shape: int, dtype: torch.dtype | None = None) -> list[Tensor]:
        """Returns the row of each step t in `saved` (T, ...), or if nothing is saved the same scratch row T times."""
        return [self.empty(*shape, dtype=dtype)] * len(self.x) if saved is None else list(saved.unbind())

    def states(self, saved: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """Returns, for each step t, the rows for the state before it and after it, as products read it.

        `saved` (T, B, n) holds the state before each step, starting with the initial state.
        """
        steps, batch, _, n = self.sizes
        in_turns = [self.empty(batch, n), self.empty(batch, n)] * steps
        before = in_turns[:steps] if saved is None else list(saved.unbind())
        before[self.order[0]].copy_(self.state[0])
        last = self.empty(batch, n)  # no product reads it
        return before, [last, *before[:-1]] if self.reverse else [*before[1:], last]

    def narrowed(self, *tensors: Tensor) -> list[Tensor]:
        """Returns the tensors as products take them."""
        return [tensor.to(self.narrow) for tensor in tensors]

    def without_padding(self, outputs: Tensor) -> Tensor:
        """Sets the outputs (T, B, p) after the end of each sequence to zero, in place."""
        if self.lengths is None:
            return outputs
        steps = torch.arange(len(outputs), device=outputs.device).unsqueeze(1)
        return outputs.masked_fill_((steps >= self.lengths).unsqueeze(2), 0)


def linear(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
    """Returns x (T, B, m) times the transposed weight (q, m), plus the bias: (T, B, q), written to `out` if given."""
    if out is None:  # not a view, which users could not change in place
        out = x.new_empty(*x.shape[:2], len(weight))
    torch.addmm(bias, x.flatten(0, 1), weight.T, out=out.flatten(0, 1))
    return out


def over_steps(gradient: Tensor, values: Tensor, out: Tensor | None = None) -> Tensor:
    """Returns a matrix gradient (q, m): gradient (T, B, q) times values (T, B, m), summed over T and B."""
    return torch.mm(gradient.flatten(0, 1).T, values.flatten(0, 1), out=out)


def summed(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a bias gradient (out,): gradient (T, B, out) summed over T and B."""
    return gradient.sum((0, 1), dtype=dtype)


def may_use_tf32() -> bool:
    """Returns whether torch was allowed to multiply float32 in TF32, which is faster and less exact, on GPUs."""
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")
