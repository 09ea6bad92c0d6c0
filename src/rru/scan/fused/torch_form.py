"""The pointwise parts of every step in torch operations, for devices without Triton, and as the model of its kernels.

Rows are those of one step: (B, features). Sums are computed in the dtype of the weights; a result is rounded when it is
written to its row. Arguments that a function writes to come first.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rru.scan.dropout import dropout_masks

_AT_ONCE = 2**18  # entries of masks to compute at once: the words of Philox take about 40 bytes per entry


class Mask(NamedTuple):
    """The dropout mask (B, features) of a step, or None; and whether each sequence has ended (B, 1), or None."""

    keep: Tensor | None
    ended: Tensor | None


class Masks:
    """The masks of all steps. Those of many steps are computed at once, because one takes more than 200 operations."""

    def __init__(
        self,
        lengths: Tensor | None,
        seed: Tensor | None,
        rate: float,
        order: range,
        batch: int,
        features: int,
        dtype: torch.dtype,
    ) -> None:
        self.seed, self.arguments = seed, (batch, features, rate, dtype)
        self.order, self.known = order, range(0)
        self.at_once = max(1, _AT_ONCE // max(1, batch * features))
        self.ended: Sequence[Tensor | None] = [None] * len(order)
        if lengths is not None:
            steps = torch.arange(len(order), device=lengths.device).unsqueeze(1)
            self.ended = (steps >= lengths).unsqueeze(2).unbind()

    def at(self, t: int) -> Mask:
        """Returns the mask of step t. Steps must be asked for in order."""
        if self.seed is None:
            return Mask(None, self.ended[t])
        if t not in self.known:
            start = self.order.index(t)
            self.known = self.order[start : start + self.at_once]
            self.masks = dropout_masks(self.seed, self.known, *self.arguments).unbind()
        return Mask(self.masks[self.known.index(t)], self.ended[t])


def _dropped(values: Tensor, mask: Mask | None) -> Tensor:
    return values if mask is None or mask.keep is None else values * mask.keep


def _zero_if_ended(values: Tensor, mask: Mask) -> Tensor:
    return values if mask.ended is None else values.masked_fill(mask.ended, 0)


def _unless_ended(new: Tensor, old: Tensor, mask: Mask) -> Tensor:
    return new if mask.ended is None else torch.where(mask.ended, old, new)


# RRU


def normalized(
    d: Tensor, pre: Tensor | None, scale: Tensor, sums: Tensor, product: Tensor, mask: Mask, normalize: bool, drop: bool
) -> None:
    """Eq. 1 and, with `drop`, Eq. 3. Writes d (B, g), and for the backward pass `pre`: the sum in Eq. 1.

    `scale` (B,) is the factor of Normalize, written if `normalize`. `pre` may be `sums`.
    """
    j = _zero_if_ended(sums.to(scale.dtype) + product, mask)
    if pre is not None:
        pre.copy_(j)
    if normalize:
        factor = torch.rsqrt(j.square().mean(-1, keepdim=True) + 1e-6)
        scale.copy_(factor.squeeze(-1))
        j = j * factor
    d.copy_(_dropped(j.relu(), mask if drop else None))


def normalized_backward(
    grad_sums: Tensor,
    d: Tensor | None,
    grad_d: Tensor | None,
    product: Tensor,
    pre: Tensor,
    scale: Tensor,
    mask: Mask,
    normalize: bool,
    drop: bool,
) -> None:
    """Writes the gradient of the sum in Eq. 1, and d unless it is None. The gradient of d is `grad_d` + `product`."""
    used, y = mask if drop else None, pre.to(scale.dtype)
    if normalize:
        y = y * scale.unsqueeze(-1)
    if d is not None:
        d.copy_(_dropped(y.relu(), used))
    grad = product.to(scale.dtype) if grad_d is None else grad_d.to(scale.dtype) + product
    grad = _dropped(grad.masked_fill(y <= 0, 0), used)
    if normalize:
        grad = (grad - y * (grad * y).mean(-1, keepdim=True)) * scale.unsqueeze(-1)
    grad_sums.copy_(_zero_if_ended(grad, mask))


def rectified(d: Tensor, hidden: Tensor | None, product: Tensor, bias: Tensor, mask: Mask, drop: bool) -> None:
    """Eq. 2 and, with `drop`, Eq. 3. Writes d (B, g), and for the backward pass `hidden`: d before dropout."""
    j = _zero_if_ended(product + bias, mask).relu()
    if hidden is not None:
        hidden.copy_(j)
    d.copy_(_dropped(j, mask if drop else None))


def rectified_backward(
    grad_sums: Tensor, d: Tensor | None, grad_d: Tensor | None, product: Tensor, hidden: Tensor, mask: Mask, drop: bool
) -> None:
    """Writes the gradient of the sum in Eq. 2, and d unless it is None. The gradient of d is `grad_d` + `product`."""
    used = mask if drop else None
    if d is not None:
        d.copy_(_dropped(hidden, used))
    grad = product if grad_d is None else grad_d + product
    grad_sums.copy_(_zero_if_ended(_dropped(grad.masked_fill(hidden <= 0, 0), used), mask))


def updated(
    h: Tensor, after: Tensor, c: Tensor | None, product: Tensor, bias: Tensor, kept: Tensor, z: Tensor, mask: Mask
) -> None:
    """Eq. 5: updates h (B, n), and copies it to `after` for the next product. With `c`, ReLU over c, which is kept."""
    new = product + bias
    if c is not None:
        new = new.relu()
        c.copy_(new)
    h.copy_(_unless_ended(kept * h + z * new, h, mask))
    after.copy_(h)


def updated_backward(
    grad_h: Tensor,
    grad_new: Tensor,
    grad_c: Tensor,
    product: Tensor,
    c: Tensor | None,
    kept: Tensor,
    mask: Mask,
) -> None:
    """Writes the gradient of the new state to `grad_new`; updates `grad_h` to the old one's, except for a product.

    The gradient of the new state is `grad_h` + `product`. `grad_c`: after ReLU over c, if there is one.
    """
    grad = grad_h + product
    grad_new.copy_(_zero_if_ended(grad, mask))
    if c is not None:
        grad_c.copy_(grad_new.masked_fill(c <= 0, 0))
    grad_h.copy_(_unless_ended(kept * grad, grad, mask))


# LSTM and Mogrifier


def gated(
    h: Tensor,
    c: Tensor,
    after: Tensor,
    output: Tensor,
    gates: Tensor,
    before_c: Tensor | None,
    sums: Tensor,
    product: Tensor,
    mask: Mask,
    capped: bool,
) -> None:
    """A step of the LSTM: updates h and c (B, n); writes `after` for the next product, the output and the gates.

    `before_c`: c before the step, for the backward pass. `gates` may be `sums`; `sums` may be a bias (4n,).
    """
    i, f, j, o = (sums.to(c.dtype) + product).chunk(4, dim=-1)
    i, f, j, o = i.sigmoid(), f.sigmoid(), j.tanh(), o.sigmoid()
    if before_c is not None:
        before_c.copy_(c)
    torch.cat([part.to(gates.dtype) for part in (i, f, j, o)], dim=-1, out=gates)
    new_c = f * c + (torch.minimum(1 - f, i) if capped else i) * _dropped(j, mask)
    new_h = new_c.tanh() * o
    output.copy_(_zero_if_ended(new_h, mask))
    c.copy_(_unless_ended(new_c, c, mask))
    h.copy_(_unless_ended(new_h, h, mask))
    after.copy_(h)


def gated_backward(
    grad_h: Tensor,
    grad_c: Tensor,
    grad_sums: Tensor,
    product: Tensor,
    grad_output: Tensor,
    gates: Tensor,
    before_c: Tensor,
    mask: Mask,
    capped: bool,
) -> None:
    """Writes the gradients of the gates' sums; updates `grad_h`, except for the next product, and `grad_c`."""
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
    grads = (
        to_i * i * (1 - i),
        to_f * f * (1 - f),
        _dropped(dc * share, mask) * (1 - j * j),
        dh * squashed * o * (1 - o),
    )
    torch.cat([_zero_if_ended(grad, mask).to(grad_sums.dtype) for grad in grads], dim=-1, out=grad_sums)
    grad_h.copy_(_unless_ended(torch.zeros_like(through), through, mask))
    grad_c.copy_(_unless_ended(dc * f, grad_c, mask))


