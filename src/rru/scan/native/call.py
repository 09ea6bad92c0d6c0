"""Calls of the native scans on plain tensors, forward and backward, without autograd."""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rru.scan import thresholds
from rru.scan.arguments import ScanArguments
from rru.scan.kernels import KERNELS
from rru.scan.lengths import check_lengths
from rru.scan.native import library, scratch
from rru.scan.native.library import Function, cached_function, memory_of
from rru.scan.native.spec import BackwardPass, NativeCell, Shapes, TensorSpec, is_small


class Loop(NamedTuple):
    """A function of the library that runs a scan, with all numbers but the seed and the dropout rate.

    `numbers` are those that only a backward loop reads.
    """

    direction: str  # "forward", "backward" or "quantized"
    cell: NativeCell
    options: Any
    dtype: torch.dtype
    shape: tuple[int, ...]  # of x: T, B, m
    hidden_size: int
    single_threaded: bool
    instruction_set: str
    reverse: bool = False
    save: bool = False
    has_lengths: bool = False
    has_resets: bool = False
    bfloat16: bool = False
    numbers: tuple[tuple[str, int], ...] = ()


def scan_numbers(loop: Loop) -> dict[str, int]:
    """Return the numbers that a loop takes, in the order in which native/scan.h and its cells read them."""
    steps, batch, m = loop.shape
    return {
        "steps": steps,
        "batch": batch,
        "input_size": m,
        "hidden_size": loop.hidden_size,
        "reverse": int(loop.reverse),
        "save": int(loop.save),
        "has_lengths": int(loop.has_lengths),
        "has_resets": int(loop.has_resets),
        "seed": 0,
        "dropout": 0,  # see `Function.seeded`
        "bfloat16": int(loop.bfloat16),
        "min_packed_tokens": thresholds.MIN_PACKED_TOKENS,
        "min_team_rows": thresholds.MIN_TEAM_ROWS,
        "max_cached_weights": thresholds.MAX_CACHED_WEIGHTS,
        **loop.cell.numbers(loop.hidden_size, loop.options),
        **({} if loop.direction == "quantized" else loop.cell.thresholds()),
        **dict(loop.numbers),
    }


@functools.lru_cache(maxsize=4096)
def function_of(*fields: Any) -> Function:
    """Return the library's function for the fields of a `Loop`. Making one takes longer than a short scan."""
    loop = Loop(*fields)
    name = f"{loop.cell.name}_{loop.direction}"
    return Function(name, loop.dtype, scan_numbers(loop), single_threaded=loop.single_threaded)


def _run(loop: tuple[Any, ...], arguments: ScanArguments, tensors: Sequence[Tensor]) -> None:
    """Run the loop that has these fields on the arguments and `tensors`."""
    function, (spec, x, state, weights, lengths, seed, resets) = function_of(*loop), arguments
    if seed is not None:
        function = function.seeded(int(seed), spec.dropout)
    masks = [tensor for tensor in (lengths, resets) if tensor is not None]
    function(memory_of([*masks, x, *state, *weights, *tensors]))


def _fields(direction: str, cell: NativeCell, arguments: ScanArguments, small: bool, save: bool) -> tuple[Any, ...]:
    """Return the fields of a `Loop`, but for `numbers`."""
    spec, x, state, _, lengths, _, resets = arguments
    flags = spec.reverse, save, lengths is not None, resets is not None, spec.bfloat16 and cell.rounds
    return (direction, cell, spec.options, x.dtype, x.shape, state[0].shape[1], small, library.instruction_set, *flags)


def shapes_of(shapes: Shapes) -> list[tuple[int, ...]]:
    """Return the shapes alone."""
    return [shape.shape if isinstance(shape, TensorSpec) else shape for shape in shapes]


def _allocate(like: Tensor, shapes: Shapes, lengths: Tensor | None, kept: bool = False) -> list[Tensor]:
    """Return a tensor for each shape. With lengths, rows past the end are zeroed, because the loops skip them.

    With `kept`, large tensors with a row for each step that no caller sees are in memory that is kept for later scans.
    """

    def allocate(spec: TensorSpec) -> Tensor:
        dtype, ends = spec.dtype or like.dtype, lengths if spec.whole else None
        if not kept or len(spec.shape) < 3 or dtype not in library.DTYPES or not scratch.is_large(spec.shape, dtype):
            return (like.new_empty if ends is None else like.new_zeros)(spec.shape, dtype=dtype)
        tensor = like.new_empty(spec.shape, dtype=dtype) if spec.returned else scratch.empty(spec.shape, dtype)
        if ends is not None:
            zero_padding(tensor, ends)
        return tensor

    return [allocate(shape if isinstance(shape, TensorSpec) else TensorSpec(shape)) for shape in shapes]


def zero_padding(rows: Tensor, lengths: Tensor) -> None:
    """Set the rows past the ends of sequences to zero, in a tensor (.., T, B, size)."""
    *parts, steps, batch, size = rows.shape
    numbers = ("parts", math.prod(parts)), ("steps", steps), ("batch", batch), ("size", size)
    cached_function("zero_padding", rows.dtype, numbers, library.instruction_set)(memory_of([lengths, rows]))


