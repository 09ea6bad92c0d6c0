"""Weights in int8, for the scans in native/quantized.h."""

from typing import NamedTuple

import torch
from torch import Tensor

_TOGETHER, _LINES = 16, 4  # the order of codes, see native/quantized.h
_MAX_CODE = 127


class Matrix(NamedTuple):
    """A matrix in int8, each row with a scale; and the bias of its product."""

    codes: Tensor  # (rows / 4, columns / 16, 4, 16) rounded up, int8, in the order in which the library reads them
    scales: Tensor  # (rows,)
    bias: Tensor  # (rows,)


def rounded_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round a float matrix (rows, columns) to int8 codes of the same shape and a scale (rows,) for each row."""
    scales = weight.abs().amax(1) / _MAX_CODE
    codes = (weight / scales.clamp_min(torch.finfo(weight.dtype).tiny).unsqueeze(1)).round()
    return codes.clamp(-_MAX_CODE, _MAX_CODE).to(torch.int8), scales


def rounded(weight: Tensor, bias: Tensor) -> Matrix:
    """Round a float matrix (rows, columns) to int8, with one scale per row."""
    codes, scales = rounded_rows(weight)
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[1] % _TOGETHER, 0, -codes.shape[0] % _LINES))
    rows, columns = padded.shape
    blocks = padded.reshape(rows // _LINES, _LINES, columns // _TOGETHER, _TOGETHER)  # (rows / 4, 4, columns / 16, 16)
    return Matrix(blocks.transpose(1, 2).contiguous(), scales, bias.clone())
