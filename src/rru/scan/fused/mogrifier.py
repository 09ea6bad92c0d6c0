"""The time loops of the Mogrifier LSTM."""

from typing import NamedTuple

import torch
from torch import Tensor

from rru.scan.fused.cell import GatedCell
from rru.scan.fused.resets import Resets
from rru.scan.fused.rows import Gated, GatedGradients, Mogrified, MogrifiedGradients
from rru.scan.fused.scan import FusedScan, TensorSpecs, over_steps, summed


class Round(NamedTuple):
    """A round: even rounds gate the input with the state, odd rounds the state with the input."""

    target: int  # 0: the input, 1: the state
    size: int  # of the target
    low: Tensor | None  # (rank, source), unless the rank is 0
    high: Tensor  # (target, rank or source)
    bias: Tensor  # (target,)


def rounds_of(scan: FusedScan) -> list[Round]:
    """Return the rounds, with matrices as products take them."""
    weights, rounds = iter(scan.weights[3:]), []
    for index in range(scan.spec.options.rounds):
        low = next(weights).to(scan.narrow) if scan.spec.options.rank else None
        high, bias = next(weights).to(scan.narrow), next(weights)
        rounds.append(Round(index % 2, len(bias), low, high, bias))
    return rounds


class FusedMogrifier(GatedCell):
    """Weights: W^x, W^h, b, and for each round A (unless the rank is 0), B, b."""

    def saved(self, scan: FusedScan) -> TensorSpecs:
        (steps, batch, m, n), (rounds, rank) = scan.sizes, scan.spec.options
        shapes: TensorSpecs = [((steps, batch, n), scan.narrow), ((steps, batch, n), scan.wide)]
        sizes = [4 * n]
        for index in range(rounds):
            sizes += [rank] * (rank > 0) + [n if index % 2 else m] * 2
        return shapes + [((steps, batch, size), scan.narrow) for size in sizes]

    def _of_rounds(self, scan: FusedScan, saved: list[Tensor]) -> list[tuple[list[Tensor], ...]]:
        """Return the rows of each round: (narrow, factor, value); the first is empty if the rank is 0."""
        batch, remaining, rows = scan.sizes[1], iter(saved[3:]), []
        for gate in rounds_of(scan):
            sizes = [scan.spec.options.rank, gate.size, gate.size]
            rows.append(tuple(scan.rows(next(remaining, None), batch, size) if size else [] for size in sizes))
        return rows

    def forward(self, scan: FusedScan, saved: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        pointwise, (steps, batch, m, n) = scan.pointwise, scan.sizes
        h, c = (part.clone() for part in scan.initial_state)
        weight_x, weight_h = scan.narrowed(*scan.weights[:2])
        x, rounds, of_rounds = scan.x.to(scan.narrow), rounds_of(scan), self._of_rounds(scan, saved)
        before_h, before_c, all_gates = saved[:3] or (None, None, None)
        before, after = scan.states(before_h)
        olds = [None] * steps if before_c is None else before_c.unbind()
        gates = scan.rows(all_gates, batch, 4 * n)
        outputs = scan.empty(steps, batch, n, dtype=scan.wide)
        product, masks, resets = scan.empty(batch, 4 * n), scan.masks(n), Resets(scan)
        products = [scan.empty(batch, m), scan.empty(batch, n)]
        for t in scan.order:
            resets.apply(t, [before[t], h], [c])
            now = [x[t], before[t]]
            for gate, (narrow, factor, value) in zip(rounds, of_rounds, strict=True):
                source, target = now[1 - gate.target], gate.target
                if gate.low is not None:
                    source = torch.mm(source, gate.low.T, out=narrow[t])
                torch.mm(source, gate.high.T, out=products[target])
                pointwise.mogrified(Mogrified(value[t], factor[t], products[target], gate.bias, now[target]))
                now[target] = value[t]
            torch.mm(now[0], weight_x.T, out=product)
            product.addmm_(now[1], weight_h.T)
            rows = Gated(h, c, after[t], outputs[t], gates[t], olds[t], scan.weights[2], product)
            pointwise.gated(rows, masks.at(t), capped=True)
        return outputs, [h, c]

    def backward(self, scan: FusedScan, saved: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        pointwise, (_, batch, _, n) = scan.pointwise, scan.sizes
        before_h, before_c, gates = saved[:3]
        grad_outputs, *grad_last = gradients
        grad_h, grad_c = (grad.clone() for grad in grad_last)
        x, weight_x, weight_h = scan.narrowed(scan.x, *scan.weights[:2])
        rounds, of_rounds = rounds_of(scan), self._of_rounds(scan, saved)
        grad_sums, grad_x, product = torch.empty_like(gates), torch.empty_like(x), scan.empty(batch, n).zero_()
        lows = [scan.empty(*x.shape[:2], scan.spec.options.rank) for _ in rounds]
        highs = [scan.empty(*x.shape[:2], gate.size) for gate in rounds]
        masks, resets = scan.masks(n, backward=True), Resets(scan)
        for t in scan.order[::-1]:
            rows = GatedGradients(grad_h, grad_c, grad_sums[t], product, grad_outputs[t], gates[t], before_c[t])
            pointwise.gated_backward(rows, masks.at(t), capped=True)
            grads = [torch.mm(grad_sums[t], weight_x, out=grad_x[t]), torch.mm(grad_sums[t], weight_h, out=product)]
            for k, gate in reversed(list(enumerate(rounds))):
                old = of_rounds[k - 2][2][t] if k >= 2 else (x[t], before_h[t])[gate.target]
                grad = highs[k][t]
                pointwise.mogrified_backward(MogrifiedGradients(grad, grads[gate.target], old, of_rounds[k][1][t]))
                if gate.low is None:
                    grads[1 - gate.target].addmm_(grad, gate.high)
                else:
                    torch.mm(grad, gate.high, out=lows[k][t])
                    grads[1 - gate.target].addmm_(lows[k][t], gate.low)
            resets.differentiate(t, [grad_h, product], [grad_c])
        values = [x, before_h]  # of each target, before the round
        of_weights: list[Tensor] = []
        for k, gate in enumerate(rounds):
            source, *rest = values[1 - gate.target], *saved[3 + (3 if scan.spec.options.rank else 2) * k :]
            if scan.spec.options.rank:
                of_weights.append(over_steps(lows[k], source))
                source = rest.pop(0)
            of_weights += [over_steps(highs[k], source), summed(highs[k], scan.wide)]
            values[gate.target] = rest[1]
        first = [over_steps(grad_sums, values[0]), over_steps(grad_sums, values[1]), summed(grad_sums, scan.wide)]
        return [grad_x, grad_h.add_(product), grad_c, *resets.gradients, *first, *of_weights]
