"""The functions of `torch_form` as one Triton kernel each. `torch_form` says what they compute; the kernels are below.

A row of the RRU's g units is one block, since Normalize sums over it; other rows are cut into blocks of columns.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from rru.scan.fused import triton_gru
from rru.scan.fused import triton_kernels as kernels
from rru.scan.fused.call import may_use_tf32


class Mask(NamedTuple):
    """What a kernel needs to know about a step: the rest it computes itself."""

    lengths: Tensor | None  # (B,)
    seed: Tensor | None  # (); None turns dropout off
    step: int
    threshold: int  # random words below it are dropped
    factor: float  # of what is kept


class Masks:
    """The masks of all steps. Nothing is computed here: the seed and the lengths stay on the device."""

    def __init__(
        self,
        lengths: Tensor | None,
        seed: Tensor | None,
        rate: float,
        order: Sequence[int],
        batch: int,
        features: int,
        dtype: torch.dtype,
    ) -> None:
        self.arguments = lengths, seed, round(rate * 2**32), 1 / (1 - rate)

    def at(self, t: int) -> Mask:
        """Returns the mask of step t."""
        lengths, seed, threshold, factor = self.arguments
        return Mask(lengths, seed, t, threshold, factor)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Launches a kernel, unless the batch is empty. All launches go through here."""
    if 0 not in grid:
        kernel[grid](*arguments, **constants)


