"""What a cell with a native scan tells PyTorch: the arguments of its C++ loops, and its weight gradients.

The loops are in native/. Weight gradients are products over all steps, computed by torch after the backward loop.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor


class Room(NamedTuple):
    """A tensor to allocate, if it has another dtype than x or the loop writes only a part of it (`whole` is False)."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None = None
    whole: bool = True


Shapes = list[tuple[int, ...] | Room]


class NativeCell(ABC):
    """Describes a cell's native scan to PyTorch.

    **Shapes:** `x` is (T, B, m); `weights` is what `weights()` returns; `options` is an instance of `Options`.
    """

    Options: ClassVar[Any]
    linear_outputs: ClassVar[bool] = False
    """Whether the outputs come from a linear map, and so have autocast's dtype under autocast."""

    def weights(self, cell: Any, named: dict[str, Tensor]) -> list[Tensor]:
        """Returns the weights, given by name, in the order in which the loops read them. Must be differentiable."""
        return list(named.values())

    def equivalent(self, cell_options: str) -> str:
        """Returns the options (JSON) of a cell that computes the same and has `weights()` as its weights."""
        return cell_options

    def options(self, cell: Any) -> Any:
        """Returns the cell's `Options`; by default, its attributes of the same names."""
        return self.Options(*(int(getattr(cell, name)) for name in self.Options._fields))

    def numbers(self, n: int, options: Any) -> dict[str, int]:
        """Returns the numbers that the loops read in addition to those of every scan. `n` is the hidden size."""
        return {"output_size": n, **options._asdict()}

    def derived(self, weights: Sequence[Tensor]) -> list[Tensor]:
        """Returns tensors that the forward loop needs besides the weights, made from them."""
        return []

    @abstractmethod
    def saved(self, x: Tensor, n: int, options: Any) -> Shapes:
        """Returns the shapes of the tensors that the forward loop saves for the backward loop."""

    def backward_numbers(self, n: int, options: Any, saved: list[Tensor], wants_x: bool) -> dict[str, int]:
        """Returns the numbers that only the backward loop reads. `wants_x`: whether x needs a gradient."""
        return {}

    @abstractmethod
    def left(self, x: Tensor, n: int, options: Any, numbers: dict[str, int]) -> Shapes:
        """Returns the shapes of the tensors that the backward loop writes after the gradients of the initial state.

        `numbers` is what `backward_numbers` returned.
        """

    def input_gradient(self, weights: list[Tensor], left: list[Tensor]) -> Tensor:
        """Returns the gradient of x; by default, `left` begins with the gradient of W^x x."""
        return left[0] @ weights[0]

    @abstractmethod
    def gradients(
        self, x: Tensor, weights: list[Tensor], options: Any, saved: list[Tensor], left: list[Tensor], bfloat16: bool
    ) -> list[Tensor]:
        """Returns the gradients of all weights, from the tensors that the loops wrote.

        With `bfloat16`, products may round their factors to it.
        """

    def small_gradients(
        self, weights: list[Tensor], options: Any, saved: list[Tensor], left: list[Tensor]
    ) -> tuple[dict[str, int], list[Tensor]] | None:
        """Returns numbers and tensors that the library needs to compute the gradients of x and of all weights.

        For small layers this is faster than calling torch. None if the library has no function for it.
        """
        return None
