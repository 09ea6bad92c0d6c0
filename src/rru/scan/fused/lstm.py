"""The time loops of the LSTM."""

import torch
from torch import Tensor

from rru.scan.fused.call import Call, Described, linear, over_steps, summed
from rru.scan.fused.cell import GatedCell


class FusedLSTM(GatedCell):
    """Weights: W^x, W^h, and b with the forget bias added."""

    def saved(self, call: Call) -> Described:
        steps, batch, _, n = call.sizes
        return [((steps, batch, n), call.narrow), ((steps, batch, n), call.wide), ((steps, batch, 4 * n), call.narrow)]

    def forward(self, call: Call, saved: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        form, (steps, batch, _, n) = call.form, call.sizes
        h, c = (part.clone() for part in call.state)
        x, weight_x, weight_h, bias = call.narrowed(call.x, *call.weights)
        before_h, before_c, gates = saved or (None, None, None)
        before, after = call.states(before_h)
        olds = [None] * steps if before_c is None else before_c.unbind()
        sums = gates = linear(x, weight_x, bias, out=gates)
        outputs = call.empty(steps, batch, n, dtype=call.wide)
        product, masks = call.empty(batch, 4 * n), call.masks(n)
        for t in call.order:
            torch.mm(before[t], weight_h.T, out=product)
            form.gated(h, c, after[t], outputs[t], gates[t], olds[t], sums[t], product, masks.at(t), capped=False)
        return outputs, [h, c]

    def backward(self, call: Call, saved: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        form, (_, batch, _, n) = call.form, call.sizes
        before_h, before_c, gates = saved
        grad_outputs, *grad_last = gradients
        grad_h, grad_c = (grad.clone() for grad in grad_last)
        x, weight_x, weight_h = call.narrowed(call.x, *call.weights[:2])
        grad_sums, product = torch.empty_like(gates), call.empty(batch, n).zero_()
        masks = call.masks(n, backward=True)
        for t in call.order[::-1]:
            form.gated_backward(
                grad_h, grad_c, grad_sums[t], product, grad_outputs[t], gates[t], before_c[t], masks.at(t), capped=False
            )
            torch.mm(grad_sums[t], weight_h, out=product)
        return [
            grad_sums @ weight_x,
            grad_h.add_(product),
            grad_c,
            over_steps(grad_sums, x),
            over_steps(grad_sums, before_h),
            summed(grad_sums, call.wide),
        ]
