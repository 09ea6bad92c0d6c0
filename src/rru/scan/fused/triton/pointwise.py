"""The functions of `fused.pointwise` as one Triton kernel each.

A row of the RRU's g units is one block, since Normalize sums over it; other rows are cut into blocks of columns.
"""

from typing import Any, NamedTuple

import triton
from torch import Tensor

from rru.scan.arguments import ScanArguments
from rru.scan.fused import rows as r
from rru.scan.fused.devices import may_use_tf32
from rru.scan.fused.triton import gru, kernels


class Mask(NamedTuple):
    """What a kernel needs to know about a step: the rest it computes itself."""

    lengths: Tensor | None  # (B,)
    seed: Tensor | None  # (); None turns dropout off
    step: int
    threshold: int  # random words below it are dropped
    factor: float  # of what is not dropped

    def dropping(self, drop: bool) -> "Mask":
        """Return this mask, with dropout only if `drop`."""
        return self if drop else self._replace(seed=None)


class Masks:
    """The masks of all steps. Nothing is computed here: the seed and the lengths stay on the device."""

    def __init__(self, scan: ScanArguments, features: int, order: range) -> None:
        self.first = Mask(scan.lengths, scan.seed, 0, *dropout_numbers(scan))

    def at(self, t: int) -> Mask:
        """Return the mask of step t."""
        return self.first._replace(step=t)


masks = Masks


def dropout_numbers(scan: ScanArguments) -> tuple[int, float]:
    """Return the `threshold` and the `factor` of dropout."""
    return round(scan.spec.dropout * 2**32), 1 / (1 - scan.spec.dropout)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Launch a kernel, unless the batch is empty. All launches go through here."""
    if 0 not in grid:
        kernel[grid](*arguments, **constants)


def _launch_whole(kernel: Any, row: Tensor, *arguments: Any, **constants: Any) -> None:
    """Launch a kernel that takes a whole row at once."""
    block = max(16, triton.next_power_of_2(row.shape[1]))
    warps = min(16, max(1, block // 512))
    launch(kernel, (len(row),), *arguments, row.shape[1], **constants, BLOCK=block, num_warps=warps)


def _launch_cut(kernel: Any, row: Tensor, *arguments: Any, **constants: Any) -> None:
    """Launch a kernel that takes up to 512 columns of a row at once."""
    batch, columns = row.shape
    block = min(512, max(16, triton.next_power_of_2(columns)))
    grid = batch, triton.cdiv(columns, block)
    launch(kernel, grid, *arguments, columns, **constants, BLOCK=block, num_warps=max(1, block // 128))


def normalized(rows: r.Normalized, mask: Mask, *, normalize: bool, drop: bool) -> None:
    _launch_whole(kernels.normalized, rows.d, *rows, *mask.dropping(drop), NORMALIZE=normalize)


def normalized_backward(rows: r.NormalizedGradients, mask: Mask, *, normalize: bool, drop: bool) -> None:
    _launch_whole(kernels.normalized_backward, rows.pre, *rows, *mask.dropping(drop), NORMALIZE=normalize)


def rectified(rows: r.Rectified, mask: Mask, *, drop: bool) -> None:
    _launch_cut(kernels.rectified, rows.d, *rows, *mask.dropping(drop))


def rectified_backward(rows: r.RectifiedGradients, mask: Mask, *, drop: bool) -> None:
    _launch_cut(kernels.rectified_backward, rows.hidden, *rows, *mask.dropping(drop))


def updated(rows: r.Updated, mask: Mask) -> None:
    _launch_cut(kernels.updated, rows.h, *rows, mask.lengths, mask.step)


def updated_backward(rows: r.UpdatedGradients, mask: Mask) -> None:
    _launch_cut(kernels.updated_backward, rows.grad_h, *rows, mask.lengths, mask.step)


def gated(rows: r.Gated, mask: Mask, *, capped: bool) -> None:
    stride = rows.sums.stride(0) if rows.sums.dim() > 1 else 0
    _launch_cut(kernels.gated, rows.h, *rows, *mask, stride, CAPPED=capped)


def gated_backward(rows: r.GatedGradients, mask: Mask, *, capped: bool) -> None:
    _launch_cut(kernels.gated_backward, rows.grad_h, *rows, *mask, CAPPED=capped)


def mogrified(rows: r.Mogrified) -> None:
    _launch_cut(kernels.mogrified, rows.value, *rows)


def mogrified_backward(rows: r.MogrifiedGradients) -> None:
    _launch_cut(kernels.mogrified_backward, rows.grad, *rows)


def reset_after(rows: r.Reset, bias: Tensor, mask: Mask) -> None:
    _launch_cut(gru.reset_after, rows.h, *rows, bias, *mask)


def reset_after_backward(rows: r.ResetGradients, inner: Tensor, mask: Mask) -> None:
    _launch_cut(gru.reset_after_backward, rows.grad_h, *rows, inner, *mask)


TILE = {"ROWS": 16, "COLUMNS": 32, "DEPTH": 32}
"""Of the paper's GRU, whose candidate needs a product in the middle of its pointwise part: one kernel does it all."""


def reset_before(rows: r.Reset, before: Tensor, weight: Tensor, mask: Mask) -> None:
    _launch_tiles(gru.reset_before, rows.h, *rows, before, weight, *mask)


def reset_before_backward(rows: r.ResetGradients, old_grad_h: Tensor, weight: Tensor, mask: Mask) -> None:
    _launch_tiles(gru.reset_before_backward, rows.grad_h, *rows, old_grad_h, weight, *mask)


def _launch_tiles(kernel: Any, row: Tensor, *arguments: Any) -> None:
    grid = triton.cdiv(row.shape[0], TILE["ROWS"]), triton.cdiv(row.shape[1], TILE["COLUMNS"])
    launch(kernel, grid, *arguments, *row.shape, PRECISION=precision(), **TILE)


def precision() -> str:
    """Return how Triton's products of float32 are computed: as torch's own."""
    return "tf32" if may_use_tf32() else "ieee"
