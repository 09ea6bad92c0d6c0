"""Gradients of large matrices: products over all steps, after the backward loop of a native scan."""

import functools

import torch
from torch import Tensor

from rru.scan import library
from rru.scan.library import Function, memory_of


def over_steps(gradient: Tensor, values: Tensor, bfloat16: bool, *, symmetric: bool = False) -> Tensor:
    """Returns a matrix gradient (out, in): gradient (T, B, out) times values (T, B, in), summed over T and B.

    With `bfloat16` both are rounded to bfloat16 and the sum is float32, if the processor has instructions for that.
    `symmetric` says that the result is, which halves the work.
    """
    if bfloat16 and library.has_bfloat16_dots():
        return _rounded(gradient, values, 0)[1]
    rows = [tensor.flatten(0, 1) for tensor in (gradient, values)]  # (T B, out), (T B, in): views, also of wider rows
    (tokens, out), (_, size) = (tensor.shape for tensor in rows)
    if tokens == 0:
        return gradient.new_zeros(out, size)
    strides = tuple(tensor.stride(0) if tokens > 1 else tensor.shape[1] for tensor in rows)
    memory = [
        tensor.as_strided(((tokens - 1) * step + tensor.shape[1],), (1,))
        for tensor, step in zip(rows, strides, strict=True)
    ]
    result = gradient.new_empty(out, size)
    function = _dense_function(gradient.dtype, tokens, out, size, symmetric, *strides, library.instruction_set)
    function(memory_of([*memory, result]))
    return result


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
    _rounded_function(tokens, rows, columns, split, library.instruction_set)(memory_of([gradient, values, *parts]))
    return parts


@functools.lru_cache(maxsize=1024)
def _rounded_function(tokens: int, rows: int, columns: int, split: int, instruction_set: str) -> Function:
    numbers = {"tokens": tokens, "rows": rows, "columns": columns, "split": split}
    return Function("matrix_gradient", torch.float32, numbers)


@functools.lru_cache(maxsize=1024)
def _dense_function(
    dtype: torch.dtype,
    tokens: int,
    out: int,
    size: int,
    symmetric: bool,
    grads_row: int,
    values_row: int,
    instruction_set: str,
) -> Function:
    shape = {"tokens": tokens, "features": out, "columns": size, "symmetric": int(symmetric)}
    return Function("dense_gradient", dtype, shape | {"grads_row": grads_row, "values_row": values_row})
