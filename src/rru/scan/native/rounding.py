"""Weights in int8, for the scans in native/quantized.h."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rru.scan.kernels import GRUOptions, NoOptions, RRUOptions

_TOGETHER, _LINES = 16, 4  # the order of codes, see native/quantized.h
_MAX_CODE = 127


class Matrix(NamedTuple):
    """A matrix in int8, each row with a scale; and the bias of its product."""

    codes: Tensor  # (rows / 4, columns / 16, 4, 16) rounded up, int8, in the order in which the library reads them
    scales: Tensor  # (rows,)
    bias: Tensor  # (rows,)


Quantize = Callable[[list[Tensor], Any], tuple[list[Matrix], list[Tensor]]]
"""Take the weights of a kernel and its options. Return the matrices in the order in which the scan reads them, and
the tensors that stay floats."""


def rounded(weight: Tensor, bias: Tensor) -> Matrix:
    """Round a float matrix (rows, columns) to int8, with one scale per row."""
    scales = weight.abs().amax(1) / _MAX_CODE
    codes = (weight / scales.clamp_min(torch.finfo(weight.dtype).tiny).unsqueeze(1)).round()
    codes = codes.clamp(-_MAX_CODE, _MAX_CODE).to(torch.int8)
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[1] % _TOGETHER, 0, -codes.shape[0] % _LINES))
    rows, columns = padded.shape
    blocks = padded.reshape(rows // _LINES, _LINES, columns // _TOGETHER, _TOGETHER)  # (rows / 4, 4, columns / 16, 16)
    return Matrix(blocks.transpose(1, 2).contiguous(), scales, bias.clone())


def of_rru(weights: list[Tensor], options: "RRUOptions") -> tuple[list[Matrix], list[Tensor]]:
    """Round the weights of an RRU; see `Quantize`."""
    weight_x, weight_h, bias_j, *rest = weights
    middle = 2 * (options.relu_layers - 1)
    weight_c, bias_c, weight_o, bias_o, *residual = rest[middle:]
    inner = [rounded(torch.cat([weight_x, weight_h], 1), bias_j)]
    inner += [rounded(*rest[k : k + 2]) for k in range(0, middle, 2)]
    return [*inner, rounded(torch.cat([weight_c, weight_o]), torch.cat([bias_c, bias_o]))], residual


def of_lstm(weights: list[Tensor], options: "NoOptions") -> tuple[list[Matrix], list[Tensor]]:
    """Round the weights of an LSTM; see `Quantize`."""
    weight_x, weight_h, bias = weights
    return [rounded(torch.cat([weight_x, weight_h], 1), bias)], []


def of_gru(weights: list[Tensor], options: "GRUOptions") -> tuple[list[Matrix], list[Tensor]]:
    """Round the weights of a GRU; see `Quantize`."""
    weight_x, weight_h, bias, *bias_h = weights
    gates = 2 * weight_h.shape[1]  # rows of the reset and the update gate; the candidate's follow
    if options.reset_after:
        return [rounded(weight_x, bias), rounded(weight_h, torch.cat([bias.new_zeros(gates), *bias_h]))], []
    both = torch.cat([weight_x, weight_h], 1)
    return [rounded(both[:gates], bias[:gates]), rounded(both[gates:], bias[gates:])], []
