"""The time loops of the RRU: Eq. 1-6."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from rru.scan.fused import devices
from rru.scan.fused import rows as r
from rru.scan.fused.cell import FusedCell
from rru.scan.fused.resets import Resets
from rru.scan.fused.scan import FusedScan, TensorSpecs, linear, over_steps, summed


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
    decay: Tensor  # (n,): sigmoid(10 S)
    z: Tensor  # (n,)

    def to_d(self, scan: FusedScan) -> Tensor:
        """Return the matrix (n, g) from the gradient of a new state to that of d."""
        return (self.z.unsqueeze(1) * self.c).to(scan.narrow)


def weights_of(scan: FusedScan) -> Weights:
    """Return the weights by name."""
    x, h, bias_j, *rest = scan.weights
    middle = 2 * (scan.spec.options.relu_layers - 1)
    c, bias_c, o, bias_o, *residual = rest[middle:]
    n = len(c)
    decay = torch.sigmoid(10 * residual[0]) if scan.spec.options.scaled_residual else c.new_ones(n)
    x, h, bias_j, c, o, bias_o = scan.narrowed(x, h, bias_j, c, o, bias_o)
    middles, z = scan.narrowed(*rest[:middle:2]), residual[-1].expand(n).contiguous()
    return Weights(x, h, bias_j, middles, rest[1:middle:2], c, bias_c, o, bias_o, decay, z)


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
    resets: Resets  # with that of the state of a reset


class FusedRRU(FusedCell):
    """Weights: W^x, W^h, b^j, each (W^k, b^k), W^c, b^c, W^o, b^o, S (unless the residual is unscaled), Z."""

    def outputs(self, scan: FusedScan) -> tuple[tuple[int, ...], torch.dtype]:
        return (*scan.x.shape[:2], scan.spec.options.output_size), scan.narrow

    def saved(self, scan: FusedScan) -> TensorSpecs:
        (steps, batch, _, n), options, narrow = scan.sizes, scan.spec.options, scan.narrow
        g = options.expanded_size
        always: TensorSpecs = [((steps, batch, n), narrow), ((steps, batch, g), narrow), ((steps, batch), scan.wide)]
        middle: TensorSpecs = [((steps, batch, g), narrow)] * (options.relu_layers - 1)
        activated: TensorSpecs = [((steps, batch, size), narrow) for size in (n, options.output_size)]
        return always + middle + (activated if options.activate_outputs else [])

    def forward(self, scan: FusedScan, saved: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        (steps, batch, _, n), options, w = scan.sizes, scan.spec.options, weights_of(scan)
        given: list[Tensor | None] = [*saved] or [None] * len(self.saved(scan))
        history, pre, scale, *rest = given
        sums = linear(scan.x.to(scan.narrow), w.x, w.bias_j, out=pre)
        c = saved[-2] if saved else scan.empty(steps, batch, n)
        rows = Rows(
            h=scan.state[0].clone(),
            sums=sums,
            d=sums if pre is None else torch.empty_like(pre),
            scale=scan.empty(steps, batch, dtype=scan.wide) if scale is None else scale,
            c=c if options.activate_outputs else None,
            history=history,
            pre=pre,
            hidden=rest[: options.relu_layers - 1],
        )
        run = whole.forward if (whole := whole_loop(scan)) else run_steps
        run(scan, rows, w)
        outputs = linear(rows.d, w.o, w.bias_o)
        if options.activate_outputs:
            outputs.relu_()
            if saved:
                saved[-1].copy_(outputs)
        return scan.without_padding(outputs), [rows.h]

    def backward(self, scan: FusedScan, saved: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        options, w = scan.spec.options, weights_of(scan)
        history, pre, scale, *hidden = saved
        grad_o = gradients[0].to(scan.narrow)
        if options.activate_outputs:
            grad_o = grad_o.masked_fill(saved[-1] <= 0, 0)
        if scan.lengths is not None:
            grad_o = scan.without_padding(grad_o.clone() if grad_o is gradients[0] else grad_o)
        sums = [*(torch.empty_like(pre) for _ in w.middle), grad_o @ w.o]
        grads = Gradients(gradients[1].clone(), torch.empty_like(history), sums, Resets(scan))
        d = torch.empty_like(pre)
        run = whole.backward if (whole := whole_loop(scan)) else run_steps_backward
        run(scan, saved, grads, d, w)

        # What is large is freed, or overwritten, as soon as it is not needed.
        decay = (
            [10 * w.decay * (1 - w.decay) * _inner_product(grads.new, history, scan.wide)]
            if options.scaled_residual
            else []
        )
        if options.activate_outputs:
            grads.new.masked_fill_(saved[-2] <= 0, 0)
        weight_c, bias_c = over_steps(grads.new, d).to(scan.wide), summed(grads.new, scan.wide)  # without Z
        of_o = [over_steps(grad_o, d), summed(grad_o, scan.wide)]
        del d, grad_o
        # The gradient of Z sums c times its gradient. c is not saved, so this goes through the gradient of W^c.
        z = (w.c.to(scan.wide).unsqueeze(1) @ weight_c.unsqueeze(2)).flatten() + w.bias_c * bias_c
        of_c = [weight_c.mul_(w.z.unsqueeze(1)), bias_c.mul_(w.z)]
        of_middle = []
        for k, grad in enumerate(sums[1:]):
            source = hidden[k - 1] if k else pre.relu()
            if k == 0 and options.normalize:
                source.mul_(scale.unsqueeze(-1))
            of_middle += [over_steps(grad, source), summed(grad, scan.wide)]
        return [
            sums[0] @ w.x,
            grads.h,
            *grads.resets.gradients,
            over_steps(sums[0], scan.x.to(scan.narrow)),
            over_steps(sums[0], history),
            summed(sums[0], scan.wide),
            *of_middle,
            *of_c,
            *of_o,
            *decay,
            z if options.vector_rezero else z.sum(0, keepdim=True),
        ]


def _inner_product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sum of a * b over steps and sequences: (T, B, n) each, to (n,). In pieces, to save memory."""
    pieces = zip(a.chunk(8), b.chunk(8), strict=True)
    return torch.stack([summed(part_a * part_b, dtype) for part_a, part_b in pieces]).sum(0)


