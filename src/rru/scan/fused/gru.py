"""The time loops of the GRU."""

import torch
from torch import Tensor

from rru.scan.fused.cell import GatedCell
from rru.scan.fused.resets import Resets
from rru.scan.fused.rows import Reset, ResetGradients
from rru.scan.fused.scan import FusedScan, TensorSpecs, linear, over_steps, summed


class FusedGRU(GatedCell):
    """Weights: W^x, W^h, b, and b^h with reset_after."""

    def saved(self, scan: FusedScan) -> TensorSpecs:
        steps, batch, _, n = scan.sizes
        return [((steps, batch, size * n), scan.narrow) for size in (1, 3, 1)]

    def forward(self, scan: FusedScan, saved: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        pointwise, (steps, batch, _, n), resets_after = scan.pointwise, scan.sizes, scan.spec.options.reset_after
        h = scan.state[0].clone()
        x, weight_x, weight_h, bias = scan.narrowed(scan.x, *scan.weights[:3])
        before_h, all_gates, all_inner = saved or (None, None, None)
        before, after = scan.states(before_h)
        gates, inner = scan.rows(all_gates, batch, 3 * n), scan.rows(all_inner, batch, n)
        sums = linear(x, weight_x, bias)
        outputs = scan.empty(steps, batch, n, dtype=scan.wide)
        first = weight_h if resets_after else weight_h[: 2 * n]
        product, masks, resets = scan.empty(batch, len(first)), scan.masks(n), Resets(scan)
        for t in scan.order:
            resets.apply(t, [before[t], h])
            torch.mm(before[t], first.T, out=product)
            rows = Reset(h, after[t], outputs[t], gates[t], inner[t], sums[t], product)
            if resets_after:
                pointwise.reset_after(rows, scan.weights[3], masks.at(t))
            else:
                pointwise.reset_before(rows, before[t], weight_h[2 * n :], masks.at(t))
        return outputs, [h]

    def backward(self, scan: FusedScan, saved: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        pointwise, (steps, batch, _, n), resets_after = scan.pointwise, scan.sizes, scan.spec.options.reset_after
        before, gates, inner = saved
        grad_outputs, grad_last = gradients
        x, weight_x, weight_h = scan.narrowed(scan.x, *scan.weights[:2])
        grad_h, other = grad_last.clone(), torch.empty_like(grad_last)
        # With reset_after the columns are r, u, what r multiplies, j; the first three are the gradients of W^h h.
        grad_sums = scan.empty(steps, batch, (4 if resets_after else 3) * n)
        from_h = grad_sums[..., : (3 if resets_after else 2) * n]
        product, masks, resets = scan.empty(batch, n).zero_(), scan.masks(n, backward=True), Resets(scan)
        for t in scan.order[::-1]:
            read = product, grad_outputs[t], gates[t], before[t]
            if resets_after:
                pointwise.reset_after_backward(ResetGradients(grad_h, grad_sums[t], *read), inner[t], masks.at(t))
            else:
                rows = ResetGradients(other, grad_sums[t], *read)
                pointwise.reset_before_backward(rows, grad_h, weight_h[2 * n :], masks.at(t))
                grad_h, other = other, grad_h
            torch.mm(from_h[t], weight_h[: from_h.shape[-1]], out=product)
            resets.differentiate(t, [grad_h, product])
        gates, candidate = grad_sums[..., : 2 * n], grad_sums[..., -n:]  # gradients of the sums with W^x x
        of_x, of_h = torch.empty_like(weight_x), torch.empty_like(weight_h)
        over_steps(gates, x, out=of_x[: 2 * n])
        over_steps(candidate, x, out=of_x[2 * n :])
        over_steps(from_h, before, out=of_h[: from_h.shape[-1]])
        if not resets_after:
            over_steps(candidate, inner, out=of_h[2 * n :])
        bias_h = [summed(from_h[..., 2 * n :], scan.wide)] if resets_after else []
        grad_x = gates.flatten(0, 1) @ weight_x[: 2 * n]
        grad_x.addmm_(candidate.flatten(0, 1), weight_x[2 * n :])
        return [
            grad_x.view_as(x),
            grad_h.add_(product),
            *resets.gradients,
            of_x,
            of_h,
            torch.cat([summed(gates, scan.wide), summed(candidate, scan.wide)]),
            *bias_h,
        ]
