"""Run a cell with a fused scan, as one operator."""

import torch
from torch import Tensor

from rru.scan import reference
from rru.scan.arguments import ScanArguments, ScanSpec, as_contiguous, needs_gradient
from rru.scan.cells import AnyCell
from rru.scan.fused import operators, selfcheck, vendor
from rru.scan.kernels import KERNELS, kernel_of
from rru.scan.recording import transform
from rru.scan.reference import ScanInputs, State
from rru.scan.weights import checked_weights

REFERENCE_DEVICES = {"cpu", "meta"}
DTYPES = (torch.float32, torch.float64)


def why_not(cell: AnyCell) -> str:
    """Return why the fused scan cannot run this cell; empty if it can."""
    kernel = kernel_of(cell)
    if kernel is None or kernel.fused is None:
        return f"{cell.built_as.__name__} has no fused scan"
    if (dtype := cell.some_weight().dtype) not in DTYPES:
        return f"fused scans take float32 and float64 weights, and autocast for 16 bits, the weights are {dtype}"
    return "" if torch.compiler.is_compiling() else transform()


def scan(cell: AnyCell, inputs: ScanInputs) -> tuple[Tensor, State]:
    """Run a cell with a fused scan; see `reference.scan`.

    Under autocast matrix products are computed in its dtype, sums, norms and states in that of the weights.
    """
    x, state, lengths, seed, reverse, resets = inputs
    mask, reset_to = (None, ()) if resets is None else resets
    dtype, name = cell.some_weight().dtype, str(cell.kernel)
    if lengths is not None:
        x = reference.without_padding(x, lengths)[0]
        lengths = as_contiguous(lengths, torch.int64)
    x, *before = (as_contiguous(tensor, dtype) for tensor in (x, *state, *reset_to))
    weights = checked_weights(cell, cell.weights())
    autocast = reference.autocast_dtype(x.device.type)
    spec = ScanSpec(name, KERNELS[name].options.of(cell), cell.dropout, reverse, cell.options, autocast)
    save = needs_gradient(x, *before, *weights)
    outputs, *results = operators.forward(ScanArguments(spec, x, before, weights, lengths, seed, mask), save)
    return outputs, tuple(results[-len(state) :])


def auto(cell: AnyCell, inputs: ScanInputs) -> tuple[Tensor, State] | None:
    """Run what `backend="auto"` takes on devices other than CPUs; return None where that is the reference."""
    if inputs.x.device.type in REFERENCE_DEVICES:
        return None
    if vendor.computes(cell, inputs):
        return vendor.scan(cell, inputs)
    if not why_not(cell) and selfcheck.is_trusted(cell, inputs):
        return scan(cell, inputs)
    return None
