"""Run a cell with a native scan: as one autograd function in eager code, as one operator in a graph."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rru.scan import reference
from rru.scan.arguments import ScanArguments, ScanSpec, as_contiguous, needs_gradient
from rru.scan.autograd import differentiate, save_for_backward
from rru.scan.cells import AnyCell
from rru.scan.kernels import KERNELS
from rru.scan.native import call, operators
from rru.scan.native.library import BUILT, COMPUTED_IN
from rru.scan.recording import PLAIN, is_recorded, transform
from rru.scan.reference import ScanInputs, State
from rru.scan.weights import checked_weights


def why_not(cell: AnyCell, x: Tensor) -> str:
    """Return why the native scan cannot run this cell on these inputs; empty if it can."""
    if cell.native_step is None:
        return f"{cell.built_as.__name__} has no native scan"
    if not x.is_cpu:
        return f"native scans run on the CPU, the input is on {x.device}"
    dtype = cell.some_weight().dtype
    if dtype not in COMPUTED_IN:
        return f"native scans take weights of 16, 32 or 64 bits, these are {dtype}"
    if not torch.compiler.is_compiling() and (problem := transform()):
        return problem
    return "" if BUILT else "the native scans are not part of this build"


def scan(cell: AnyCell, inputs: ScanInputs) -> tuple[Tensor, State]:
    """Run a cell with a native scan; see `reference.scan`.

    It computes in the dtype of the weights, or in float32 if that has 16 bits, and returns the reference's dtypes.
    """
    dtype, step, states = cell.some_weight().dtype, cell.native_step, len(inputs.state)
    assert step is not None
    mask, reset_to = (None, ()) if inputs.resets is None else inputs.resets
    x, *state = [as_contiguous(tensor, COMPUTED_IN[dtype]) for tensor in (inputs.x, *inputs.state, *reset_to)]
    mask = None if mask is None else as_contiguous(mask, torch.bool)
    weights = checked_weights(cell, cell.weights())
    lengths = None if inputs.lengths is None else as_contiguous(inputs.lengths, torch.int64)
    spec = ScanSpec(step.kernel, step.options, cell.dropout, inputs.reverse, cell.options, product_dtype(dtype))
    arguments = ScanArguments(spec, x, state, weights, lengths, inputs.seed, mask)
    tensors = [x, *state, *weights]
    save = needs_gradient(*tensors)
    if is_recorded() or not PLAIN.issuperset(map(type, tensors)):
        outputs, *results = operators.forward(arguments, save)
    elif save:
        outputs, *results = _Scan.apply(arguments, *tensors)  # type: ignore[no-untyped-call]
    else:
        outputs, *results = call.forward(arguments, save)
    return in_dtype(dtype, spec.kernel, outputs, results[-states:])


class _Scan(torch.autograd.Function):
    """A native scan in eager code."""

    @staticmethod
    def forward(ctx: Any, arguments: ScanArguments, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return outputs (T, B, p) and the last state. `tensors` are those of the arguments, for autograd to see."""
        results = call.forward(arguments, True)
        save_for_backward(ctx, arguments, results)
        return results[0], *results[-len(arguments.initial_state) :]

    @staticmethod
    def backward(ctx: Any, *ends: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of all arguments of `forward`."""
        run = operators.backward if is_recorded() else call.backward
        return None, *differentiate(ctx, ends, run, ctx.needs_input_grad[1])


def product_dtype(dtype: torch.dtype) -> torch.dtype | None:
    """Return bfloat16 if a scan with weights of `dtype` rounds what it multiplies to bfloat16, else None."""
    narrow = reference.autocast_dtype("cpu") if dtype in (torch.float32, torch.float16) else dtype
    return torch.bfloat16 if narrow == torch.bfloat16 else None


def in_dtype(dtype: torch.dtype, kernel: str, outputs: Tensor, last: Sequence[Tensor]) -> tuple[Tensor, State]:
    """Return outputs and last state in the dtypes that the reference returns for weights of `dtype`."""
    if outputs.dtype != dtype:
        outputs, last = outputs.to(dtype), [part.to(dtype) for part in last]
    if KERNELS[kernel].linear_outputs and torch.is_autocast_enabled("cpu"):
        outputs = outputs.to(torch.get_autocast_dtype("cpu"))
    return outputs, tuple(last)
