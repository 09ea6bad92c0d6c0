"""What a cell with a native scan tells PyTorch: the arguments of its C++ loops, and its weight gradients.

The loops are in native/. Weight gradients are products over all steps, computed after the backward loop.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from rru.scan import thresholds
from rru.scan.arguments import ScanArguments


class TensorSpec(NamedTuple):
    """A buffer with its own dtype, only partly written (`whole` is False), or a result that callers see."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None = None
    whole: bool = True
    returned: bool = False


Shapes = list[tuple[int, ...] | TensorSpec]


def is_small(arguments: ScanArguments) -> bool:
    """Return whether one thread runs the scan, and computes all its gradients."""
    steps, batch, _ = arguments.x.shape
    return steps * batch * sum([weight.numel() for weight in arguments.weights]) < thresholds.MIN_PARALLEL_WORK


class BackwardPass(NamedTuple):
    """What the backward loop read and wrote."""

    arguments: ScanArguments
    saved: list[Tensor]  # written by the forward loop
    buffers: list[Tensor]  # `backward_buffers`, written by the backward loop
    numbers: dict[str, int]  # `backward_numbers`


class NativeCell(ABC):
    """Describes a cell's native scan to PyTorch."""

    name: ClassVar[str]
    """The functions of the library are `<name>_forward`, `<name>_backward` and so on."""
    rounds: ClassVar[bool] = True
    """Whether its loops multiply in bfloat16 under autocast."""
    step_numbers: ClassVar[dict[str, int]] = {}
    """`backward_numbers` for a single step."""

    def best_form(self, arguments: ScanArguments) -> "NativeCell":
        """Return the description of the loops that are fastest for these arguments."""
        return self

    def backward_form(self, arguments: ScanArguments) -> "NativeCell":
        """Return the same for the backward loop; it reads what the loop of `best_form` has saved."""
        return self.best_form(arguments)

    def numbers(self, n: int, options: Any) -> dict[str, int]:
        """Return the numbers that the loops read in addition to those of every scan. `n` is the hidden size."""
        return {"output_size": n, **options._asdict()}

    def thresholds(self) -> dict[str, int]:
        """Return the thresholds that the loops read after these, unless they are quantized."""
        return {}

    def derived(self, weights: Sequence[Tensor]) -> list[Tensor]:
        """Return tensors that the forward loop needs besides the weights, made from them."""
        return []

    @abstractmethod
    def saved(self, arguments: ScanArguments) -> Shapes:
        """Return the shapes of the tensors that the forward loop saves for the backward loop."""

    def backward_numbers(self, arguments: ScanArguments, saved: list[Tensor], wants_x: bool) -> dict[str, int]:
        """Return the numbers that only the backward loop reads. `wants_x`: whether x needs a gradient."""
        return {}

    @abstractmethod
    def backward_buffers(self, arguments: ScanArguments, numbers: dict[str, int]) -> Shapes:
        """Return the shapes of the tensors that the backward loop writes after the gradients of the initial state.

        `numbers` is what `backward_numbers` returned.
        """

    def input_gradient(self, done: BackwardPass) -> Tensor:
        """Return the gradient of x; by default, the first buffer is the gradient of W^x x."""
        return done.buffers[0] @ done.arguments.weights[0]

    @abstractmethod
    def gradients(self, done: BackwardPass) -> list[Tensor]:
        """Return the gradients of all weights. Under autocast, products may round their factors to bfloat16."""

    def small_gradients(self, done: BackwardPass) -> tuple[dict[str, int], list[Tensor]] | None:
        """Return numbers and tensors that the library needs to compute the gradients of x and of all weights.

        For small layers this is faster than calling torch. None if the library has no function for it.
        """
        return None
