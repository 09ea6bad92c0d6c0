"""Runs a cell with a native scan: as one autograd function in eager code, as one operator in a graph."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rru.scan import native_calls, native_operator, reference
from rru.scan.library import COMPUTED_IN
from rru.scan.native_autograd import differentiate, remember
from rru.scan.native_calls import ScanSpec
from rru.scan.native_cell import NativeCell
from rru.scan.native_cells import NATIVE_CELLS
from rru.scan.recording import PLAIN, is_recorded
from rru.scan.reference import State


def scan(
    cell: Any, inputs: Tensor, state: State, lengths: Tensor | None, seed: Tensor | None, reverse: bool
) -> tuple[Tensor, State]:
    """Runs a cell with a native scan over `inputs` (T, B, m); see `reference.scan`.

    It computes in the dtype of the weights, or in float32 if that has 16 bits, and returns the reference's dtypes.
    """
    dtype, native_step = cell.some_weight().dtype, cell.native_step
    inputs, *before = [laid_out(tensor, COMPUTED_IN[dtype]) for tensor in (inputs, *state)]
    weights = checked_weights(cell, cell.weights())
    lengths = None if lengths is None else laid_out(lengths, torch.int64)
    tensors = [inputs, *before, *weights]
    save = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    call = ScanSpec(cell.kernel, native_step.options, cell.dropout, reverse, cell.options, product_dtype(dtype))
    if is_recorded() or not PLAIN.issuperset(map(type, tensors)):
        fixed = lengths, seed, call.dropout, list(call.options), reverse, save, call.cell_options
        outputs, *results = native_operator.forward(
            call.kernel, inputs, before, weights, *fixed, autocast=call.autocast
        )
    elif save:
        outputs, *results = _Scan.apply(call, len(before), lengths, seed, *tensors)  # type: ignore[no-untyped-call]
    else:
        outputs, *results = native_calls.forward(call, inputs, before, weights, lengths, seed, save)
    return in_dtype(dtype, NATIVE_CELLS[call.kernel], outputs, results[-len(before) :])


class _Scan(torch.autograd.Function):
    """A native scan in eager code."""

    @staticmethod
    def forward(
        ctx: Any, call: ScanSpec, states: int, lengths: Tensor | None, seed: Tensor | None, x: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """Returns outputs (T, B, p) and the last state. `tensors`: the initial state, then the weights."""
        state, weights = tensors[:states], tensors[states:]
        results = native_calls.forward(call, x, state, weights, lengths, seed, True)
        remember(ctx, call, x, state, weights, lengths, seed, results)
        return results[0], *results[-states:]

    @staticmethod
    def backward(ctx: Any, *ends: Tensor | None) -> tuple[Any, ...]:
        """Returns the gradients of all arguments of `forward`."""
        run = native_operator.backward_call if is_recorded() else native_calls.backward
        return None, None, None, None, *differentiate(ctx, ends, run, ctx.needs_input_grad[4])


def laid_out(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the tensor contiguous and in `dtype`. Checking first is much faster than calls that do nothing."""
    if not torch.compiler.is_compiling() and tensor.is_neg():  # in a graph, the dispatcher resolves it
        tensor = tensor.resolve_neg()
    return tensor if tensor.dtype == dtype and tensor.is_contiguous() else tensor.to(dtype).contiguous()


def checked_weights(cell: Any, named: dict[str, Tensor]) -> Sequence[Tensor]:
    """Checks the shapes and dtypes of the weights, and returns them in the layout that the library reads."""
    dtype, shapes = cell.some_weight().dtype, cell.weight_shapes
    for name, weight in named.items():
        if weight.shape != shapes[name]:
            raise ValueError(f"{name} must have shape {tuple(shapes[name])}, got {tuple(weight.shape)}")
        if weight.dtype != dtype:
            raise TypeError(f"{name} must be {dtype} as the other weights are, got {weight.dtype}")
    named = {name: laid_out(weight, COMPUTED_IN[dtype]) for name, weight in named.items()}
    return NATIVE_CELLS[cell.kernel].weights(cell, named)


def product_dtype(dtype: torch.dtype) -> torch.dtype | None:
    """Returns bfloat16 if a scan with weights of `dtype` rounds what it multiplies to bfloat16, else None."""
    narrow = reference.autocast_dtype("cpu") if dtype in (torch.float32, torch.float16) else dtype
    return torch.bfloat16 if narrow == torch.bfloat16 else None


def in_dtype(
    dtype: torch.dtype, native_cell: NativeCell, outputs: Tensor, last: Sequence[Tensor]
) -> tuple[Tensor, State]:
    """Returns outputs and last state in the dtypes that the reference returns for weights of `dtype`."""
    if outputs.dtype != dtype:
        outputs, last = outputs.to(dtype), [part.to(dtype) for part in last]
    if native_cell.linear_outputs and torch.is_autocast_enabled("cpu"):
        outputs = outputs.to(torch.get_autocast_dtype("cpu"))
    return outputs, tuple(last)
