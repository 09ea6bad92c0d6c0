"""The native scans' algorithm on any device: few launches a step, a hand-written backward pass, one node in a graph."""

from typing import Any

import torch
from torch import Tensor

from rru.scan import reference
from rru.scan.fused import selfcheck, vendor
from rru.scan.fused.operators import forward
from rru.scan.native import checked_weights, laid_out
from rru.scan.native_cells import NATIVE_CELLS
from rru.scan.recording import transform
from rru.scan.reference import State

REFERENCE_DEVICES = {"cpu", "meta"}
DTYPES = (torch.float32, torch.float64)


def why_not(cell: Any, inputs: Tensor) -> str:
    """Returns why the fused scan cannot run this cell on these inputs; empty if it can."""
    if cell.native_step is None:
        return f"{cell.built_as.__name__} has no fused scan"
    if (dtype := cell.some_weight().dtype) not in DTYPES:
        return f"fused scans take float32 and float64 weights, and autocast for 16 bits, the weights are {dtype}"
    return "" if torch.compiler.is_compiling() else transform()


def scan(
    cell: Any, inputs: Tensor, state: State, lengths: Tensor | None, seed: Tensor | None, reverse: bool
) -> tuple[Tensor, State]:
    """Runs one of the four cells over `inputs` (T, B, m); see `reference.scan`.

    Under autocast matrix products are computed in its dtype, sums, norms and states in that of the weights.
    """
    dtype, native_cell = cell.some_weight().dtype, NATIVE_CELLS[cell.kernel]
    if lengths is not None:
        inputs = reference.without_padding(inputs, lengths)[0]
        lengths = laid_out(lengths, torch.int64)
    inputs, *before = (laid_out(tensor, dtype) for tensor in (inputs, *state))
    weights = checked_weights(cell, cell.weights())
    save = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (inputs, *before, *weights))
    outputs, *results = forward(
        cell.kernel,
        inputs,
        before,
        weights,
        lengths,
        seed,
        cell.dropout,
        list(native_cell.options(cell)),
        reverse,
        save,
        reference.autocast_dtype(inputs.device.type),
        cell.options,
    )
    return outputs, tuple(results[-len(state) :])


def auto(
    cell: Any, inputs: Tensor, state: State, lengths: Tensor | None, seed: Tensor | None, reverse: bool
) -> tuple[Tensor, State] | None:
    """Runs what `backend="auto"` takes on devices other than CPUs; returns None where that is the reference."""
    if inputs.device.type in REFERENCE_DEVICES:
        return None
    if vendor.computes(cell, inputs, lengths, seed):
        return vendor.scan(cell, inputs, state, reverse)
    if not why_not(cell, inputs) and selfcheck.is_trusted(cell, inputs.device, seed):
        return scan(cell, inputs, state, lengths, seed, reverse)
    return None
