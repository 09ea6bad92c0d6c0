"""Scans with int8 weights and without gradients; see native/quantized.h."""

from typing import Any, Protocol

import torch
from torch import Tensor

from rru.scan.arguments import as_contiguous, needs_gradient
from rru.scan.kernels import KERNELS
from rru.scan.native import library
from rru.scan.native.call import function_of
from rru.scan.native.library import memory_of
from rru.scan.native.rounding import Matrix, rounded
from rru.scan.recording import PLAIN, is_recorded, transform
from rru.scan.reference import ScanInputs, State


class QuantizedCell(Protocol):
    """The interface of `rru.nn.quantization.QuantizedCell` that this module uses."""

    def __getattr__(self, name: str) -> Any:
        """Return `kernel`, `hidden_size`, `output_size` or `native_options`."""
        ...

    def native_tensors(self) -> list[Tensor]:
        """Return the tensors that the native scan reads, in order."""
        ...

    def some_weight(self) -> Tensor:
        """Return a float tensor, to get device and dtype."""
        ...


def can_run(kernel: str | None) -> bool:
    """Return whether the library has a quantized scan for cells with this kernel."""
    return library.BUILT and kernel in KERNELS and KERNELS[kernel].quantized


def matrices_of(kernel: str, weights: list[Tensor], options: Any) -> tuple[list[Matrix], list[Tensor]]:
    """Return the matrices of a kernel in int8, in the order in which the scan reads them, and what stays floats."""
    products, others = KERNELS[kernel].matrices(weights, options)
    return [rounded(*product) for product in products], others


def scan(cell: QuantizedCell, inputs: ScanInputs) -> tuple[Tensor, State]:
    """Run a quantized cell; see `reference.scan`."""
    x, state, lengths, _, reverse, resets = inputs
    reset_to = () if resets is None else resets.state
    if obstacle := _why_not(cell, x, *state, *reset_to):
        raise RuntimeError(f"a quantized layer {obstacle}")
    x, *before = [as_contiguous(tensor, torch.float32) for tensor in (x, *state, *reset_to)]
    size, has_lengths, isa = x.shape, lengths is not None, library.instruction_set
    outputs = (x.new_zeros if has_lengths else x.new_empty)(size[0], size[1], cell.output_size)
    last = tuple([torch.empty_like(part) for part in before[: len(state)]])
    native, options, n = KERNELS[cell.kernel].native, cell.native_options, cell.hidden_size
    flags = reverse, False, has_lengths, resets is not None
    function = function_of("quantized", native, options, x.dtype, size, n, True, isa, *flags)
    first = [] if lengths is None else [as_contiguous(lengths, torch.int64)]
    first += [] if resets is None else [as_contiguous(resets.mask, torch.bool)]
    function(memory_of([*first, x, *before, *cell.native_tensors(), outputs, *last]))
    return outputs, last


def _why_not(cell: QuantizedCell, *tensors: Tensor) -> str:
    if is_recorded() or transform() or not PLAIN.issuperset(map(type, tensors)):
        return "cannot be compiled, exported or transformed: use the float model that it was made from"
    if needs_gradient(*tensors):
        return "has no gradients: train the float model and quantize it again"
    weight = cell.some_weight()
    if not weight.is_cpu or weight.dtype != torch.float32:
        return f"runs on the CPU in float32, its scales are {weight.dtype} on {weight.device}"
    return ""
