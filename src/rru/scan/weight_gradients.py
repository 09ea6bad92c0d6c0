"""Gradients of large matrices: products over all steps, after the backward loop of a native scan."""

import functools

import torch
from torch import Tensor

from rru.scan import library
from rru.scan.library import Function, memory_of


def over_steps(gradient: Tensor, values: Tensor, bfloat16: bool) -> Tensor:
    """Returns a matrix gradient (out, in): gradient (T, B, out) times values (T, B, in), summed over T and B.

    With `bfloat16` both are rounded to bfloat16 and the sum is float32, if the processor has instructions for that.
    Otherwise torch multiplies them as they are.
    """
    if bfloat16 and library.has_bfloat16_dots():
        return _rounded(gradient, values, 0)[1]
    return gradient.flatten(0, 1).T @ values.flatten(0, 1)


def by_input_and_state(gradient: Tensor, xh: Tensor, m: int, bfloat16: bool) -> list[Tensor]:
    """Returns the gradients of W^x and W^h from that of W^x x + W^h h (T, B, out) and all [x, h] (T, B, m + n)."""
    if bfloat16 and library.has_bfloat16_dots():
        return _rounded(gradient, xh, m)
    return [over_steps(gradient, xh[..., :m], False), over_steps(gradient, xh[..., m:], False)]


def _rounded(gradient: Tensor, values: Tensor, split: int) -> list[Tensor]:
    """Returns the product of both over all steps, rounded to bfloat16: the columns before `split`, and the others."""
    gradient, values = gradient.contiguous(), values.contiguous()
    rows, columns = gradient.shape[-1], values.shape[-1]
    parts = [gradient.new_empty(rows, split), gradient.new_empty(rows, columns - split)]
    tokens = gradient.shape[0] * gradient.shape[1]
    _function(tokens, rows, columns, split, library.instruction_set)(memory_of([gradient, values, *parts]))
    return parts


@functools.lru_cache(maxsize=1024)
def _function(tokens: int, rows: int, columns: int, split: int, instruction_set: str) -> Function:
    numbers = {"tokens": tokens, "rows": rows, "columns": columns, "split": split}
    return Function("matrix_gradient", torch.float32, numbers)
