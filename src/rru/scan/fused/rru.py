"""The time loops of the RRU: Eq. 1-6."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rru.scan.fused import forms
from rru.scan.fused.call import Call, Described, linear, over_steps, summed
from rru.scan.fused.cell import FusedCell


class Weights(NamedTuple):
    """The weights of the RRU, as products (matrices) and sums (vectors) take them."""

    x: Tensor  # (g, m)
    h: Tensor  # (g, n)
    bias_j: Tensor  # (g,)
    middle: list[Tensor]  # (g, g)
    bias_middle: list[Tensor]  # (g,)
    c: Tensor  # (n, g)
    bias_c: Tensor  # (n,)
    o: Tensor  # (p, g)
    bias_o: Tensor  # (p,)
    kept: Tensor  # (n,): sigmoid(10 S)
    z: Tensor  # (n,)

    def to_d(self, call: Call) -> Tensor:
        """Returns the matrix (n, g) from the gradient of a new state to that of d."""
        return (self.z.unsqueeze(1) * self.c).to(call.narrow)


def weights_of(call: Call) -> Weights:
    """Returns the weights by name."""
    x, h, bias_j, *rest = call.weights
    middle = 2 * (call.options.relu_layers - 1)
    c, bias_c, o, bias_o, *residual = rest[middle:]
    n = len(c)
    kept = torch.sigmoid(10 * residual[0]) if call.options.scaled_residual else c.new_ones(n)
    x, h, bias_j, c, o, bias_o = call.narrowed(x, h, bias_j, c, o, bias_o)
    middles, z = call.narrowed(*rest[:middle:2]), residual[-1].expand(n).contiguous()
    return Weights(x, h, bias_j, middles, rest[1:middle:2], c, bias_c, o, bias_o, kept, z)


class Rows(NamedTuple):
    """What the forward loop reads and writes. Those that may be None are for the backward pass only."""

    h: Tensor  # (B, n): the state
    sums: Tensor  # (T, B, g): the part of Eq. 1 that needs no state
    d: Tensor  # (T, B, g): may be `sums`
    scale: Tensor  # (T, B): the factor of Normalize
    c: Tensor | None  # (T, B, n): Eq. 4 after ReLU, with `activate_outputs`
    history: Tensor | None  # (T, B, n): the state before each step
    pre: Tensor | None  # (T, B, g): the sum in Eq. 1; may be `sums`
    hidden: list[Tensor | None]  # (T, B, g): the results of Eq. 2


class Gradients(NamedTuple):
    """The gradients that the backward loop reads and writes."""

    h: Tensor  # (B, n): of the state
    new: Tensor  # (T, B, n): of each new state
    sums: list[Tensor]  # (T, B, g): of the sums in Eq. 1 and 2. The last starts as the gradient of d through o.


class FusedRRU(FusedCell):
    """Weights: W^x, W^h, b^j, each (W^k, b^k), W^c, b^c, W^o, b^o, S (unless the residual is unscaled), Z."""

    def outputs(self, call: Call) -> tuple[tuple[int, ...], torch.dtype]:
        return (*call.x.shape[:2], call.options.output_size), call.narrow

    def saved(self, call: Call) -> Described:
        (steps, batch, _, n), options, narrow = call.sizes, call.options, call.narrow
        g = options.expanded_size
        always: Described = [((steps, batch, n), narrow), ((steps, batch, g), narrow), ((steps, batch), call.wide)]
        middle: Described = [((steps, batch, g), narrow)] * (options.relu_layers - 1)
        activated: Described = [((steps, batch, size), narrow) for size in (n, options.output_size)]
        return always + middle + (activated if options.activate_outputs else [])

    def forward(self, call: Call, saved: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        (steps, batch, _, n), options, w = call.sizes, call.options, weights_of(call)
        given: list[Tensor | None] = [*saved] or [None] * len(self.saved(call))
        history, pre, scale, *rest = given
        sums = linear(call.x.to(call.narrow), w.x, w.bias_j, out=pre)
        c = saved[-2] if saved else call.empty(steps, batch, n)
        rows = Rows(
            h=call.state[0].clone(),
            sums=sums,
            d=sums if pre is None else torch.empty_like(pre),
            scale=call.empty(steps, batch, dtype=call.wide) if scale is None else scale,
            c=c if options.activate_outputs else None,
            history=history,
            pre=pre,
            hidden=rest[: options.relu_layers - 1],
        )
        run = whole.forward if (whole := whole_loop(call)) else run_steps
        run(call, rows, w)
        outputs = linear(rows.d, w.o, w.bias_o)
        if options.activate_outputs:
            outputs.relu_()
            if saved:
                saved[-1].copy_(outputs)
        return call.without_padding(outputs), [rows.h]

    def backward(self, call: Call, saved: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        options, w = call.options, weights_of(call)
        history, pre, scale, *hidden = saved
        grad_o = gradients[0].to(call.narrow)
        if options.activate_outputs:
            grad_o = grad_o.masked_fill(saved[-1] <= 0, 0)
        if call.lengths is not None:
            grad_o = call.without_padding(grad_o.clone() if grad_o is gradients[0] else grad_o)
        sums = [*(torch.empty_like(pre) for _ in w.middle), grad_o @ w.o]
        grads = Gradients(gradients[1].clone(), torch.empty_like(history), sums)
        d = torch.empty_like(pre)
        run = whole.backward if (whole := whole_loop(call)) else run_steps_backward
        run(call, saved, grads, d, w)

        # What is large is freed, or overwritten, as soon as it is not needed.
        kept = (
            [10 * w.kept * (1 - w.kept) * _inner_product(grads.new, history, call.wide)]
            if options.scaled_residual
            else []
        )
        if options.activate_outputs:
            grads.new.masked_fill_(saved[-2] <= 0, 0)
        weight_c, bias_c = over_steps(grads.new, d).to(call.wide), summed(grads.new, call.wide)  # without Z
        of_o = [over_steps(grad_o, d), summed(grad_o, call.wide)]
        del d, grad_o
        # The gradient of Z sums c times its gradient. c is not saved, so this goes through the gradient of W^c.
        z = (w.c.to(call.wide).unsqueeze(1) @ weight_c.unsqueeze(2)).flatten() + w.bias_c * bias_c
        of_c = [weight_c.mul_(w.z.unsqueeze(1)), bias_c.mul_(w.z)]
        of_middle = []
        for k, grad in enumerate(sums[1:]):
            source = hidden[k - 1] if k else pre.relu()
            if k == 0 and options.normalize:
                source.mul_(scale.unsqueeze(-1))
            of_middle += [over_steps(grad, source), summed(grad, call.wide)]
        return [
            sums[0] @ w.x,
            grads.h,
            over_steps(sums[0], call.x.to(call.narrow)),
            over_steps(sums[0], history),
            summed(sums[0], call.wide),
            *of_middle,
            *of_c,
            *of_o,
            *kept,
            z if options.vector_rezero else z.sum(0, keepdim=True),
        ]


def _inner_product(one: Tensor, other: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the sum of one * other over steps and sequences: (T, B, n) each, to (n,). In pieces, to save memory."""
    pieces = zip(one.chunk(8), other.chunk(8), strict=True)
    return torch.stack([summed(left * right, dtype) for left, right in pieces]).sum(0)


