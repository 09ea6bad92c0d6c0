"""Gradients of large matrices: products over all steps, after the backward loop of a native scan."""

import torch
from torch import Tensor

from rru.scan.native import library
from rru.scan.native.library import cached_function, memory_of


def over_steps(
    gradient: Tensor, values: Tensor, bfloat16: bool, *, symmetric: bool = False, relu: bool = False
) -> Tensor:
    """Return a matrix gradient (out, in): gradient (T, B, out) times values (T, B, in), summed over T and B.

    With `bfloat16` both are rounded to bfloat16 and the sum is float32, if the processor has instructions for that.
    `symmetric` says that the result is, which halves the work. With `relu` the values are taken through a ReLU.
    """
    if bfloat16 and library.has_bfloat16_dots():
        return _rounded(gradient, values, 0, relu)[1]
    return _exact(gradient, values, 0, symmetric, relu)[1]


def by_input_and_state(gradient: Tensor, xh: Tensor, m: int, bfloat16: bool) -> list[Tensor]:
    """Return the gradients of W^x and W^h from that of W^x x + W^h h (T, B, out) and all [x, h] (T, B, m + n)."""
    if bfloat16 and library.has_bfloat16_dots():
        return _rounded(gradient, xh, m, False)
    return _exact(gradient, xh, m, False, False)


def _exact(gradient: Tensor, values: Tensor, split: int, symmetric: bool, relu: bool) -> list[Tensor]:
    """Return the product of both over all steps: the columns before `split`, and the others."""
    rows = [tensor.flatten(0, 1) for tensor in (gradient, values)]  # (T B, out), (T B, in): views, also of wider rows
    (tokens, out), (_, size) = (tensor.shape for tensor in rows)
    if tokens == 0:
        return [gradient.new_zeros(out, split), gradient.new_zeros(out, size - split)]
    strides = [tensor.stride(0) if tokens > 1 else tensor.shape[1] for tensor in rows]
    memory = [
        tensor.as_strided(((tokens - 1) * step + tensor.shape[1],), (1,))
        for tensor, step in zip(rows, strides, strict=True)
    ]
    parts = [gradient.new_empty(out, split), gradient.new_empty(out, size - split)]
    numbers = (
        ("tokens", tokens),
        ("features", out),
        ("columns", size),
        ("split", split),
        ("symmetric", int(symmetric)),
        ("relu", int(relu)),
        ("grads_row", strides[0]),
        ("values_row", strides[1]),
    )
    cached_function("dense_gradient", gradient.dtype, numbers, library.instruction_set)(memory_of([*memory, *parts]))
    return parts


def _rounded(gradient: Tensor, values: Tensor, split: int, relu: bool) -> list[Tensor]:
    """Return the product of both over all steps, rounded to bfloat16: the columns before `split`, and the others."""
    gradient, values = gradient.contiguous(), values.contiguous()
    rows, columns = gradient.shape[-1], values.shape[-1]
    parts = [gradient.new_empty(rows, split), gradient.new_empty(rows, columns - split)]
    tokens = gradient.shape[0] * gradient.shape[1]
    numbers = ("tokens", tokens), ("rows", rows), ("columns", columns), ("split", split), ("relu", int(relu))
    function = cached_function("matrix_gradient", torch.float32, numbers, library.instruction_set)
    function(memory_of([gradient, values, *parts]))
    return parts
