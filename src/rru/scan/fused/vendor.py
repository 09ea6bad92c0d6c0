"""Hand LSTM and GRU over to torch's own layers on CUDA: cuDNN (or MIOpen) runs a whole sequence in a few kernels."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rru.scan.arguments import needs_gradient
from rru.scan.cells import AnyCell
from rru.scan.kernels import KERNELS, kernel_of
from rru.scan.recording import transform
from rru.scan.reference import ScanInputs, State


def _function(cell: AnyCell) -> Callable[..., Any] | None:
    kernel = kernel_of(cell)
    return None if kernel is None else kernel.torch_function(kernel.options.of(cell))


def computes(cell: AnyCell, inputs: ScanInputs) -> bool:
    """Return whether torch's own layer computes the same: no recurrent dropout, no resets, not the paper's GRU.

    It takes lengths only from the host, and not as an operator of a graph: then the fused scan is better.
    """
    plain = inputs.seed is None and inputs.lengths is None and inputs.resets is None and inputs.x.is_cuda
    return plain and _function(cell) is not None and not torch.compiler.is_compiling() and not transform()


def scan(cell: AnyCell, inputs: ScanInputs) -> tuple[Tensor, State]:
    """Run torch's LSTM or GRU; see `reference.scan`."""
    function, kernel = _function(cell), KERNELS[str(cell.kernel)]
    assert function is not None
    weight_x, weight_h, bias, *bias_h = kernel.weights(cell, cell.weights())
    zeros = bias.new_zeros(len(bias) - sum(map(len, bias_h)))
    flat = _in_one_piece([weight_x, weight_h, bias, torch.cat([zeros, *bias_h])])
    x = (inputs.x.flip(0) if inputs.reverse else inputs.x).to(bias.dtype)
    state = [part.to(bias.dtype).unsqueeze(0) for part in inputs.state]
    train = needs_gradient(x, *state, *flat)
    rest = flat, True, 1, 0.0, train, False, False  # has_biases, num_layers, dropout, train, bidirectional, batch_first
    outputs, *last = function(x, state if len(state) > 1 else state[0], *rest)
    outputs = outputs.flip(0) if inputs.reverse else outputs
    return outputs.to(bias.dtype), tuple(part.squeeze(0).to(bias.dtype) for part in last)


def _in_one_piece(tensors: list[Tensor]) -> list[Tensor]:
    """Return copies that are adjacent in memory. cuDNN warns otherwise, and copies them itself."""
    pieces = torch.split(torch.cat([tensor.flatten() for tensor in tensors]), [tensor.numel() for tensor in tensors])
    return [piece.view_as(tensor) for piece, tensor in zip(pieces, tensors, strict=True)]
