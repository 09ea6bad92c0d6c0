"""Linear heads: their logits, and the cross-entropy over many classes without storing the logits of a whole batch."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from rru.scan.reference import autocast_dtype

MANY_CLASSES = 1024  # with fewer, the logits are small and the plain computation is as fast
ROWS = 256  # per block, so that the logits stay in the CPU cache


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Leave autocast inside the `with` block, for products that take little time and need all digits."""
    return nullcontext() if autocast_dtype(device.type) is None else torch.autocast(device.type, enabled=False)


def head_logits(head: nn.Linear, features: Tensor) -> Tensor:
    """Return the logits of features (.., p), under autocast in the precision of the weights."""
    if autocast_dtype(features.device.type) is None:
        return head(features)  # type: ignore[no-any-return]
    with full_precision(features.device):
        return head(features.to(head.weight.dtype))  # type: ignore[no-any-return]


def head_cross_entropy(head: nn.Linear, features: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of `head(features)`.

    With many classes, loss and gradients are computed together in blocks of rows. This takes half the time, and a
    gigabyte less memory for the word batches of the paper. These gradients cannot be differentiated again. Under
    autocast, products are rounded, since they take a tenth of a step and more; softmax and loss are in float32.

    **Arguments:** `features` (N, p), `targets` (N,): class indices.

    **Returns:** a scalar.
    """
    narrow = autocast_dtype(features.device.type)
    in_rows = head.out_features >= MANY_CLASSES and features.dtype in (head.weight.dtype, narrow)
    if not in_rows or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return F.cross_entropy(head(features), targets)
    with full_precision(features.device):
        dtype = narrow or head.weight.dtype
        loss: Tensor = _InRows.apply(features.to(dtype), head.weight, head.bias, targets)  # type: ignore[no-untyped-call]
    return loss


class _InRows(torch.autograd.Function):
    """Compute loss and gradients in one pass: both need the softmax. Products are in the dtype of the features."""

    @staticmethod
    def forward(ctx: FunctionCtx, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        count, narrow = len(features), features.dtype
        of_features, of_weight, of_bias = torch.empty_like(features), torch.zeros_like(weight), torch.zeros_like(bias)
        nats, matrix = weight.new_zeros((), dtype=torch.float64), weight.to(narrow)
        room = weight.new_empty(min(ROWS, count), len(weight))
        for start in range(0, count, ROWS):
            rows, right = features[start : start + ROWS], targets[start : start + ROWS, None]
            logits = _add_product(bias, rows, matrix.t(), room[: len(rows)])  # (rows, classes)
            shares = torch.log_softmax(logits, dim=1, out=logits)
            nats -= shares.gather(1, right).double().sum()
            error = shares.exp_().scatter_add_(1, right, shares.new_full(right.shape, -1))
            of_bias += error.sum(dim=0)
            error = error.to(narrow)
            torch.mm(error, matrix, out=of_features[start : start + ROWS])
            _add_product(of_weight, error.t(), rows, of_weight)
        ctx.save_for_backward(of_features.div_(count), of_weight.div_(count), of_bias.div_(count))
        return (nats / count).to(weight.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        of_features, of_weight, of_bias = ctx.saved_tensors
        return of_features * gradient.to(of_features.dtype), of_weight * gradient, of_bias * gradient, None


def _add_product(to: Tensor, left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """Write `to + left @ right` to `out`; only the product is in the dtype of its factors."""
    if left.dtype == out.dtype:
        return torch.addmm(to, left, right, out=out)
    return torch.add(to, left @ right, out=out)
