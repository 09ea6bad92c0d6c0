"""What a native or fused scan saves for its backward pass, and its gradients; the same in eager code and in graphs."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rru.scan import reference
from rru.scan.arguments import ScanArguments
from rru.scan.kernels import KERNELS
from rru.scan.operator import registered
from rru.scan.reference import Resets, ScanInputs

Backward = Callable[[ScanArguments, Sequence[Tensor], list[Tensor], bool], list[Tensor | None]]
"""Take the arguments, the gradients of [outputs, *last state], what the forward pass saved, and whether x needs a
gradient. Return the gradients of [x, *state, *weights]."""


def save_for_backward(ctx: Any, arguments: ScanArguments, results: list[Tensor]) -> None:
    """Save what the backward pass needs; `results` is what the forward pass returned."""
    spec, x, state, weights, lengths, seed, resets = arguments
    ctx.set_materialize_grads(False)
    ctx.spec, ctx.sizes, ctx.outputs = spec, (len(state), len(weights)), (results[0].shape, results[0].dtype)
    # not the outputs: users may change them in place
    saved = results[1 : -len(arguments.initial_state)]
    ctx.save_for_backward(x, lengths, seed, resets, *state, *weights, *saved)


def differentiate(
    ctx: Any, ends: Sequence[Tensor | None], backward: Backward, wants_x: bool = True
) -> list[Tensor | None]:
    """Return the gradients of [x, *state, *weights], given those of [outputs, *last state]."""
    x, lengths, seed, resets, *tensors = ctx.saved_tensors
    states, count = ctx.sizes
    state, weights, saved = tensors[:states], tensors[states : states + count], tensors[states + count :]
    arguments = ScanArguments(ctx.spec, x, state, weights, lengths, seed, resets)
    kinds = [ctx.outputs, *((part.shape, part.dtype) for part in arguments.initial_state)]
    gradients = [
        x.new_zeros(shape, dtype=dtype) if gradient is None else gradient.contiguous()
        for gradient, (shape, dtype) in zip(ends, kinds, strict=True)
    ]
    if ctx.spec.cell_options and torch.is_grad_enabled():  # create_graph=True: the gradients must be differentiable
        return _differentiable(arguments, gradients)
    return backward(arguments, gradients, saved, wants_x)


def _differentiable(arguments: ScanArguments, gradients: list[Tensor]) -> list[Tensor | None]:
    """Return the gradients by differentiating the reference scan."""
    spec, x, state, weights, lengths, seed, mask = arguments
    parts = len(arguments.initial_state)
    cell_options = KERNELS[spec.kernel].equivalent(spec.cell_options)

    def run(x: Tensor, *tensors: Tensor) -> list[Tensor]:
        before, reset_to, views = tensors[:parts], tensors[parts : len(state)], list(tensors[len(state) :])
        resets = None if mask is None else Resets(mask, reset_to)
        cell = registered[spec.kernel].from_weights(views, cell_options, spec.dropout)
        with torch.autocast(x.device.type, dtype=spec.autocast, enabled=spec.autocast is not None):
            outputs, last = reference.scan(cell, ScanInputs(x, before, lengths, seed, spec.reverse, resets))
        return [outputs, *last]

    return differentiate_through(run, [x, *state, *weights], gradients)


def differentiate_through(
    run: Callable[..., list[Tensor]], tensors: Sequence[Tensor], gradients: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the gradients of a function's arguments, given those of its results; differentiable if autograd is on."""
    with torch.enable_grad():
        # Views, because x and the state may come from a call with the same weights, whose gradients do not belong here.
        views = [tensor.view_as(tensor) for tensor in tensors]
        results = run(*views)
    wanted = [view for view in views if view.requires_grad]
    differentiable = torch.is_grad_enabled()
    computed = torch.autograd.grad(results, wanted, gradients, create_graph=differentiable, allow_unused=True)
    remaining = iter(computed)
    return [next(remaining) if view.requires_grad else None for view in views]
