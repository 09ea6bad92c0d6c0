"""Cross-entropy of a linear head over many classes, without storing the logits of a whole batch."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

MANY_CLASSES = 1024  # with fewer, the logits are small and the plain computation is as fast
ROWS = 256  # per block, so that the logits stay in the CPU cache


def head_cross_entropy(head: nn.Linear, features: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of `head(features)`.

    With many classes, loss and gradients are computed together in blocks of rows. This takes half the time, and a
    gigabyte less memory for the word batches of the paper. These gradients cannot be differentiated again.

    **Arguments:** `features` (N, p), `targets` (N,): class indices.

    **Returns:** a scalar.
    """
    plain = head.out_features < MANY_CLASSES or features.dtype != head.weight.dtype
    if plain or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return F.cross_entropy(head(features), targets)
    loss: Tensor = _InRows.apply(features, head.weight, head.bias, targets)  # type: ignore[no-untyped-call]
    return loss


class _InRows(torch.autograd.Function):
    """Compute loss and gradients in one pass, since both need the softmax."""

    @staticmethod
    def forward(ctx: FunctionCtx, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        count = len(features)
        of_features, of_weight, of_bias = torch.empty_like(features), torch.zeros_like(weight), torch.zeros_like(bias)
        nats = features.new_zeros((), dtype=torch.float64)
        room = features.new_empty(min(ROWS, count), len(weight))
        for start in range(0, count, ROWS):
            rows, right = features[start : start + ROWS], targets[start : start + ROWS, None]
            logits = torch.addmm(bias, rows, weight.t(), out=room[: len(rows)])  # (rows, classes)
            shares = torch.log_softmax(logits, dim=1, out=logits)
            nats -= shares.gather(1, right).double().sum()
            error = shares.exp_().scatter_add_(1, right, shares.new_full(right.shape, -1))
            torch.mm(error, weight, out=of_features[start : start + ROWS])
            of_weight.addmm_(error.t(), rows)
            of_bias += error.sum(dim=0)
        ctx.save_for_backward(of_features.div_(count), of_weight.div_(count), of_bias.div_(count))
        return (nats / count).to(features.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        of_features, of_weight, of_bias = ctx.saved_tensors
        return of_features * gradient, of_weight * gradient, of_bias * gradient, None
