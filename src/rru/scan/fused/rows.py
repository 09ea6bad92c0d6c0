"""What the pointwise functions of a step read and write, whether in torch operations or in Triton kernels.

Rows are those of one step: (B, features). In each struct, the rows that a function writes to come first; a row that is
None is not written, or not there to be read. `Pointwise` says what the functions compute.
"""

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from rru.scan.arguments import ScanArguments

# RRU


class Normalized(NamedTuple):
    """Eq. 1 and, with dropout, Eq. 3."""

    d: Tensor  # (B, g)
    pre: Tensor | None  # (B, g): the sum in Eq. 1, for the backward pass; may be `sums`
    scale: Tensor  # (B,): the factor of Normalize, if that is on
    sums: Tensor  # (B, g): the part of the sum that needs no state
    product: Tensor  # (B, g)


class NormalizedGradients(NamedTuple):
    """The gradient of the sum in Eq. 1. The gradient of d is `grad_d` + `product`."""

    grad_sums: Tensor
    d: Tensor | None
    grad_d: Tensor | None
    product: Tensor
    pre: Tensor
    scale: Tensor


class Rectified(NamedTuple):
    """Eq. 2 and, with dropout, Eq. 3."""

    d: Tensor  # (B, g)
    hidden: Tensor | None  # (B, g): d before dropout, for the backward pass
    product: Tensor
    bias: Tensor  # (g,)


class RectifiedGradients(NamedTuple):
    """The gradient of the sum in Eq. 2. The gradient of d is `grad_d` + `product`."""

    grad_sums: Tensor
    d: Tensor | None
    grad_d: Tensor | None
    product: Tensor
    hidden: Tensor


class Updated(NamedTuple):
    """Eq. 5: updates h."""

    h: Tensor  # (B, n)
    after: Tensor  # (B, n): a copy of the new h, for the next product
    c: Tensor | None  # (B, n): Eq. 4 after ReLU, if there is one
    product: Tensor
    bias: Tensor  # (n,)
    decay: Tensor  # (n,): the share of h that stays
    z: Tensor  # (n,)


class UpdatedGradients(NamedTuple):
    """The gradient of the new state is `grad_h` + `product`; `grad_h` becomes the old one's, except for a product."""

    grad_h: Tensor  # (B, n)
    grad_new: Tensor  # (B, n): the gradient of the new state
    grad_c: Tensor  # (B, n): the same after ReLU over c, if there is one
    product: Tensor
    c: Tensor | None
    decay: Tensor


# LSTM and Mogrifier


class Gated(NamedTuple):
    """A step of the LSTM: updates h and c."""

    h: Tensor  # (B, n)
    c: Tensor  # (B, n)
    after: Tensor  # (B, n): a copy of the new h, for the next product
    output: Tensor  # (B, n)
    gates: Tensor  # (B, 4n): i, f, j, o; may be `sums`
    before_c: Tensor | None  # (B, n): c before the step, for the backward pass
    sums: Tensor  # (B, 4n), or a bias (4n,)
    product: Tensor


class GatedGradients(NamedTuple):
    """The gradients of the gates' sums; updates `grad_h`, except for the next product, and `grad_c`."""

    grad_h: Tensor
    grad_c: Tensor
    grad_sums: Tensor  # (B, 4n)
    product: Tensor
    grad_output: Tensor
    gates: Tensor
    before_c: Tensor


class Mogrified(NamedTuple):
    """A round of the Mogrifier: the factor, and `before` times the factor."""

    value: Tensor
    factor: Tensor
    product: Tensor
    bias: Tensor
    before: Tensor


class MogrifiedGradients(NamedTuple):
    """The gradient of the factor's sum; updates `grad`, the gradient of a round's target."""

    grad_sum: Tensor
    grad: Tensor
    before: Tensor
    factor: Tensor


# GRU


class Reset(NamedTuple):
    """A step of the GRU: updates h. `reset_before`, the paper's form, starts after the product for r and u."""

    h: Tensor  # (B, n)
    after: Tensor  # (B, n): a copy of the new h, for the next product
    output: Tensor  # (B, n)
    gates: Tensor  # (B, 3n): r, u, j
    inner: Tensor  # (B, n): what r multiplies; in the paper's form r h
    sums: Tensor  # (B, 3n)
    product: Tensor  # (B, 3n); in the paper's form (B, 2n)


class ResetGradients(NamedTuple):
    """The gradients of the sums of r, u, j, and `grad_h`, except for the next product.

    With `reset_after` that of what r multiplies stands before j's, and `grad_h` is updated.
    """

    grad_h: Tensor
    grad_sums: Tensor  # (B, 3n); with `reset_after` (B, 4n)
    product: Tensor
    grad_output: Tensor
    gates: Tensor
    before: Tensor


Mask = Any
"""What the functions need to know about a step, made by `Masks`: each module has its own."""


class Masks(Protocol):
    """The dropout masks of all steps, and which sequences have ended."""

    def at(self, t: int) -> Mask:
        """Return what the functions need to know about step t. Steps must be asked for in order."""


class Pointwise(Protocol):
    """A module with the pointwise parts of a step: `fused.pointwise` or `fused.triton.pointwise`.

    Sums are computed in the dtype of the weights; a result is rounded when it is written to its row.
    """

    def masks(self, scan: ScanArguments, features: int, order: range) -> Masks: ...
    def normalized(self, rows: Normalized, mask: Mask, *, normalize: bool, drop: bool) -> None: ...
    def normalized_backward(self, rows: NormalizedGradients, mask: Mask, *, normalize: bool, drop: bool) -> None: ...
    def rectified(self, rows: Rectified, mask: Mask, *, drop: bool) -> None: ...
    def rectified_backward(self, rows: RectifiedGradients, mask: Mask, *, drop: bool) -> None: ...
    def updated(self, rows: Updated, mask: Mask) -> None: ...
    def updated_backward(self, rows: UpdatedGradients, mask: Mask) -> None: ...
    def gated(self, rows: Gated, mask: Mask, *, capped: bool) -> None: ...
    def gated_backward(self, rows: GatedGradients, mask: Mask, *, capped: bool) -> None: ...
    def mogrified(self, rows: Mogrified) -> None: ...
    def mogrified_backward(self, rows: MogrifiedGradients) -> None: ...
    def reset_after(self, rows: Reset, bias: Tensor, mask: Mask) -> None: ...
    def reset_after_backward(self, rows: ResetGradients, inner: Tensor, mask: Mask) -> None: ...
    def reset_before(self, rows: Reset, before: Tensor, weight: Tensor, mask: Mask) -> None: ...
    def reset_before_backward(self, rows: ResetGradients, old_grad_h: Tensor, weight: Tensor, mask: Mask) -> None: ...
