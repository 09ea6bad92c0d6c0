"""The native scans as operators, `rru::native_forward` and `rru::native_backward`, known to autograd and to graphs."""

import operator
import struct
from array import array
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from rru.scan.kernels import KERNELS, Kernel
from rru.scan.lengths import check_lengths
from rru.scan.library import Function, addresses_of
from rru.scan.reference import State


def _memory(like: Tensor, shapes: list[tuple[int, ...]], lengths: Tensor | None) -> list[Tensor]:
    """A tensor of each shape; zeros where sequences end early and loops leave gaps."""
    return [like.new_zeros(shape) if lengths is not None else like.new_empty(shape) for shape in shapes]


def _numbers(
    x: Tensor, state: list[Tensor], seed: Tensor | None, dropout: float, reverse: bool, save: bool
) -> list[int]:
    return [*x.shape, state[0].shape[1], reverse, save, *_dropout(seed, dropout)]


def _dropout(seed: Tensor | None, rate: float) -> list[int]:
    """Seed and rate, whose bits are given as those of a whole number; zeros where there is no dropout."""
    return [0, 0] if seed is None else [int(seed), *struct.unpack("q", struct.pack("d", rate))]


def _forward_memory(
    kernel: str,
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
    options: list[int],
    save: bool,
) -> list[Tensor]:
    outputs = (*x.shape[:2], KERNELS[kernel].output_size(weights, options))
    kept = KERNELS[kernel].kept(x, weights, options) if save else []
    return [*_memory(x, [outputs, *kept], lengths), *map(torch.empty_like, state)]


@torch.library.custom_op("rru::native_forward", mutates_args=(), device_types="cpu")
def forward(
    kernel: str,
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    options: list[int],
    reverse: bool,
    save: bool,
) -> list[Tensor]:
    """[outputs (T, B, p), *what the backward pass needs, if it is to be saved, *last state]."""
    check_lengths(lengths, x.shape[0])
    results = _forward_memory(kernel, x, state, weights, lengths, options, save)
    last, rest = results[-len(state) :], results[: -len(state)]
    tensors = [*last, lengths, x, *state, *weights, *rest]
    numbers = [*_numbers(x, state, seed, dropout, reverse, save), *options]
    Function(f"{kernel}_forward", x.dtype, numbers)(addresses_of(tensors))
    return results


@forward.register_fake
def _(
    kernel: str,
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    options: list[int],
    reverse: bool,
    save: bool,
) -> list[Tensor]:
    return _forward_memory(kernel, x, state, weights, lengths, options, save)


@torch.library.custom_op("rru::native_backward", mutates_args=(), device_types="cpu")
def backward(
    gradients: list[Tensor],
    kernel: str,
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    kept: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    options: list[int],
    reverse: bool,
) -> list[Tensor]:
    """Gradients of [x, *state, *weights], given those of [outputs, *last state]; `kept` begins with the outputs."""
    grad_state = [torch.empty_like(part) for part in state]
    left = _memory(x, KERNELS[kernel].left(x, weights, options, kept[1:]), lengths)
    tensors = [lengths, x, *state, *weights, *kept, *gradients, *grad_state, *left]
    numbers = [*_numbers(x, state, seed, dropout, reverse, True), *options]
    Function(f"{kernel}_backward", x.dtype, numbers)(addresses_of(tensors))
    grad_x, *grad_weights = KERNELS[kernel].gradients(x, weights, options, kept[1:], left)
    found = [grad_x, *grad_state, *grad_weights]
    return [
        gradient.clone(memory_format=torch.contiguous_format) if gradient._is_view() else gradient for gradient in found
    ]


@backward.register_fake
def _(
    gradients: list[Tensor], kernel: str, x: Tensor, state: list[Tensor], weights: list[Tensor], *_: Any
) -> list[Tensor]:
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (x, *state, *weights)]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    kernel, x, state, weights, lengths, seed, dropout, options, reverse, _ = inputs
    kept = output[1 : -len(state)]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*kept)
    ctx.kernel, ctx.rest = kernel, (dropout, options, reverse)
    ctx.sizes = len(state), len(weights)
    ctx.save_for_backward(x, lengths, seed, *state, *weights, output[0], *kept)


def _backward(ctx: Any, gradients: list[Tensor | None]) -> tuple[Any, ...]:
    x, lengths, seed, *tensors = ctx.saved_tensors
    states, count = ctx.sizes
    state, weights, kept = tensors[:states], tensors[states : states + count], tensors[states + count :]
    ends = [gradients[0], *gradients[-states:]]
    given = [
        torch.zeros_like(result) if gradient is None else gradient.contiguous()
        for gradient, result in zip(ends, [kept[0], *state], strict=True)
    ]
    first, *found = backward(given, ctx.kernel, x, state, weights, kept, lengths, seed, *ctx.rest)
    return None, first, found[:states], found[states:], *[None] * 6


forward.register_autograd(_backward, setup_context=_setup_context)


def _backward_again(ctx: Any, gradients: list[Tensor]) -> None:
    raise RuntimeError("native scans have no gradients of gradients: use backend='reference' for these")


backward.register_autograd(_backward_again)


