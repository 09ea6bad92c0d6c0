"""Runs a cell over time. All back ends compute the same recurrence."""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from rru.scan import fused, native, onnx, operator, quantized, reference, stepper
from rru.scan.library import BUILT, COMPUTED_IN
from rru.scan.recording import PLAIN, is_recorded, transform
from rru.scan.reference import State, Steps
from rru.scan.stepper import NativeStep, Stepper

__all__ = ["BACKENDS", "AnyCell", "NativeStep", "Stepper", "check_backend", "run", "step"]

BACKENDS = ("auto", "reference", "native", "fused")
_ENOUGH_STEPS = 3  # from here on the native scan is faster, for any batch size
_FEW_WEIGHTS = 100_000  # up to here it is faster for any number of steps
_FEW_ROWS = 16  # below this number of steps times sequences it does not pack the weights, and is faster forward


class AnyCell(Steps, Protocol):
    """The interface of `rru.nn.Cell` that this module uses."""

    name: ClassVar[str | None]
    kernel: ClassVar[str | None]
    built_as: type
    options: str
    native_step: NativeStep | None
    quantized: ClassVar[bool]

    def some_weight(self) -> Tensor:
        """Returns any parameter, to get the dtype of the weights."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """Returns the weights by name, in order."""
        ...

    def parameters(self) -> Iterator[Tensor]:
        """Yields the learned parameters."""
        ...


def check_backend(backend: str) -> None:
    """Raises unless `backend` is a known back end that is available in this build."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(map(repr, BACKENDS))}, got {backend!r}")
    if backend == "native" and not BUILT:
        raise RuntimeError("backend 'native' is not part of this build; use 'auto' or 'reference'")


def run(
    cell: AnyCell,
    inputs: Tensor,
    state: State,
    *,
    lengths: Tensor | None = None,
    seed: Tensor | None = None,
    reverse: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, State]:
    """Runs `cell` over `inputs` (T, B, m); arguments and results are those of `reference.scan`.

    `backend="auto"` uses the native scan on CPUs if the cell has one, it can run here and it is faster; the fused scan
    on other devices, after a check, or torch's own LSTM or GRU on CUDA; otherwise the reference. All give the same
    outputs and gradients. In a compiled or exported graph, each is a single operator.
    """
    check_backend(backend)
    if cell.quantized:
        return quantized.scan(cell, inputs, state, lengths, reverse)
    if onnx.is_exporting():
        operator.graph_name(cell)  # raises unless the cell can be rebuilt from its options and weights
        return onnx.scan(cell, inputs, state, lengths, seed, reverse)
    obstacle = _why_not_native(cell, inputs)
    if backend == "native" and obstacle:
        raise RuntimeError(f"backend 'native' cannot run this: {obstacle}; use 'auto' or 'reference'")
    if backend == "fused":
        if problem := fused.why_not(cell, inputs):
            raise RuntimeError(f"backend 'fused' cannot run this: {problem}; use 'auto' or 'reference'")
        return fused.scan(cell, inputs, state, lengths, seed, reverse)
    if backend == "auto" and (results := fused.auto(cell, inputs, state, lengths, seed, reverse)):
        return results
    if backend == "native" or (backend == "auto" and not obstacle and _pays(cell, inputs, state)):
        if lengths is not None and inputs.requires_grad:
            inputs = reference.without_padding(inputs, lengths)[0]  # zero gradient even if weights are infinite
        return native.scan(cell, inputs, state, lengths, seed, reverse)
    if not torch.compiler.is_compiling():
        return reference.scan(cell, inputs, state, lengths, seed, reverse)
    name = operator.graph_name(cell)
    autocast = reference.autocast_dtype(inputs.device.type)
    outputs, *last = operator.scan(
        inputs,
        list(state),
        list(cell.weights().values()),
        lengths,
        seed,
        name,
        cell.options,
        cell.dropout,
        reverse,
        autocast,
    )
    return outputs, tuple(last)


def step(cell: AnyCell, x: Tensor, state: State, seed: Tensor | None) -> tuple[Tensor, State]:
    """Runs one step on x (B, m), natively if no gradient is needed. Returns outputs (B, p) and the new state."""
    if not is_recorded() and not _why_not_native(cell, x):
        weights = cell.weights()
        if all(type(tensor) in PLAIN for tensor in (x, *state, *weights.values())) and not _differentiates(
            weights.values(), x, state
        ):
            return stepper.step(cell, weights, x, state, seed)
    return reference.step(cell, x, state, seed)


def _why_not_native(cell: AnyCell, inputs: Tensor) -> str:
    """Returns why the native scan cannot run this cell on these inputs; empty if it can."""
    if cell.native_step is None:
        return f"{cell.built_as.__name__} has no native scan"
    if not inputs.is_cpu:
        return f"native scans run on the CPU, the input is on {inputs.device}"
    dtype = cell.some_weight().dtype
    if dtype not in COMPUTED_IN:
        return f"native scans take weights of 16, 32 or 64 bits, these are {dtype}"
    if not torch.compiler.is_compiling() and (problem := transform()):
        return problem
    return "" if BUILT else "the native scans are not part of this build"


def _pays(cell: AnyCell, inputs: Tensor, state: State) -> bool:
    """Returns whether the native scan is faster: not for one or two steps of a large layer, where packing decides."""
    if torch.compiler.is_compiling():
        return True
    steps, batch = inputs.shape[:2]
    if steps >= _ENOUGH_STEPS or cell.native_step is None or cell.native_step.size <= _FEW_WEIGHTS:
        return True
    return steps * batch < _FEW_ROWS and not _differentiates(cell.parameters(), inputs, state)


def _differentiates(weights: Iterable[Tensor], inputs: Tensor, state: State) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (inputs, *state, *weights))
