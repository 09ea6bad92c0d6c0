"""The time loops of the GRU."""

import torch
from torch import Tensor

from rru.scan.fused.call import Call, Described, linear, over_steps, summed
from rru.scan.fused.cell import GatedCell


class FusedGRU(GatedCell):
    """Weights: W^x, W^h, b, and b^h with reset_after."""

    def saved(self, call: Call) -> Described:
        steps, batch, _, n = call.sizes
        return [((steps, batch, size * n), call.narrow) for size in (1, 3, 1)]

    def forward(self, call: Call, saved: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        form, (steps, batch, _, n), resets_after = call.form, call.sizes, call.options.reset_after
        h = call.state[0].clone()
        x, weight_x, weight_h, bias = call.narrowed(call.x, *call.weights[:3])
        before_h, all_gates, all_inner = saved or (None, None, None)
        before, after = call.states(before_h)
        gates, inner = call.rows(all_gates, batch, 3 * n), call.rows(all_inner, batch, n)
        sums = linear(x, weight_x, bias)
        outputs = call.empty(steps, batch, n, dtype=call.wide)
        first = weight_h if resets_after else weight_h[: 2 * n]
        product, masks = call.empty(batch, len(first)), call.masks(n)
        for t in call.order:
            torch.mm(before[t], first.T, out=product)
            results = h, after[t], outputs[t], gates[t], inner[t]
            if resets_after:
                form.reset_after(*results, sums[t], product, call.weights[3], masks.at(t))
            else:
                form.reset_before(*results, sums[t], product, before[t], weight_h[2 * n :], masks.at(t))
        return outputs, [h]

    def backward(self, call: Call, saved: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        form, (steps, batch, _, n), resets_after = call.form, call.sizes, call.options.reset_after
        before, gates, inner = saved
        grad_outputs, grad_last = gradients
        x, weight_x, weight_h = call.narrowed(call.x, *call.weights[:2])
        grad_h, other = grad_last.clone(), torch.empty_like(grad_last)
        # With reset_after the columns are r, u, what r multiplies, j; the first three are the gradients of W^h h.
        grad_sums = call.empty(steps, batch, (4 if resets_after else 3) * n)
        from_h = grad_sums[..., : (3 if resets_after else 2) * n]
        product, masks = call.empty(batch, n).zero_(), call.masks(n, backward=True)
        for t in call.order[::-1]:
            if resets_after:
                form.reset_after_backward(
                    grad_h, grad_sums[t], product, grad_outputs[t], gates[t], inner[t], before[t], masks.at(t)
                )
            else:
                form.reset_before_backward(
                    other,
                    grad_sums[t],
                    grad_h,
                    product,
                    grad_outputs[t],
                    gates[t],
                    before[t],
                    weight_h[2 * n :],
                    masks.at(t),
                )
                grad_h, other = other, grad_h
            torch.mm(from_h[t], weight_h[: from_h.shape[-1]], out=product)
        gates, candidate = grad_sums[..., : 2 * n], grad_sums[..., -n:]  # gradients of the sums with W^x x
        of_x, of_h = torch.empty_like(weight_x), torch.empty_like(weight_h)
        over_steps(gates, x, out=of_x[: 2 * n])
        over_steps(candidate, x, out=of_x[2 * n :])
        over_steps(from_h, before, out=of_h[: from_h.shape[-1]])
        if not resets_after:
            over_steps(candidate, inner, out=of_h[2 * n :])
        bias_h = [summed(from_h[..., 2 * n :], call.wide)] if resets_after else []
        grad_x = gates.flatten(0, 1) @ weight_x[: 2 * n]
        grad_x.addmm_(candidate.flatten(0, 1), weight_x[2 * n :])
        return [
            grad_x.view_as(x),
            grad_h.add_(product),
            of_x,
            of_h,
            torch.cat([summed(gates, call.wide), summed(candidate, call.wide)]),
            *bias_h,
        ]