def _whole(row: Tensor) -> dict[str, int]:
    """Returns the constants of a kernel that takes a whole row at once."""
    block = max(16, triton.next_power_of_2(row.shape[1]))
    return {"BLOCK": block, "num_warps": min(16, max(1, block // 512))}


def _cut(rows: Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """Returns the grid and the constants of a kernel that takes up to 512 columns of a row at once."""
    batch, columns = rows.shape
    block = min(512, max(16, triton.next_power_of_2(columns)))
    return (batch, triton.cdiv(columns, block)), {"BLOCK": block, "num_warps": max(1, block // 128)}


def normalized(
    d: Tensor, pre: Tensor | None, scale: Tensor, sums: Tensor, product: Tensor, mask: Mask, normalize: bool, drop: bool
) -> None:
    """See `torch_form`."""
    if not drop:
        mask = mask._replace(seed=None)
    rows = d, pre, scale, sums, product
    launch(kernels.normalized, (len(d),), *rows, *mask, d.shape[1], NORMALIZE=normalize, **_whole(d))


def normalized_backward(
    grad_sums: Tensor,
    d: Tensor | None,
    grad_d: Tensor | None,
    product: Tensor,
    pre: Tensor,
    scale: Tensor,
    mask: Mask,
    normalize: bool,
    drop: bool,
) -> None:
    """See `torch_form`."""
    if not drop:
        mask = mask._replace(seed=None)
    rows, g = (grad_sums, d, grad_d, product, pre, scale), pre.shape[1]
    launch(kernels.normalized_backward, (len(pre),), *rows, *mask, g, NORMALIZE=normalize, **_whole(pre))


def rectified(d: Tensor, hidden: Tensor | None, product: Tensor, bias: Tensor, mask: Mask, drop: bool) -> None:
    """See `torch_form`."""
    grid, constants = _cut(d)
    if not drop:
        mask = mask._replace(seed=None)
    launch(kernels.rectified, grid, d, hidden, product, bias, *mask, d.shape[1], **constants)


def rectified_backward(
    grad_sums: Tensor, d: Tensor | None, grad_d: Tensor | None, product: Tensor, hidden: Tensor, mask: Mask, drop: bool
) -> None:
    """See `torch_form`."""
    grid, constants = _cut(hidden)
    if not drop:
        mask = mask._replace(seed=None)
    rows = grad_sums, d, grad_d, product, hidden
    launch(kernels.rectified_backward, grid, *rows, *mask, hidden.shape[1], **constants)


def updated(
    h: Tensor, after: Tensor, c: Tensor | None, product: Tensor, bias: Tensor, kept: Tensor, z: Tensor, mask: Mask
) -> None:
    """See `torch_form`."""
    grid, constants = _cut(h)
    rows = h, after, c, product, bias, kept, z
    launch(kernels.updated, grid, *rows, mask.lengths, mask.step, h.shape[1], **constants)


def updated_backward(
    grad_h: Tensor, grad_new: Tensor, grad_c: Tensor, product: Tensor, c: Tensor | None, kept: Tensor, mask: Mask
) -> None:
    """See `torch_form`."""
    grid, constants = _cut(grad_h)
    rows = grad_h, grad_new, grad_c, product, c, kept
    launch(kernels.updated_backward, grid, *rows, mask.lengths, mask.step, grad_h.shape[1], **constants)


def gated(
    h: Tensor,
    c: Tensor,
    after: Tensor,
    output: Tensor,
    gates: Tensor,
    before_c: Tensor | None,
    sums: Tensor,
    product: Tensor,
    mask: Mask,
    capped: bool,
) -> None:
    """See `torch_form`."""
    grid, constants = _cut(h)
    rows, stride = (h, c, after, output, gates, before_c, sums, product), sums.stride(0) if sums.dim() > 1 else 0
    launch(kernels.gated, grid, *rows, *mask, h.shape[1], stride, CAPPED=capped, **constants)


def gated_backward(
    grad_h: Tensor,
    grad_c: Tensor,
    grad_sums: Tensor,
    product: Tensor,
    grad_output: Tensor,
    gates: Tensor,
    before_c: Tensor,
    mask: Mask,
    capped: bool,
) -> None:
    """See `torch_form`."""
    grid, constants = _cut(grad_h)
    rows = grad_h, grad_c, grad_sums, product, grad_output, gates, before_c
    launch(kernels.gated_backward, grid, *rows, *mask, grad_h.shape[1], CAPPED=capped, **constants)


def mogrified(value: Tensor, factor: Tensor, product: Tensor, bias: Tensor, before: Tensor) -> None:
    """See `torch_form`."""
    grid, constants = _cut(value)
    launch(kernels.mogrified, grid, value, factor, product, bias, before, value.shape[1], **constants)


def mogrified_backward(grad_sum: Tensor, grad: Tensor, before: Tensor, factor: Tensor) -> None:
    """See `torch_form`."""
    grid, constants = _cut(grad)
    launch(kernels.mogrified_backward, grid, grad_sum, grad, before, factor, grad.shape[1], **constants)


def reset_after(
    h: Tensor,
    after: Tensor,
    output: Tensor,
    gates: Tensor,
    inner: Tensor,
    sums: Tensor,
    product: Tensor,
    bias: Tensor,
    mask: Mask,
) -> None:
    """See `torch_form`."""
    grid, constants = _cut(h)
    rows = h, after, output, gates, inner, sums, product, bias
    launch(triton_gru.reset_after, grid, *rows, *mask, h.shape[1], **constants)


def reset_after_backward(
    grad_h: Tensor,
    grad_sums: Tensor,
    product: Tensor,
    grad_output: Tensor,
    gates: Tensor,
    inner: Tensor,
    before: Tensor,
    mask: Mask,
) -> None:
    """See `torch_form`."""
    grid, constants = _cut(grad_h)
    rows = grad_h, grad_sums, product, grad_output, gates, inner, before
    launch(triton_gru.reset_after_backward, grid, *rows, *mask, grad_h.shape[1], **constants)


TILE = {"ROWS": 16, "COLUMNS": 32, "DEPTH": 32}
"""Of the paper's GRU, whose candidate needs a product in the middle of its pointwise part: one kernel does it all."""


def reset_before(
    h: Tensor,
    after: Tensor,
    output: Tensor,
    gates: Tensor,
    inner: Tensor,
    sums: Tensor,
    product: Tensor,
    before: Tensor,
    weight: Tensor,
    mask: Mask,
) -> None:
    """See `torch_form`."""
    rows = h, after, output, gates, inner, sums, product, before, weight
    launch(triton_gru.reset_before, _tiles(h), *rows, *mask, *h.shape, PRECISION=precision(), **TILE)


def reset_before_backward(
    grad_h: Tensor,
    grad_sums: Tensor,
    old_grad_h: Tensor,
    product: Tensor,
    grad_output: Tensor,
    gates: Tensor,
    before: Tensor,
    weight: Tensor,
    mask: Mask,
) -> None:
    """See `torch_form`."""
    rows = grad_h, grad_sums, old_grad_h, product, grad_output, gates, before, weight
    launch(triton_gru.reset_before_backward, _tiles(grad_h), *rows, *mask, *grad_h.shape, PRECISION=precision(), **TILE)


def _tiles(rows: Tensor) -> tuple[int, int]:
    return triton.cdiv(len(rows), TILE["ROWS"]), triton.cdiv(rows.shape[1], TILE["COLUMNS"])


def precision() -> str:
    """Returns how Triton's products of float32 are computed: as torch's own."""
    return "tf32" if may_use_tf32() else "ieee"
