"""Calls of the native scans on plain tensors, forward and backward, without autograd."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rru.scan import library
from rru.scan.lengths import check_lengths
from rru.scan.library import Function, memory_of
from rru.scan.native_cell import Room, Shapes
from rru.scan.native_rru import RRUOptions
from rru.scan.native_wide import FORMS, is_wide

_SMALL = (
    16_000_000  # steps x sequences x weights; below this, starting a thread or calling torch costs more than it saves
)


class ScanSpec(NamedTuple):
    """What a scan computes, besides its tensors. `options` are the cell's, in the order of its `Options`."""

    kernel: str
    options: tuple[int, ...]
    dropout: float
    reverse: bool
    cell_options: str = ""  # `cell.options`, which only gradients of gradients need
    autocast: torch.dtype | None = None  # the dtype of products, unless it is that of the weights


def in_best_form(call: ScanSpec, x: Tensor, n: int, seed: Tensor | None) -> ScanSpec:
    """Returns the call with the loops that are fastest: a wide RRU has its own."""
    if call.kernel != "rru" or seed is None or call.autocast == torch.bfloat16:
        return call
    return call._replace(kernel="rru_wide") if is_wide(x, n, RRUOptions(*call.options), call.dropout) else call


def scan_numbers(
    kernel: str,
    x_shape: Sequence[int],
    n: int,
    options: Sequence[int],
    *,
    reverse: bool,
    save: bool,
    has_lengths: bool,
    bfloat16: bool = False,
) -> dict[str, int]:
    """Returns the numbers that a scan takes, in the order in which native/scan.h and its cells read them."""
    steps, batch, m = x_shape
    cell = FORMS[kernel]
    return {
        "steps": steps,
        "batch": batch,
        "input_size": m,
        "hidden_size": n,
        "reverse": int(reverse),
        "save": int(save),
        "has_lengths": int(has_lengths),
        "seed": 0,
        "dropout": 0,  # see `Function.seeded`
        "bfloat16": int(bfloat16),
        **cell.numbers(n, cell.Options(*options)),
    }


@functools.lru_cache(maxsize=1024)
def _function(
    name: str,
    call: ScanSpec,
    dtype: torch.dtype,
    x_shape: torch.Size,
    n: int,
    save: bool,
    has_lengths: bool,
    own: tuple[tuple[str, int], ...],
    alone: bool,
    instruction_set: str,
) -> Function:
    fixed = {
        "reverse": call.reverse,
        "save": save,
        "has_lengths": has_lengths,
        "bfloat16": call.autocast == torch.bfloat16,
    }
    numbers = scan_numbers(call.kernel, x_shape, n, call.options, **fixed)
    return Function(f"{call.kernel}_{name}", dtype, numbers | dict(own), alone=alone)


def _function_for(
    name: str,
    call: ScanSpec,
    x: Tensor,
    n: int,
    lengths: Tensor | None,
    seed: Tensor | None,
    save: bool,
    small: bool,
    own: dict[str, int],
) -> Function:
    """Returns the library's function for a scan. Making one takes longer than a short scan, so they are kept."""
    always, has_lengths, numbers = call._replace(dropout=0.0, cell_options=""), lengths is not None, tuple(own.items())
    found = _function(name, always, x.dtype, x.shape, n, save, has_lengths, numbers, small, library.instruction_set)
    return found if seed is None else found.seeded(int(seed), call.dropout)


def _is_small(x: Tensor, weights: Sequence[Tensor]) -> bool:
    return x.shape[0] * x.shape[1] * sum(weight.numel() for weight in weights) < _SMALL


def _allocate(like: Tensor, shapes: Shapes, lengths: Tensor | None) -> list[Tensor]:
    """Returns a tensor for each shape. With lengths they are zeroed, because the loops skip steps past the end."""
    rooms = [shape if isinstance(shape, Room) else Room(shape) for shape in shapes]
    return [
        like.new_zeros(shape, dtype=dtype) if whole and lengths is not None else like.new_empty(shape, dtype=dtype)
        for shape, dtype, whole in rooms
    ]