def _laid_out(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor as the library reads it; asking first is much faster than torch's doing nothing."""
    return tensor if tensor.dtype == dtype and tensor.is_contiguous() else tensor.to(dtype).contiguous()


def _checked_weights(cell: Any, named: dict[str, Tensor]) -> list[Tensor]:
    """The weights as the library reads them, which sees addresses and no shapes."""
    dtype, shapes = cell.dtype, cell.weight_shapes
    for name, weight in named.items():
        if weight.shape != shapes[name]:
            raise ValueError(f"{name} must have shape {tuple(shapes[name])}, got {tuple(weight.shape)}")
        if weight.dtype != dtype:
            raise TypeError(f"{name} must be {dtype} as the other weights are, got {weight.dtype}")
    return [_laid_out(weight, dtype) for weight in KERNELS[cell.kernel].weights(cell, named)]


def scan(
    cell: Any, inputs: Tensor, state: State, lengths: Tensor | None, seed: Tensor | None, reverse: bool
) -> tuple[Tensor, State]:
    """Runs a cell that has a kernel over `inputs` (T, B, m): as `reference.scan`.

    Under autocast it computes in the weights' own type, and only gives its outputs the type the reference gives them.
    """
    name, dtype = cell.kernel, cell.dtype
    kernel = KERNELS[name]
    inputs, *before = (_laid_out(tensor, dtype) for tensor in (inputs, *state))
    weights = _checked_weights(cell, cell.named_weights())
    lengths = None if lengths is None else _laid_out(lengths, torch.int64)
    save = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (inputs, *before, *weights))
    options = [int(option) for option in kernel.options(cell)]
    outputs, *results = forward(name, inputs, before, weights, lengths, seed, cell.dropout, options, reverse, save)
    return _as_autocast(kernel, outputs), tuple(results[-len(state) :])


class _Step(NamedTuple):
    """A step as the library did it, and all that was looked at before it did."""

    given: list[tuple[Any, ...]]  # what input, state
    weights: list[tuple[Any, ...]]  # and weights were, these with their places,
    options: str  # and the cell's options: a step for which all this is the same needs no other check
    outputs: tuple[int, int]  # their shape
    function: Function
    addresses: "array[int]"


_WORTH_A_THREAD = 16_000_000  # weights times sequences: for fewer, another thread takes longer to start than it saves
_last: WeakKeyDictionary[Any, _Step] = WeakKeyDictionary()


def _look(tensor: Tensor) -> tuple[Any, ...]:
    return type(tensor), tensor.dtype, tensor.shape, tensor.is_cpu, tensor.is_contiguous(), tensor.is_neg()


def _look_at_weights(cell: Any) -> list[tuple[Any, ...]]:
    return [
        (name, type(weight), weight.data_ptr(), weight.dtype, weight.shape, weight.is_contiguous())
        for name, weight in cell._parameters.items()
    ]


def step_again(cell: Any, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor] | None:
    """A step like the cell's last one, without gradients or dropout; None where anything is not as it was then.

    At batch 1 all that Python does costs more than the step itself, so there is as little of it as can be.
    """
    known = _last.get(cell)
    if (
        known is None
        or known.options is not cell.options
        or known.given != [_look(x), _look(state)]
        or known.weights != _look_at_weights(cell)
    ):
        return None
    outputs, last = x.new_empty(known.outputs), torch.empty_like(state)
    addresses = known.addresses[:]  # its own, as other threads may be here
    addresses[0], addresses[2], addresses[3] = last.data_ptr(), x.data_ptr(), state.data_ptr()
    addresses[-1] = outputs.data_ptr()
    known.function(addresses)
    return outputs, last


def step(cell: Any, weights: dict[str, Tensor], x: Tensor, state: State, seed: Tensor | None) -> tuple[Tensor, State]:
    """One step on x (B, m), of which nothing is to be differentiated or recorded: as `scan`, but without a detour."""
    dtype, (batch, m) = cell.dtype, x.shape
    given = (x, *state)
    taken = [_laid_out(tensor.resolve_neg(), dtype) for tensor in given]  # as the dispatcher would
    checked = _checked_weights(cell, weights)
    shape = (batch, cell.output_size)
    outputs = taken[0].new_empty(shape)
    last = [torch.empty_like(part) for part in taken[1:]]
    options = KERNELS[cell.kernel].options(cell)
    numbers = [1, batch, m, cell.hidden_size, 0, 0, *_dropout(seed, cell.dropout), *options]
    alone = batch * sum(weight.numel() for weight in checked) < _WORTH_A_THREAD
    function = Function(f"{cell.kernel}_forward", dtype, numbers, alone=alone)
    addresses = addresses_of([*last, None, *taken, *checked, outputs])
    function(addresses)
    used, had = [*taken, *checked], [*given, *weights.values()]
    if seed is None and len(state) == 1 and all(map(operator.is_, used, had)):  # none was made for this step
        _last[cell] = _Step(
            [_look(tensor) for tensor in given], _look_at_weights(cell), cell.options, shape, function, addresses
        )
    return _as_autocast(KERNELS[cell.kernel], outputs), tuple(last)


def _as_autocast(kernel: Kernel, outputs: Tensor) -> Tensor:
    """Outputs in the type the reference gives them."""
    if not (kernel.linear_outputs and torch.is_autocast_enabled("cpu")):
        return outputs
    return outputs.to(torch.get_autocast_dtype("cpu"))
