"""What a native or fused scan keeps for its backward pass, and its gradients; the same in eager code and in graphs."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rru.scan import reference
from rru.scan.native_calls import ScanSpec
from rru.scan.native_cells import NATIVE_CELLS
from rru.scan.operator import registered

Backward = Callable[..., list[Tensor | None]]
"""A function that takes what `native_calls.backward` takes and returns what it returns."""


def remember(
    ctx: Any,
    call: ScanSpec,
    x: Tensor,
    state: Sequence[Tensor],
    weights: Sequence[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    results: list[Tensor],
) -> None:
    """Keeps what the backward pass needs; `results` is what the forward pass returned."""
    states = len(state)
    ctx.set_materialize_grads(False)
    ctx.call, ctx.sizes, ctx.outputs = call, (states, len(weights)), (results[0].shape, results[0].dtype)
    # not the outputs: users may change them in place
    ctx.save_for_backward(x, lengths, seed, *state, *weights, *results[1:-states])


def differentiate(
    ctx: Any, ends: Sequence[Tensor | None], backward: Backward, wants_x: bool = True
) -> list[Tensor | None]:
    """Returns the gradients of [x, *state, *weights], given those of [outputs, *last state]."""
    x, lengths, seed, *tensors = ctx.saved_tensors
    states, count = ctx.sizes
    state, weights, saved = tensors[:states], tensors[states : states + count], tensors[states + count :]
    kinds = [ctx.outputs, *((part.shape, part.dtype) for part in state)]
    given = [
        x.new_zeros(shape, dtype=dtype) if gradient is None else gradient.contiguous()
        for gradient, (shape, dtype) in zip(ends, kinds, strict=True)
    ]
    if ctx.call.cell_options and torch.is_grad_enabled():  # create_graph=True: the gradients must be differentiable
        return _differentiable(ctx.call, given, x, state, weights, lengths, seed)
    return backward(ctx.call, given, x, state, weights, saved, lengths, seed, wants_x)


def _differentiable(
    call: ScanSpec,
    gradients: list[Tensor],
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
) -> list[Tensor | None]:
    """Returns the gradients by differentiating the reference scan."""
    cell_options = NATIVE_CELLS[call.kernel].equivalent(call.cell_options)
    cell = registered[call.kernel].from_weights(weights, cell_options, call.dropout)
    with torch.autocast(x.device.type, dtype=call.autocast, enabled=call.autocast is not None):
        outputs, last = reference.scan(cell, x, tuple(state), lengths, seed, call.reverse)
    tensors = [x, *state, *weights]
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    found = iter(torch.autograd.grad([outputs, *last], wanted, gradients, create_graph=True, allow_unused=True))
    return [next(found) if tensor.requires_grad else None for tensor in tensors]
