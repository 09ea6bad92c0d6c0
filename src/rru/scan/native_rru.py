"""The native scan of the RRU: the arguments of its C++ loops (native/rru.h), and its weight gradients."""

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from rru.scan.native_cell import NativeCell, Shapes
from rru.scan.weight_gradients import by_input_and_state, over_steps


class RRUOptions(NamedTuple):
    """Options of the RRU. See native_cells.py before you change them."""

    output_size: int
    expanded_size: int
    relu_layers: int
    normalize: int
    activate_outputs: int
    scaled_residual: int
    vector_rezero: int


class NativeRRU(NativeCell):
    """Weights: W^x, W^h, b^j, each (W^k, b^k), W^c, b^c, W^o, b^o, S (unless the residual is unscaled), Z."""

    Options = RRUOptions
    linear_outputs = True
    sparse_below: ClassVar[float] = 0.45
    """The gradients of the weights around d skip its zeros if its share of nonzeros is below this value ..."""
    sparse_from: ClassVar[int] = 256
    """... and n + p is at least this value."""

    def options(self, cell: Any) -> RRUOptions:
        return RRUOptions(
            output_size=cell.output_size,
            expanded_size=cell.expanded_size,
            relu_layers=cell.relu_layers,
            normalize=int(cell.normalize),
            activate_outputs=int(cell.activate_outputs),
            scaled_residual=int(cell.residual != "unscaled"),
            vector_rezero=int(cell.rezero == "vector"),
        )

    def saved(self, x: Tensor, n: int, options: RRUOptions) -> Shapes:
        (steps, batch, m), g = x.shape, options.expanded_size
        always: Shapes = [(steps, batch, m + n), (steps, batch), (steps, batch, g), (1,)]
        middle = [(options.relu_layers - 1, steps, batch, g)] if options.relu_layers > 1 else []
        activated = [(steps, batch, n + options.output_size)] if options.activate_outputs else []
        return always + middle + activated

    def backward_numbers(self, n: int, options: RRUOptions, saved: list[Tensor], wants_x: bool) -> dict[str, int]:
        density = saved[3]  # the share of nonzeros in d
        return {"sparse": int(n + options.output_size >= self.sparse_from and density.item() < self.sparse_below)}

    def left(self, x: Tensor, n: int, options: RRUOptions, numbers: dict[str, int]) -> Shapes:
        steps, batch, _ = x.shape
        p, g, middle_layers = options.output_size, options.expanded_size, options.relu_layers - 1
        always: Shapes = [(steps, batch, n + p), (n,), (steps, batch, g)]
        middle = [(middle_layers, steps, batch, g)] if middle_layers else []
        sparse = [(n, g), (p, g), *([(g, g)] if middle_layers else [])]
        return always + middle + (sparse if numbers["sparse"] else [(steps, batch, g)])

    def input_gradient(self, weights: list[Tensor], left: list[Tensor]) -> Tensor:
        return left[2] @ weights[0]

    def gradients(
        self,
        x: Tensor,
        weights: list[Tensor],
        options: RRUOptions,
        saved: list[Tensor],
        left: list[Tensor],
        bfloat16: bool,
    ) -> list[Tensor]:
        n, middle_layers = weights[1].shape[1], options.relu_layers - 1
        xh, _, pre, _, *hidden = saved
        grad_both, grad_kept, grad_inner, *rest = left
        grad_middle = rest.pop(0).unbind() if middle_layers else ()
        sparse = len(rest) > 1
        if sparse:
            grad_c, grad_o, *grad_last = rest
        else:
            (features,) = rest
            both = over_steps(grad_both, features, bfloat16)
            grad_c, grad_o = both[:n], both[n:]
        middle: list[Tensor] = []
        for k, grad in enumerate(grad_middle):
            if sparse and k == middle_layers - 1:
                weight = grad_last[0]
            else:
                weight = over_steps(grad, pre.relu() if k == 0 else hidden[0][k - 1], bfloat16)
            middle += [weight, grad.sum((0, 1))]
        return [
            *by_input_and_state(grad_inner, xh, x.shape[2], bfloat16),
            grad_inner.sum((0, 1)),
            *middle,
            *self.outer_gradients(weights, options, grad_both, grad_kept, grad_c, grad_o),
        ]

    def outer_gradients(
        self,
        weights: list[Tensor],
        options: RRUOptions,
        grad_both: Tensor,
        grad_kept: Tensor,
        grad_c: Tensor,
        grad_o: Tensor,
    ) -> list[Tensor]:
        """Returns the gradients of W^c, b^c, W^o, b^o, S and Z. `grad_c` still lacks the factor Z."""
        n, (weight_c, bias_c), z = weights[1].shape[1], weights[1 + 2 * options.relu_layers :][:2], weights[-1]
        bias = grad_both.sum((0, 1))  # (n + p,)
        # The gradient of Z sums c times its gradient. c is not saved, so this goes through the gradient of W^c.
        grad_z = (weight_c.unsqueeze(1) @ grad_c.unsqueeze(2)).flatten() + bias_c * bias[:n]
        share = torch.sigmoid(10 * weights[-2]) if options.scaled_residual else None
        return [
            grad_c.mul_(z.unsqueeze(1)),
            z * bias[:n],
            grad_o,
            bias[n:],
            *([] if share is None else [10 * share * (1 - share) * grad_kept]),
            grad_z if options.vector_rezero else grad_z.sum(0, keepdim=True),
        ]

    def small_gradients(
        self, weights: list[Tensor], options: RRUOptions, saved: list[Tensor], left: list[Tensor]
    ) -> tuple[dict[str, int], list[Tensor]] | None:
        xh, _, pre, _, *hidden = saved
        middle_layers = options.relu_layers - 1
        if len(left) > 4 + bool(middle_layers):  # the loop has computed some of them already, skipping zeros
            return None
        names = ("expanded_size", "relu_layers", "scaled_residual", "vector_rezero")
        outer = weights[3 + 2 * middle_layers :]
        residual = outer[4:]  # S, unless unscaled, and Z
        tensors = [weights[0], *outer[:2], *residual, xh, pre, *(hidden[:1] if middle_layers else []), *left]
        return {name: getattr(options, name) for name in names}, tensors