def allocate_results(
    call: ScanSpec, x: Tensor, state: Sequence[Tensor], lengths: Tensor | None, save: bool
) -> list[Tensor]:
    """Allocates [outputs, *saved, *last state] for the forward loop to write to. `call` must be in its best form."""
    cell, n = FORMS[call.kernel], state[0].shape[1]
    known = cell.Options(*call.options)
    outputs = (*x.shape[:2], cell.numbers(n, known)["output_size"])
    saved = cell.saved(x, n, known) if save else []
    return [*_allocate(x, [outputs, *saved], lengths), *map(torch.empty_like, state)]


def forward(
    call: ScanSpec,
    x: Tensor,
    state: Sequence[Tensor],
    weights: Sequence[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    save: bool,
) -> list[Tensor]:
    """Returns [outputs (T, B, p), *saved, *last state]. With `save`, `saved` is what the backward pass needs."""
    check_lengths(lengths, x.shape[0])
    call = in_best_form(call, x, state[0].shape[1], seed)
    results = allocate_results(call, x, state, lengths, save)
    tensors = [
        *([] if lengths is None else [lengths]),
        x,
        *state,
        *weights,
        *results,
        *FORMS[call.kernel].derived(weights),
    ]
    small = _is_small(x, weights)
    function = _function_for("forward", call, x, state[0].shape[1], lengths, seed, save, small, {})
    function(memory_of(tensors))
    return results


def backward(
    call: ScanSpec,
    gradients: Sequence[Tensor],
    x: Tensor,
    state: Sequence[Tensor],
    weights: list[Tensor],
    saved: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    wants_x: bool = True,
) -> list[Tensor | None]:
    """Returns the gradients of [x, *state, *weights], given those of [outputs, *last state].

    `saved` is what the forward pass returned for it. Without `wants_x`, the gradient of x is None.
    """
    n = state[0].shape[1]
    call = in_best_form(call, x, n, seed)
    cell = FORMS[call.kernel]
    options = cell.Options(*call.options)
    own = cell.backward_numbers(n, options, saved, wants_x)
    grad_state = [torch.empty_like(part) for part in state]
    left = _allocate(x, cell.left(x, n, options, own), lengths)
    read = [*([] if lengths is None else [lengths]), x, *state, *weights, *saved, *gradients]
    small = _is_small(x, weights)
    function = _function_for("backward", call, x, n, lengths, seed, True, small, own)
    function(memory_of([*read, *grad_state, *left]))
    arguments = cell.small_gradients(weights, options, saved, left) if small else None
    if arguments is not None:
        grad_x, *grad_weights = _small_gradients(call.kernel, x, gradients, weights, wants_x, *arguments)
        return [grad_x, *grad_state, *grad_weights]
    grad_x, bfloat16 = cell.input_gradient(weights, left) if wants_x else None, call.autocast == torch.bfloat16
    return [grad_x, *grad_state, *cell.gradients(x, weights, options, saved, left, bfloat16)]


def _small_gradients(
    kernel: str,
    x: Tensor,
    gradients: Sequence[Tensor],
    weights: list[Tensor],
    wants_x: bool,
    own: dict[str, int],
    tensors: list[Tensor],
) -> list[Tensor | None]:
    """Returns the gradients of [x, *weights], computed by the library; the last two arguments are the cell's."""
    outputs, last, *_ = gradients
    sizes = x.shape[0] * x.shape[1], x.shape[2], last.shape[1], outputs.shape[2]
    grad_x, grad_weights = torch.empty_like(x) if wants_x else None, [torch.empty_like(weight) for weight in weights]
    function = _gradients_function(kernel, x.dtype, sizes, wants_x, tuple(own.items()), library.instruction_set)
    function(memory_of([*tensors, *([] if grad_x is None else [grad_x]), *grad_weights]))
    return [grad_x, *grad_weights]


@functools.lru_cache(maxsize=1024)
def _gradients_function(
    kernel: str,
    dtype: torch.dtype,
    sizes: tuple[int, ...],
    wants_x: bool,
    own: tuple[tuple[str, int], ...],
    instruction_set: str,
) -> Function:
    names = ("tokens", "input_size", "hidden_size", "output_size")
    numbers = dict(zip(names, sizes, strict=True)) | {"wants_x": int(wants_x)} | dict(own)
    return Function(f"{kernel}_gradients", dtype, numbers, alone=True)
