"""Scans with int8 weights and without gradients; see native/quantized.h."""

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rru.scan import library
from rru.scan.library import Function, memory_of
from rru.scan.native import laid_out
from rru.scan.native_calls import scan_numbers
from rru.scan.native_cells import NATIVE_CELLS
from rru.scan.recording import PLAIN, is_recorded, transform
from rru.scan.reference import State

_TOGETHER, _LINES = 16, 4  # the order of codes, see native/quantized.h
_LARGEST = 127


class Matrix(NamedTuple):
    """A matrix in int8, each row with a scale; and the bias of its product."""

    codes: Tensor  # (rows / 4, columns / 16, 4, 16) rounded up, int8, in the order in which the library reads them
    scales: Tensor  # (rows,)
    bias: Tensor  # (rows,)


def rounded(weight: Tensor, bias: Tensor) -> Matrix:
    """Rounds a float matrix (rows, columns) to int8, with one scale per row."""
    scales = weight.abs().amax(1) / _LARGEST
    codes = (weight / scales.clamp_min(torch.finfo(weight.dtype).tiny).unsqueeze(1)).round()
    codes = codes.clamp(-_LARGEST, _LARGEST).to(torch.int8)
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[1] % _TOGETHER, 0, -codes.shape[0] % _LINES))
    rows, columns = padded.shape
    blocks = padded.reshape(rows // _LINES, _LINES, columns // _TOGETHER, _TOGETHER)  # (rows / 4, 4, columns / 16, 16)
    return Matrix(blocks.transpose(1, 2).contiguous(), scales, bias.clone())


def matrices_of(kernel: str, weights: list[Tensor], options: Any) -> tuple[list[Matrix], list[Tensor]]:
    """Returns the matrices of a cell in the order in which its scan reads them, and the tensors that stay floats.

    **Arguments:** `weights` and `options`: those of the native scan.
    """
    if kernel == "rru":
        weight_x, weight_h, bias_j, *rest = weights
        middle = 2 * (options.relu_layers - 1)
        weight_c, bias_c, weight_o, bias_o, *residual = rest[middle:]
        inner = [rounded(torch.cat([weight_x, weight_h], 1), bias_j)]
        inner += [rounded(*rest[k : k + 2]) for k in range(0, middle, 2)]
        return [*inner, rounded(torch.cat([weight_c, weight_o]), torch.cat([bias_c, bias_o]))], residual
    weight_x, weight_h, bias, *bias_h = weights
    both = torch.cat([weight_x, weight_h], 1)
    if kernel == "lstm":
        return [rounded(both, bias)], []
    gates = 2 * weight_h.shape[1]  # rows of the reset and the update gate; the candidate's follow
    if options.reset_after:
        return [rounded(weight_x, bias), rounded(weight_h, torch.cat([bias.new_zeros(gates), *bias_h]))], []
    return [rounded(both[:gates], bias[:gates]), rounded(both[gates:], bias[gates:])], []


@functools.lru_cache(maxsize=1024)
def _function(
    kernel: str, shape: torch.Size, n: int, options: Any, reverse: bool, has_lengths: bool, instruction_set: str
) -> Function:
    numbers = scan_numbers(kernel, shape, n, options, reverse=reverse, save=False, has_lengths=has_lengths)
    return Function(f"{kernel}_quantized", torch.float32, numbers, alone=True)


def scan(cell: Any, inputs: Tensor, state: State, lengths: Tensor | None, reverse: bool) -> tuple[Tensor, State]:
    """Runs a quantized cell over `inputs` (T, B, m); see `reference.scan`."""
    if obstacle := _why_not(cell, inputs, state):
        raise RuntimeError(f"a quantized layer {obstacle}")
    inputs, *before = [laid_out(tensor, torch.float32) for tensor in (inputs, *state)]
    shape = (*inputs.shape[:2], cell.output_size)
    outputs = inputs.new_empty(shape) if lengths is None else inputs.new_zeros(shape)
    last = tuple([torch.empty_like(part) for part in before])
    given = [] if lengths is None else [laid_out(lengths, torch.int64)]
    tensors = [*given, inputs, *before, *cell.native_tensors(), outputs, *last]
    has_lengths, instruction_set = lengths is not None, library.instruction_set
    function = _function(
        cell.kernel, inputs.shape, cell.hidden_size, cell.native_options, reverse, has_lengths, instruction_set
    )
    function(memory_of(tensors))
    return outputs, last


def _why_not(cell: Any, inputs: Tensor, state: State) -> str:
    if is_recorded() or transform() or not PLAIN.issuperset(map(type, (inputs, *state))):
        return "cannot be compiled, exported or transformed: use the float model that it was made from"
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (inputs, *state)):
        return "has no gradients: train the float model and quantize it again"
    weight = cell.some_weight()
    if not weight.is_cpu or weight.dtype != torch.float32:
        return f"runs on the CPU in float32, its scales are {weight.dtype} on {weight.device}"
    return ""


def can_run(kernel: str | None) -> bool:
    """Returns whether the library has a quantized scan for cells with this kernel."""
    return library.BUILT and kernel in NATIVE_CELLS and kernel != "mogrifier"
