"""The time loops of the LSTM."""

import torch
from torch import Tensor

from rru.scan.fused.cell import GatedCell
from rru.scan.fused.resets import Resets
from rru.scan.fused.rows import Gated, GatedGradients
from rru.scan.fused.scan import FusedScan, TensorSpecs, linear, over_steps, summed


class FusedLSTM(GatedCell):
    """Weights: W^x, W^h, and b with the forget bias added."""

    def saved(self, scan: FusedScan) -> TensorSpecs:
        steps, batch, _, n = scan.sizes
        return [((steps, batch, n), scan.narrow), ((steps, batch, n), scan.wide), ((steps, batch, 4 * n), scan.narrow)]

    def forward(self, scan: FusedScan, saved: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        pointwise, (steps, batch, _, n) = scan.pointwise, scan.sizes
        h, c = (part.clone() for part in scan.initial_state)
        x, weight_x, weight_h, bias = scan.narrowed(scan.x, *scan.weights)
        before_h, before_c, gates = saved or (None, None, None)
        before, after = scan.states(before_h)
        olds = [None] * steps if before_c is None else before_c.unbind()
        sums = gates = linear(x, weight_x, bias, out=gates)
        outputs = scan.empty(steps, batch, n, dtype=scan.wide)
        product, masks, resets = scan.empty(batch, 4 * n), scan.masks(n), Resets(scan)
        for t in scan.order:
            resets.apply(t, [before[t], h], [c])
            torch.mm(before[t], weight_h.T, out=product)
            rows = Gated(h, c, after[t], outputs[t], gates[t], olds[t], sums[t], product)
            pointwise.gated(rows, masks.at(t), capped=False)
        return outputs, [h, c]

    def backward(self, scan: FusedScan, saved: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        pointwise, (_, batch, _, n) = scan.pointwise, scan.sizes
        before_h, before_c, gates = saved
        grad_outputs, *grad_last = gradients
        grad_h, grad_c = (grad.clone() for grad in grad_last)
        x, weight_x, weight_h = scan.narrowed(scan.x, *scan.weights[:2])
        grad_sums, product = torch.empty_like(gates), scan.empty(batch, n).zero_()
        masks, resets = scan.masks(n, backward=True), Resets(scan)
        for t in scan.order[::-1]:
            rows = GatedGradients(grad_h, grad_c, grad_sums[t], product, grad_outputs[t], gates[t], before_c[t])
            pointwise.gated_backward(rows, masks.at(t), capped=False)
            torch.mm(grad_sums[t], weight_h, out=product)
            resets.differentiate(t, [grad_h, product], [grad_c])
        return [
            grad_sums @ weight_x,
            grad_h.add_(product),
            grad_c,
            *resets.gradients,
            over_steps(grad_sums, x),
            over_steps(grad_sums, before_h),
            summed(grad_sums, scan.wide),
        ]
