"""The pointwise parts of a step in torch operations, for devices without Triton, and as the model of its kernels.

rows.py says what each function computes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rru.scan import thresholds
from rru.scan.arguments import ScanArguments
from rru.scan.dropout import dropout_masks
from rru.scan.fused import rows as r


class Mask(NamedTuple):
    """The dropout mask (B, features) of a step, or None; and whether each sequence has ended (B, 1), or None."""

    keep: Tensor | None
    ended: Tensor | None


class Masks:
    """The masks of all steps. Those of many steps are computed at once, because one takes more than 200 operations."""

    def __init__(self, scan: ScanArguments, features: int, order: range) -> None:
        batch = scan.x.shape[1]
        self.seed, self.arguments = scan.seed, (batch, features, scan.spec.dropout, scan.weights[0].dtype)
        self.order, self.known = order, range(0)
        self.at_once = max(1, thresholds.MASK_ENTRIES // max(1, batch * features))
        self.ended: Sequence[Tensor | None] = [None] * len(order)
        if scan.lengths is not None:
            steps = torch.arange(len(order), device=scan.lengths.device).unsqueeze(1)
            self.ended = (steps >= scan.lengths).unsqueeze(2).unbind()

    def at(self, t: int) -> Mask:
        """Return the mask of step t. Steps must be asked for in order."""
        if self.seed is None:
            return Mask(None, self.ended[t])
        if t not in self.known:
            start = self.order.index(t)
            self.known = self.order[start : start + self.at_once]
            self.masks = dropout_masks(self.seed, self.known, *self.arguments).unbind()
        return Mask(self.masks[self.known.index(t)], self.ended[t])


masks = Masks


def _dropped(values: Tensor, mask: Mask | None) -> Tensor:
    return values if mask is None or mask.keep is None else values * mask.keep


def _zero_if_ended(values: Tensor, mask: Mask) -> Tensor:
    return values if mask.ended is None else values.masked_fill(mask.ended, 0)


def _unless_ended(new: Tensor, old: Tensor, mask: Mask) -> Tensor:
    return new if mask.ended is None else torch.where(mask.ended, old, new)


def _write(parts: Sequence[Tensor], out: Tensor, mask: Mask | None = None) -> None:
    """Write the parts side by side; with a mask, zeros for sequences that have ended."""
    rows = parts if mask is None else [_zero_if_ended(part, mask) for part in parts]
    torch.cat([row.to(out.dtype) for row in rows], dim=-1, out=out)


# RRU


def normalized(rows: r.Normalized, mask: Mask, *, normalize: bool, drop: bool) -> None:
    j = _zero_if_ended(rows.sums.to(rows.scale.dtype) + rows.product, mask)
    if rows.pre is not None:
        rows.pre.copy_(j)
    if normalize:
        factor = torch.rsqrt(j.square().mean(-1, keepdim=True) + 1e-6)
        rows.scale.copy_(factor.squeeze(-1))
        j = j * factor
    rows.d.copy_(_dropped(j.relu(), mask if drop else None))


def normalized_backward(rows: r.NormalizedGradients, mask: Mask, *, normalize: bool, drop: bool) -> None:
    used, scale, y = mask if drop else None, rows.scale.unsqueeze(-1), rows.pre.to(rows.scale.dtype)
    if normalize:
        y = y * scale
    if rows.d is not None:
        rows.d.copy_(_dropped(y.relu(), used))
    grad = rows.product.to(y.dtype) if rows.grad_d is None else rows.grad_d.to(y.dtype) + rows.product
    grad = _dropped(grad.masked_fill(y <= 0, 0), used)
    if normalize:
        grad = (grad - y * (grad * y).mean(-1, keepdim=True)) * scale
    rows.grad_sums.copy_(_zero_if_ended(grad, mask))


def rectified(rows: r.Rectified, mask: Mask, *, drop: bool) -> None:
    j = _zero_if_ended(rows.product + rows.bias, mask).relu()
    if rows.hidden is not None:
        rows.hidden.copy_(j)
    rows.d.copy_(_dropped(j, mask if drop else None))


def rectified_backward(rows: r.RectifiedGradients, mask: Mask, *, drop: bool) -> None:
    used = mask if drop else None
    if rows.d is not None:
        rows.d.copy_(_dropped(rows.hidden, used))
    grad = rows.product if rows.grad_d is None else rows.grad_d + rows.product
    rows.grad_sums.copy_(_zero_if_ended(_dropped(grad.masked_fill(rows.hidden <= 0, 0), used), mask))


def updated(rows: r.Updated, mask: Mask) -> None:
    new = rows.product + rows.bias
    if rows.c is not None:
        new = new.relu()
        rows.c.copy_(new)
    rows.h.copy_(_unless_ended(rows.decay * rows.h + rows.z * new, rows.h, mask))
    rows.after.copy_(rows.h)


def updated_backward(rows: r.UpdatedGradients, mask: Mask) -> None:
    grad = rows.grad_h + rows.product
    rows.grad_new.copy_(_zero_if_ended(grad, mask))
    if rows.c is not None:
        rows.grad_c.copy_(rows.grad_new.masked_fill(rows.c <= 0, 0))
    rows.grad_h.copy_(_unless_ended(rows.decay * grad, grad, mask))


# LSTM and Mogrifier


def gated(rows: r.Gated, mask: Mask, *, capped: bool) -> None:
    h, c, after, output, gates, before_c, sums, product = rows
    i, f, j, o = (sums.to(c.dtype) + product).chunk(4, dim=-1)
    i, f, j, o = i.sigmoid(), f.sigmoid(), j.tanh(), o.sigmoid()
    if before_c is not None:
        before_c.copy_(c)
    _write((i, f, j, o), gates)
    new_c = f * c + (torch.minimum(1 - f, i) if capped else i) * _dropped(j, mask)
    new_h = new_c.tanh() * o
    output.copy_(_zero_if_ended(new_h, mask))
    c.copy_(_unless_ended(new_c, c, mask))
    h.copy_(_unless_ended(new_h, h, mask))
    after.copy_(h)


def gated_backward(rows: r.GatedGradients, mask: Mask, *, capped: bool) -> None:
    grad_h, grad_c, grad_sums, product, grad_output, gates, before_c = rows
    i, f, j, o = gates.to(grad_c.dtype).chunk(4, dim=-1)
    share = torch.minimum(1 - f, i) if capped else i
    squashed = (f * before_c + share * _dropped(j, mask)).tanh()
    through = grad_h + product
    dh = through + grad_output
    dc = grad_c + dh * o * (1 - squashed * squashed)
    to_share = _dropped(dc * j, mask)
    to_i, to_f = to_share, dc * before_c
    if capped:  # the gradient goes to the smaller one, half to each if they are equal, as in torch.minimum
        from_i = torch.where(i == 1 - f, 0.5, (i < 1 - f).to(i.dtype))
        to_i, to_f = to_share * from_i, to_f - to_share * (1 - from_i)
    to_j = _dropped(dc * share, mask)
    sums = to_i * i * (1 - i), to_f * f * (1 - f), to_j * (1 - j * j), dh * squashed * o * (1 - o)
    _write(sums, grad_sums, mask)
    grad_h.copy_(_unless_ended(torch.zeros_like(through), through, mask))
    grad_c.copy_(_unless_ended(dc * f, grad_c, mask))


def mogrified(rows: r.Mogrified) -> None:
    gate = 2 * (rows.product + rows.bias).sigmoid()
    rows.factor.copy_(gate)
    rows.value.copy_(rows.before * gate)


def mogrified_backward(rows: r.MogrifiedGradients) -> None:
    torch.mul(rows.grad * rows.before, rows.factor * (1 - rows.factor / 2), out=rows.grad_sum)
    rows.grad.mul_(rows.factor)


# GRU


def reset_after(rows: r.Reset, bias: Tensor, mask: Mask) -> None:
    n, wide = rows.h.shape[-1], rows.h.dtype
    reset, u = (rows.sums[:, : 2 * n].to(wide) + rows.product[:, : 2 * n]).sigmoid().chunk(2, dim=-1)
    from_h = rows.product[:, 2 * n :] + bias
    j = torch.tanh(rows.sums[:, 2 * n :] + reset * from_h)
    rows.inner.copy_(from_h)
    _write_gru(rows, (reset, u, j), mask)


def reset_before(rows: r.Reset, before: Tensor, weight: Tensor, mask: Mask) -> None:
    n, wide = rows.h.shape[-1], rows.h.dtype
    reset, u = (rows.sums[:, : 2 * n].to(wide) + rows.product).sigmoid().chunk(2, dim=-1)
    rows.inner.copy_(reset * before)
    j = torch.tanh(rows.sums[:, 2 * n :].to(wide) + rows.inner @ weight.T)
    _write_gru(rows, (reset, u, j), mask)


def _write_gru(rows: r.Reset, gates: tuple[Tensor, Tensor, Tensor], mask: Mask) -> None:
    _, u, j = gates
    _write(gates, rows.gates)
    new = u * rows.h + (1 - u) * _dropped(j, mask)
    rows.output.copy_(_zero_if_ended(new, mask))
    rows.h.copy_(_unless_ended(new, rows.h, mask))
    rows.after.copy_(rows.h)


def reset_after_backward(rows: r.ResetGradients, inner: Tensor, mask: Mask) -> None:
    reset = rows.gates.to(rows.grad_h.dtype).chunk(3, dim=-1)[0]
    through, dj, du, direct = _candidate_gradients(rows, rows.grad_h, mask)
    _write((dj * inner * reset * (1 - reset), du, dj * reset, dj), rows.grad_sums, mask)
    rows.grad_h.copy_(_unless_ended(direct, through, mask))


def reset_before_backward(rows: r.ResetGradients, old_grad_h: Tensor, weight: Tensor, mask: Mask) -> None:
    reset = rows.gates.to(rows.grad_h.dtype).chunk(3, dim=-1)[0]
    through, dj, du, direct = _candidate_gradients(rows, old_grad_h, mask)
    back = _zero_if_ended(dj, mask).to(weight.dtype) @ weight
    _write((back * rows.before * reset * (1 - reset), du, dj), rows.grad_sums, mask)
    rows.grad_h.copy_(_unless_ended(direct + back * reset, through, mask))


def _candidate_gradients(rows: r.ResetGradients, grad_h: Tensor, mask: Mask) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _, u, j = rows.gates.to(grad_h.dtype).chunk(3, dim=-1)
    through = grad_h + rows.product
    dh = through + rows.grad_output
    dj = _dropped(dh * (1 - u), mask) * (1 - j * j)
    du = dh * (rows.before - _dropped(j, mask)) * u * (1 - u)
    return through, dj, du, dh * u
