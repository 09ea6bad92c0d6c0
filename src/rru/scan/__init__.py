"""Run a cell over time. All back ends compute the same recurrence."""

from typing import cast

import torch
from torch import Tensor

from rru.scan import onnx, operator, reference, thresholds
from rru.scan.arguments import needs_gradient
from rru.scan.cells import AnyCell
from rru.scan.fused import run as fused_run
from rru.scan.native import gradient_step, quantized, stepper
from rru.scan.native import run as native_run
from rru.scan.native.library import BUILT
from rru.scan.native.stepper import NativeStep, Stepper
from rru.scan.recording import PLAIN, is_recorded
from rru.scan.reference import Resets, ScanInputs, State

__all__ = ["BACKENDS", "AnyCell", "NativeStep", "Resets", "ScanInputs", "Stepper", "check_backend", "run", "step"]

BACKENDS = ("auto", "reference", "native", "fused")


def check_backend(backend: str) -> None:
    """Raise unless `backend` is a known back end that is available in this build."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(map(repr, BACKENDS))}, got {backend!r}")
    if backend == "native" and not BUILT:
        raise RuntimeError("backend 'native' is not part of this build; use 'auto' or 'reference'")


def run(cell: AnyCell, inputs: ScanInputs, backend: str = "auto") -> tuple[Tensor, State]:
    """Run a cell over time; arguments and results are those of `reference.scan`.

    `backend="auto"` uses the native scan on CPUs if the cell has one, it can run here and it is faster; the fused scan
    on other devices, after a check, or torch's own LSTM or GRU on CUDA; otherwise the reference. All give the same
    outputs and gradients. In a compiled or exported graph, each is a single operator.
    """
    check_backend(backend)
    if cell.quantized:
        return quantized.scan(cast(quantized.QuantizedCell, cell), inputs)
    if onnx.is_exporting():
        operator.graph_name(cell)  # raises unless the cell can be rebuilt from its options and weights
        return onnx.scan(cell, inputs)
    if backend == "fused":
        if problem := fused_run.why_not(cell):
            raise RuntimeError(f"backend 'fused' cannot run this: {problem}; use 'auto' or 'reference'")
        return fused_run.scan(cell, inputs)
    if backend == "auto" and (results := fused_run.auto(cell, inputs)):
        return results
    obstacle = native_run.why_not(cell, inputs.x)
    if backend == "native" and obstacle:
        raise RuntimeError(f"backend 'native' cannot run this: {obstacle}; use 'auto' or 'reference'")
    if backend == "native" or (backend == "auto" and not obstacle and _native_is_faster(cell, inputs)):
        if inputs.lengths is not None and inputs.x.requires_grad:  # zero gradient even if weights are infinite
            x = reference.without_padding(inputs.x, inputs.lengths)[0]
            inputs = inputs._replace(x=x)
        return native_run.scan(cell, inputs)
    if not torch.compiler.is_compiling():
        return reference.scan(cell, inputs)
    x, state, lengths, seed, reverse, resets = inputs
    rest = operator.graph_name(cell), cell.options, cell.dropout, reverse, reference.autocast_dtype(x.device.type)
    mask, reset_to = (None, ()) if resets is None else resets
    weights = list(cell.weights().values())
    outputs, *last = operator.scan(x, [*state, *reset_to], weights, lengths, seed, *rest, mask)
    return outputs, tuple(last)


def step(cell: AnyCell, x: Tensor, state: State, seed: Tensor | None) -> tuple[Tensor, State]:
    """Run one step on x (B, m), natively if possible. Return outputs (B, p) and the new state."""
    if not is_recorded() and not native_run.why_not(cell, x):
        weights = cell.weights()
        tensors = [x, *state, *weights.values()]
        if PLAIN.issuperset(map(type, tensors)):
            if not needs_gradient(*tensors):
                return stepper.step(cell, weights, x, state, seed)
            if results := gradient_step.step(cell, tuple(weights.values()), x, state, seed):
                return results
    return reference.step(cell, x, state, seed)


def _native_is_faster(cell: AnyCell, inputs: ScanInputs) -> bool:
    """Return whether the native scan is faster: not for one or two steps of a large layer, where packing decides."""
    if torch.compiler.is_compiling():
        return True
    steps, batch = inputs.x.shape[:2]
    few_weights = cell.native_step is None or cell.native_step.size <= thresholds.MAX_UNPACKED_WEIGHTS
    if steps >= thresholds.MIN_NATIVE_STEPS or few_weights:
        return True
    tensors = inputs.x, *inputs.state, *cell.parameters()
    return steps * batch < thresholds.MIN_PACKED_TOKENS and not needs_gradient(*tensors)
