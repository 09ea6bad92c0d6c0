"""The time loops of the Mogrifier LSTM."""

from typing import NamedTuple

import torch
from torch import Tensor

from rru.scan.fused.call import Call, Described, over_steps, summed
from rru.scan.fused.cell import GatedCell


class Round(NamedTuple):
    """A round: even rounds gate the input with the state, odd rounds the state with the input."""

    target: int  # 0: the input, 1: the state
    size: int  # of the target
    low: Tensor | None  # (rank, source), unless the rank is 0
    high: Tensor  # (target, rank or source)
    bias: Tensor  # (target,)


def rounds_of(call: Call) -> list[Round]:
    """Returns the rounds, with matrices as products take them."""
    weights, found = iter(call.weights[3:]), []
    for index in range(call.options.rounds):
        low = next(weights).to(call.narrow) if call.options.rank else None
        high, bias = next(weights).to(call.narrow), next(weights)
        found.append(Round(index % 2, len(bias), low, high, bias))
    return found


class FusedMogrifier(GatedCell):
    """Weights: W^x, W^h, b, and for each round A (unless the rank is 0), B, b."""

    def saved(self, call: Call) -> Described:
        (steps, batch, m, n), (rounds, rank) = call.sizes, call.options
        shapes: Described = [((steps, batch, n), call.narrow), ((steps, batch, n), call.wide)]
        sizes = [4 * n]
        for index in range(rounds):
            sizes += [rank] * (rank > 0) + [n if index % 2 else m] * 2
        return shapes + [((steps, batch, size), call.narrow) for size in sizes]

    def _of_rounds(self, call: Call, saved: list[Tensor]) -> list[tuple[list[Tensor], ...]]:
        """Returns the rows of each round: (narrow, factor, value); the first is empty if the rank is 0."""
        batch, left, found = call.sizes[1], iter(saved[3:]), []
        for one in rounds_of(call):
            sizes = [call.options.rank, one.size, one.size]
            found.append(tuple(call.rows(next(left, None), batch, size) if size else [] for size in sizes))
        return found

    def forward(self, call: Call, saved: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        form, (steps, batch, m, n) = call.form, call.sizes
        h, c = (part.clone() for part in call.state)
        weight_x, weight_h = call.narrowed(*call.weights[:2])
        x, rounds, of_rounds = call.x.to(call.narrow), rounds_of(call), self._of_rounds(call, saved)
        before_h, before_c, all_gates = saved[:3] or (None, None, None)
        before, after = call.states(before_h)
        olds = [None] * steps if before_c is None else before_c.unbind()
        gates = call.rows(all_gates, batch, 4 * n)
        outputs = call.empty(steps, batch, n, dtype=call.wide)
        product, masks = call.empty(batch, 4 * n), call.masks(n)
        products = [call.empty(batch, m), call.empty(batch, n)]
        for t in call.order:
            now = [x[t], before[t]]
            for one, (narrow, factor, value) in zip(rounds, of_rounds, strict=True):
                source, target = now[1 - one.target], one.target
                if one.low is not None:
                    source = torch.mm(source, one.low.T, out=narrow[t])
                torch.mm(source, one.high.T, out=products[target])
                form.mogrified(value[t], factor[t], products[target], one.bias, now[target])
                now[target] = value[t]
            torch.mm(now[0], weight_x.T, out=product)
            product.addmm_(now[1], weight_h.T)
            form.gated(
                h, c, after[t], outputs[t], gates[t], olds[t], call.weights[2], product, masks.at(t), capped=True
            )
        return outputs, [h, c]

    def backward(self, call: Call, saved: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        form, (_, batch, _, n) = call.form, call.sizes
        before_h, before_c, gates = saved[:3]
        grad_outputs, *grad_last = gradients
        grad_h, grad_c = (grad.clone() for grad in grad_last)
        x, weight_x, weight_h = call.narrowed(call.x, *call.weights[:2])
        rounds, of_rounds = rounds_of(call), self._of_rounds(call, saved)
        grad_sums, grad_x, product = torch.empty_like(gates), torch.empty_like(x), call.empty(batch, n).zero_()
        lows = [call.empty(*x.shape[:2], call.options.rank) for _ in rounds]
        highs = [call.empty(*x.shape[:2], one.size) for one in rounds]
        masks = call.masks(n, backward=True)
        for t in call.order[::-1]:
            form.gated_backward(
                grad_h, grad_c, grad_sums[t], product, grad_outputs[t], gates[t], before_c[t], masks.at(t), capped=True
            )
            grads = [torch.mm(grad_sums[t], weight_x, out=grad_x[t]), torch.mm(grad_sums[t], weight_h, out=product)]
            for k, one in reversed(list(enumerate(rounds))):
                old = of_rounds[k - 2][2][t] if k >= 2 else (x[t], before_h[t])[one.target]
                grad = highs[k][t]
                form.mogrified_backward(grad, grads[one.target], old, of_rounds[k][1][t])
                if one.low is None:
                    grads[1 - one.target].addmm_(grad, one.high)
                else:
                    torch.mm(grad, one.high, out=lows[k][t])
                    grads[1 - one.target].addmm_(lows[k][t], one.low)
        values = [x, before_h]  # of each target, before the round
        of_weights: list[Tensor] = []
        for k, one in enumerate(rounds):
            source, *rest = values[1 - one.target], *saved[3 + (3 if call.options.rank else 2) * k :]
            if call.options.rank:
                of_weights.append(over_steps(lows[k], source))
                source = rest.pop(0)
            of_weights += [over_steps(highs[k], source), summed(highs[k], call.wide)]
            values[one.target] = rest[1]
        first = [over_steps(grad_sums, values[0]), over_steps(grad_sums, values[1]), summed(grad_sums, call.wide)]
        return [grad_x, grad_h.add_(product), grad_c, *first, *of_weights]