def allocate_results(arguments: ScanArguments, save: bool) -> list[Tensor]:
    """Allocate [outputs, *saved, *last state] for the forward loop to write to."""
    return _allocate_results(KERNELS[arguments.spec.kernel].native.best_form(arguments), arguments, save, kept=False)


def _allocate_results(cell: NativeCell, arguments: ScanArguments, save: bool, kept: bool) -> list[Tensor]:
    steps, batch, _, n = arguments.sizes
    outputs = TensorSpec((steps, batch, getattr(arguments.spec.options, "output_size", n)), returned=True)
    shapes: Shapes = [outputs, *cell.saved(arguments)] if save else [outputs]
    return [*_allocate(arguments.x, shapes, arguments.lengths, kept), *map(torch.empty_like, arguments.initial_state)]


def forward(arguments: ScanArguments, save: bool) -> list[Tensor]:
    """Return [outputs (T, B, p), *saved, *last state]. With `save`, `saved` is what the backward pass needs."""
    check_lengths(arguments.lengths, arguments.x.shape[0])
    cell = KERNELS[arguments.spec.kernel].native.best_form(arguments)
    results = _allocate_results(cell, arguments, save, kept=True)
    loop = _fields("forward", cell, arguments, is_small(arguments), save)
    _run(loop, arguments, [*results, *cell.derived(arguments.weights)])
    return results


def backward(
    arguments: ScanArguments, gradients: Sequence[Tensor], saved: list[Tensor], wants_x: bool = True
) -> list[Tensor | None]:
    """Return the gradients of [x, *state, *weights], given those of [outputs, *last state].

    `saved` is what the forward pass returned for it. Without `wants_x`, the gradient of x is None.
    """
    spec, x, lengths = arguments.spec, arguments.x, arguments.lengths
    cell, small = KERNELS[spec.kernel].native.backward_form(arguments), is_small(arguments)
    numbers = cell.backward_numbers(arguments, saved, wants_x)
    grad_state = [torch.empty_like(part) for part in arguments.initial_state]
    grad_state += [torch.zeros_like(part) for part in arguments.reset_state]  # the loop adds to these
    buffers = _allocate(x, cell.backward_buffers(arguments, numbers), lengths, kept=True)
    loop = *_fields("backward", cell, arguments, small, True), tuple(numbers.items())
    _run(loop, arguments, [*saved, *gradients, *grad_state, *buffers])
    grad_x, *grad_weights = final_gradients(cell, BackwardPass(arguments, saved, buffers, numbers), wants_x)
    return [grad_x, *grad_state, *grad_weights]


def final_gradients(cell: NativeCell, done: BackwardPass, wants_x: bool) -> list[Tensor | None]:
    """Return the gradients of [x, *weights] after a backward loop."""
    if is_small(done.arguments) and (extra := cell.small_gradients(done)) is not None:
        return _small_gradients(cell, done.arguments, wants_x, *extra)
    return [cell.input_gradient(done) if wants_x else None, *cell.gradients(done)]


def joined(passes: Sequence[BackwardPass]) -> BackwardPass:
    """Return several backward passes over one step, which have the same options and weights, as one."""
    first = passes[0].arguments
    if len(passes) == 1:
        return passes[0]
    x = torch.cat([done.arguments.x for done in passes], 1)
    state = [torch.cat(parts) for parts in zip(*[done.arguments.state for done in passes], strict=True)]
    arguments = first._replace(x=x, state=state)
    cell = KERNELS[first.spec.kernel].native
    saved, buffers = shapes_of(cell.saved(arguments)), shapes_of(cell.backward_buffers(arguments, cell.step_numbers))
    return BackwardPass(
        arguments,
        list(map(_joined, zip(*[done.saved for done in passes], strict=True), saved)),
        list(map(_joined, zip(*[done.buffers for done in passes], strict=True), buffers)),
        passes[0].numbers,
    )


def _joined(parts: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
    """Join tensors of several steps to one of this shape: side by side, or as a sum if they have no rows."""
    axis = next((axis for axis, size in enumerate(parts[0].shape) if size != shape[axis]), None)
    return torch.stack(tuple(parts)).sum(0) if axis is None else torch.cat(tuple(parts), axis)


def _small_gradients(
    cell: NativeCell, arguments: ScanArguments, wants_x: bool, numbers: dict[str, int], tensors: list[Tensor]
) -> list[Tensor | None]:
    """Return the gradients of [x, *weights], computed by the library; the last two arguments are the cell's."""
    x, (steps, batch, m, n) = arguments.x, arguments.sizes
    fixed = (
        ("tokens", steps * batch),
        ("input_size", m),
        ("hidden_size", n),
        ("output_size", getattr(arguments.spec.options, "output_size", n)),
        ("wants_x", int(wants_x)),
    )
    named, instructions = (*fixed, *numbers.items()), library.instruction_set
    function = cached_function(f"{cell.name}_gradients", x.dtype, named, instructions, single_threaded=True)
    grad_x = torch.empty_like(x) if wants_x else None
    grad_weights = [torch.empty_like(weight) for weight in arguments.weights]
    function(memory_of([*tensors, *([] if grad_x is None else [grad_x]), *grad_weights]))
    return [grad_x, *grad_weights]
