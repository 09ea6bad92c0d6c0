"""Whether torch records or transforms operators right now, so that nothing may bypass its dispatcher."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

PLAIN = frozenset((Tensor, nn.Parameter))
"""The classes of tensors whose memory the library may read. Others, such as FakeTensor, go through the dispatcher."""

_dispatch_modes, _tracing_state = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state
_transforms = torch._C._functorch.peek_interpreter_stack
_is_batched = torch._C._functorch.is_legacy_batchedtensor


def is_recorded() -> bool:
    """Return whether operators are being traced or intercepted."""
    return torch.compiler.is_compiling() or _tracing_state() is not None or bool(_dispatch_modes())


def transform() -> str:
    """Return which active transform only the reference supports: of torch.func or forward-mode AD; else empty."""
    if _transforms() is not None:
        return "only the reference supports torch.func transforms"
    if forward_ad._current_level >= 0:
        return "only the reference supports forward-mode differentiation"
    return ""


def goes_through_autograd(gradients: Sequence[Tensor]) -> bool:
    """Return whether a backward pass must consist of torch's own operations.

    That is so if its results are to be differentiable (`create_graph`), or `gradients`, which it gets, are many at once
    (`is_grads_batched`).
    """
    return torch.is_grad_enabled() or any(map(_is_batched, gradients))