def run_steps(scan: FusedScan, rows: Rows, w: Weights) -> None:
    """Run all steps: a product, a pointwise kernel, and so on."""
    pointwise, (_, batch, _, n), normalize = scan.pointwise, scan.sizes, bool(scan.spec.options.normalize)
    layers = len(w.middle)
    before, after = scan.states(rows.history)
    product, product_c, masks = torch.empty_like(rows.d[0]), scan.empty(batch, n), scan.masks(rows.d.shape[2])
    resets = Resets(scan)
    for t in scan.order:
        resets.apply(t, [before[t], rows.h])
        d, mask = rows.d[t], masks.at(t)
        torch.mm(before[t], w.h.T, out=product)
        eq1 = r.Normalized(d, row(rows.pre, t), rows.scale[t], rows.sums[t], product)
        pointwise.normalized(eq1, mask, normalize=normalize, drop=layers == 0)
        for k in range(layers):
            torch.mm(d, w.middle[k].T, out=product)
            eq2 = r.Rectified(d, row(rows.hidden[k], t), product, w.bias_middle[k])
            pointwise.rectified(eq2, mask, drop=k == layers - 1)
        torch.mm(d, w.c.T, out=product_c)
        eq5 = r.Updated(rows.h, after[t], row(rows.c, t), product_c, w.bias_c, w.decay, w.z)
        pointwise.updated(eq5, mask)


def run_steps_backward(scan: FusedScan, saved: list[Tensor], grads: Gradients, d: Tensor, w: Weights) -> None:
    """Run all steps backward: a pointwise kernel, a product, and so on. Write d (T, B, g), which is not saved."""
    pointwise, options = scan.pointwise, scan.spec.options
    normalize, activate = bool(options.normalize), bool(options.activate_outputs)
    history, pre, scale, *hidden = saved
    to_d = w.to_d(scan)
    product, product_h = torch.empty_like(pre[0]), torch.zeros_like(history[0])
    through_relu = torch.empty_like(product_h)
    masks = scan.masks(pre.shape[2], backward=True)
    for t in scan.order[::-1]:
        mask = masks.at(t)
        c = saved[-2][t] if activate else None
        eq5 = r.UpdatedGradients(grads.h, grads.new[t], through_relu, product_h, c, w.decay)
        pointwise.updated_backward(eq5, mask)
        torch.mm(through_relu if activate else grads.new[t], to_d, out=product)
        d_now, through_o, drop = row(d, t), row(grads.sums[-1], t), True  # these are of the last ReLU only
        for k in reversed(range(len(w.middle))):
            grad = grads.sums[k + 1][t]
            eq2 = r.RectifiedGradients(grad, d_now, through_o, product, hidden[k][t])
            pointwise.rectified_backward(eq2, mask, drop=drop)
            torch.mm(grad, w.middle[k], out=product)
            d_now, through_o, drop = None, None, False
        grad = grads.sums[0][t]
        eq1 = r.NormalizedGradients(grad, d_now, through_o, product, pre[t], scale[t])
        pointwise.normalized_backward(eq1, mask, normalize=normalize, drop=drop)
        torch.mm(grad, w.h, out=product_h)
        grads.resets.differentiate(t, [grads.h, product_h])
    grads.h.add_(product_h)


def row(rows: Tensor | None, t: int) -> Tensor | None:
    """Return the row of step t, if there are any."""
    return None if rows is None else rows[t]


def whole_loop(scan: FusedScan) -> Any:
    """Return the module that runs the whole loop in one kernel, or None if it cannot: it knows no resets."""
    if scan.resets is not None or not devices.runs_triton(scan.x.device, scan.wide):
        return None
    from rru.scan.fused.triton import whole

    return whole if whole.fits(scan) else None
