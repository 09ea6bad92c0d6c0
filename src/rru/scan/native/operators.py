"""The native scans as torch operators: `rru::native_forward` and `rru::native_backward`.

The first call of an operator imports torch's compiler, which takes a second, so eager code does not use them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rru.scan import kernel_operators
from rru.scan.arguments import ScanArguments
from rru.scan.native import call


def _backward(
    arguments: ScanArguments, gradients: Sequence[Tensor], saved: list[Tensor], wants_x: bool
) -> list[Tensor | None]:
    """Run `call.backward`, and copy views: results of an operator must not share memory."""
    return [
        gradient.clone(memory_format=torch.contiguous_format)
        if gradient is not None and gradient._is_view()
        else gradient
        for gradient in call.backward(arguments, gradients, saved, wants_x)
    ]


forward, backward = kernel_operators.define(
    "native",
    kernel_operators.BackEnd(
        call.forward,
        call.allocate_results,
        _backward,
        forward_end='str cell_options="", Tensor? resets=None, *, ScalarType? autocast=None',
        backward_end="ScalarType? autocast=None, Tensor? resets=None",
        device_types="cpu",
    ),
)