def mogrified(value: Tensor, factor: Tensor, product: Tensor, bias: Tensor, before: Tensor) -> None:
    """A round of the Mogrifier: writes the factor, and `before` times the factor to `value`."""
    gate = 2 * (product + bias).sigmoid()
    factor.copy_(gate)
    value.copy_(before * gate)


def mogrified_backward(grad_sum: Tensor, grad: Tensor, before: Tensor, factor: Tensor) -> None:
    """Writes the gradient of the factor's sum; updates `grad`, the gradient of a round's target."""
    torch.mul(grad * before, factor * (1 - factor / 2), out=grad_sum)
    grad.mul_(factor)


# GRU


def reset_after(
    h: Tensor,
    after: Tensor,
    output: Tensor,
    gates: Tensor,
    inner: Tensor,
    sums: Tensor,
    product: Tensor,
    bias: Tensor,
    mask: Mask,
) -> None:
    """A step of torch's GRU: updates h; writes `after`, the output, the gates r, u, j, and what r multiplies."""
    n = h.shape[-1]
    r, u = (sums[:, : 2 * n].to(h.dtype) + product[:, : 2 * n]).sigmoid().chunk(2, dim=-1)
    from_h = product[:, 2 * n :] + bias
    j = torch.tanh(sums[:, 2 * n :] + r * from_h)
    inner.copy_(from_h)
    _write_gru(h, after, output, gates, (r, u, j), mask)


