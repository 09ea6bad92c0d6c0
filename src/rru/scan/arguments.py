"""The arguments of a scan, as the loops of a kernel take them: plain contiguous tensors, and what is not a tensor."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class ScanSpec(NamedTuple):
    """What a scan computes, besides its tensors."""

    kernel: str
    options: Any  # the kernel's `Options`
    dropout: float
    reverse: bool
    cell_options: str = ""  # `cell.options`, which only gradients of gradients need
    autocast: torch.dtype | None = None  # the dtype of products, unless it is that of the weights

    @property
    def bfloat16(self) -> bool:
        """Whether products round their factors to bfloat16."""
        return self.autocast is torch.bfloat16


class ScanArguments(NamedTuple):
    """All arguments of a scan over `x` (T, B, m), from `state`, (B, n) each.

    `weights` are those of the kernel, in its order. `lengths` (B,) are int64; None means that all are T. `seed` is that
    of the dropout masks; None turns dropout off. `resets` (T, B) are boolean: whether to reset the state before a step.
    With them, `state` holds the initial state and after it the one to reset to.
    """

    spec: ScanSpec
    x: Tensor
    state: Sequence[Tensor]
    weights: Sequence[Tensor]
    lengths: Tensor | None
    seed: Tensor | None
    resets: Tensor | None = None

    @property
    def initial_state(self) -> Sequence[Tensor]:
        """The state before the first step."""
        return self.state if self.resets is None else self.state[: len(self.state) // 2]

    @property
    def reset_state(self) -> Sequence[Tensor]:
        """The state to reset to; empty without resets."""
        return self.state[len(self.initial_state) :]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """T, B, m and n."""
        steps, batch, m = self.x.shape
        return steps, batch, m, self.state[0].shape[1]


def as_contiguous(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the tensor contiguous and in `dtype`. Checking first is much faster than calls that do nothing."""
    if not torch.compiler.is_compiling() and tensor.is_neg():  # in a graph, the dispatcher resolves it
        tensor = tensor.resolve_neg()
    return tensor if tensor.dtype == dtype and tensor.is_contiguous() else tensor.to(dtype).contiguous()


def needs_gradient(*tensors: Tensor) -> bool:
    """Return whether autograd records what is computed from these tensors."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