def run_steps(call: Call, rows: Rows, w: Weights) -> None:
    """Runs all steps: a product, a pointwise kernel, and so on."""
    form, (_, batch, _, n), normalize = call.form, call.sizes, bool(call.options.normalize)
    layers = len(w.middle)
    before, after = call.states(rows.history)
    product, product_c, masks = torch.empty_like(rows.d[0]), call.empty(batch, n), call.masks(rows.d.shape[2])
    for t in call.order:
        d, mask = rows.d[t], masks.at(t)
        torch.mm(before[t], w.h.T, out=product)
        pre = row(rows.pre, t)
        form.normalized(d, pre, rows.scale[t], rows.sums[t], product, mask, normalize, drop=layers == 0)  # Eq. 1
        for k in range(layers):
            torch.mm(d, w.middle[k].T, out=product)
            hidden = row(rows.hidden[k], t)
            form.rectified(d, hidden, product, w.bias_middle[k], mask, drop=k == layers - 1)  # Eq. 2
        torch.mm(d, w.c.T, out=product_c)
        form.updated(rows.h, after[t], row(rows.c, t), product_c, w.bias_c, w.kept, w.z, mask)  # Eq. 4 and 5


def run_steps_backward(call: Call, saved: list[Tensor], grads: Gradients, d: Tensor, w: Weights) -> None:
    """Runs all steps backward: a pointwise kernel, a product, and so on. Writes d (T, B, g), which is not saved."""
    form, normalize, activate = call.form, bool(call.options.normalize), bool(call.options.activate_outputs)
    history, pre, scale, *hidden = saved
    to_d = w.to_d(call)
    product, product_h = torch.empty_like(pre[0]), torch.zeros_like(history[0])
    through_relu = torch.empty_like(product_h)
    masks = call.masks(pre.shape[2], backward=True)
    for t in call.order[::-1]:
        mask = masks.at(t)
        c = saved[-2][t] if activate else None
        form.updated_backward(grads.h, grads.new[t], through_relu, product_h, c, w.kept, mask)
        torch.mm(through_relu if activate else grads.new[t], to_d, out=product)
        d_now, through_o, drop = row(d, t), row(grads.sums[-1], t), True  # these are of the last ReLU only
        for k in reversed(range(len(w.middle))):
            grad = grads.sums[k + 1][t]
            form.rectified_backward(grad, d_now, through_o, product, hidden[k][t], mask, drop)
            torch.mm(grad, w.middle[k], out=product)
            d_now, through_o, drop = None, None, False
        grad = grads.sums[0][t]
        form.normalized_backward(grad, d_now, through_o, product, pre[t], scale[t], mask, normalize, drop)
        torch.mm(grad, w.h, out=product_h)
    grads.h.add_(product_h)


def row(rows: Tensor | None, t: int) -> Tensor | None:
    """Returns the row of step t, if there are any."""
    return None if rows is None else rows[t]


def whole_loop(call: Call) -> Any:
    """Returns the module that runs the whole loop in one kernel, or None if it cannot."""
    if not forms.runs_triton(call.x.device, call.wide):
        return None
    from rru.scan.fused import triton_whole

    return triton_whole if triton_whole.fits(call) else None