def _write_gru(
    h: Tensor, after: Tensor, output: Tensor, gates: Tensor, parts: tuple[Tensor, Tensor, Tensor], mask: Mask
) -> None:
    _, u, j = parts
    torch.cat([part.to(gates.dtype) for part in parts], dim=-1, out=gates)
    new = u * h + (1 - u) * _dropped(j, mask)
    output.copy_(_zero_if_ended(new, mask))
    h.copy_(_unless_ended(new, h, mask))
    after.copy_(h)


def reset_after_backward(
    grad_h: Tensor,
    grad_sums: Tensor,
    product: Tensor,
    grad_output: Tensor,
    gates: Tensor,
    inner: Tensor,
    before: Tensor,
    mask: Mask,
) -> None:
    """Writes the gradients of r's and u's sums, of what r multiplies and of j's sum; updates `grad_h`."""
    r, u, j = gates.to(grad_h.dtype).chunk(3, dim=-1)
    through, dj, du, direct = _candidate_gradients(grad_h, product, grad_output, u, j, before, mask)
    grads = (dj * inner * r * (1 - r), du, dj * r, dj)
    torch.cat([_zero_if_ended(grad, mask).to(grad_sums.dtype) for grad in grads], dim=-1, out=grad_sums)
    grad_h.copy_(_unless_ended(direct, through, mask))


def _candidate_gradients(
    grad_h: Tensor, product: Tensor, grad_output: Tensor, u: Tensor, j: Tensor, before: Tensor, mask: Mask
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    through = grad_h + product
    dh = through + grad_output
    dj = _dropped(dh * (1 - u), mask) * (1 - j * j)
    du = dh * (before - _dropped(j, mask)) * u * (1 - u)
    return through, dj, du, dh * u


def reset_before(
    h: Tensor,
    after: Tensor,
    output: Tensor,
    gates: Tensor,
    inner: Tensor,
    sums: Tensor,
    product: Tensor,
    before: Tensor,
    weight: Tensor,
    mask: Mask,
) -> None:
    """A step of the paper's GRU after the product for r and u. `weight` (n, n) is that of the candidate.

    Updates h; writes `after`, the output, the gates r, u, j, and `inner`: r h.
    """
    n = h.shape[-1]
    r, u = (sums[:, : 2 * n].to(h.dtype) + product).sigmoid().chunk(2, dim=-1)
    inner.copy_(r * before)
    j = torch.tanh(sums[:, 2 * n :].to(h.dtype) + inner @ weight.T)
    _write_gru(h, after, output, gates, (r, u, j), mask)


def reset_before_backward(
    grad_h: Tensor,
    grad_sums: Tensor,
    old_grad_h: Tensor,
    product: Tensor,
    grad_output: Tensor,
    gates: Tensor,
    before: Tensor,
    weight: Tensor,
    mask: Mask,
) -> None:
    """Writes the gradients of the sums of r, u, j, and `grad_h`, except for the product of the first two."""
    r, u, j = gates.to(grad_h.dtype).chunk(3, dim=-1)
    through, dj, du, direct = _candidate_gradients(old_grad_h, product, grad_output, u, j, before, mask)
    back = _zero_if_ended(dj, mask).to(weight.dtype) @ weight
    grads = (back * before * r * (1 - r), du, dj)
    torch.cat([_zero_if_ended(grad, mask).to(grad_sums.dtype) for grad in grads], dim=-1, out=grad_sums)
    grad_h.copy_(_unless_ended(direct + back * r, through, mask))
