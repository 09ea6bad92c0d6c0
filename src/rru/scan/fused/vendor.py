"""Hands LSTM and GRU over to torch's own layers on CUDA: cuDNN (or MIOpen) runs a whole sequence in a few kernels."""

from typing import Any

import torch
from torch import Tensor

from rru.scan.native_cells import NATIVE_CELLS
from rru.scan.recording import transform
from rru.scan.reference import State


def computes(cell: Any, inputs: Tensor, lengths: Tensor | None, seed: Tensor | None) -> bool:
    """Returns whether torch's own layer computes the same: not with recurrent dropout, nor the paper's form of the GRU.

    It takes lengths only from the host, and not as an operator of a graph: then the fused scan is better.
    """
    known = cell.kernel == "lstm" or (cell.kernel == "gru" and cell.reset_after)
    plain = seed is None and lengths is None and inputs.is_cuda
    return known and plain and not torch.compiler.is_compiling() and not transform()


def scan(cell: Any, inputs: Tensor, state: State, reverse: bool) -> tuple[Tensor, State]:
    """Runs torch's LSTM or GRU over `inputs` (T, B, m); see `reference.scan`."""
    weight_x, weight_h, bias, *bias_h = NATIVE_CELLS[cell.kernel].weights(cell, cell.weights())
    zeros = bias.new_zeros(len(bias) - sum(map(len, bias_h)))
    flat = _in_one_piece([weight_x, weight_h, bias, torch.cat([zeros, *bias_h])])
    x = (inputs.flip(0) if reverse else inputs).to(bias.dtype)
    before = [part.to(bias.dtype).unsqueeze(0) for part in state]
    train = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *before, *flat))
    rest = flat, True, 1, 0.0, train, False, False  # has_biases, num_layers, dropout, train, bidirectional, batch_first
    outputs, *last = torch.lstm(x, before, *rest) if cell.kernel == "lstm" else torch.gru(x, before[0], *rest)
    outputs = outputs.flip(0) if reverse else outputs
    return outputs.to(bias.dtype), tuple(part.squeeze(0).to(bias.dtype) for part in last)


def _in_one_piece(tensors: list[Tensor]) -> list[Tensor]:
    """Returns copies that are adjacent in memory. cuDNN warns otherwise, and copies them itself."""
    pieces = torch.split(torch.cat([tensor.flatten() for tensor in tensors]), [tensor.numel() for tensor in tensors])
    return [piece.view_as(tensor) for piece, tensor in zip(pieces, tensors, strict=True)]
