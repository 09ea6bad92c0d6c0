"""What each cell's native scan takes, keeps and leaves to be done; the loops are in native/.

The weight gradients are products over all steps, done here by torch once a backward loop is over.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

Shapes = list[tuple[int, ...]]


class Kernel(ABC):
    """A native scan as PyTorch sees it.

    **Shapes:** `x` is (T, B, m); `weights` and `options`, whole numbers, are what `weights()` and `options()` give.
    """

    linear_outputs: ClassVar[bool] = False
    """Whether outputs come from a linear map, and so in autocast's type where that is on."""

    def weights(self, cell: Any, named: dict[str, Tensor]) -> list[Tensor]:
        """The cell's weights, given by name, as the loop reads them, each differentiable."""
        return list(named.values())

    def options(self, cell: Any) -> list[int]:
        """The cell's whole numbers in the order the loop reads them; never none, which torch takes for no tensors."""
        return [0]

    def output_size(self, weights: list[Tensor], options: list[int]) -> int:
        """Features of an output step."""
        return weights[1].shape[1]

    @abstractmethod
    def kept(self, x: Tensor, weights: list[Tensor], options: list[int]) -> Shapes:
        """What the forward loop keeps for the backward loop."""

    @abstractmethod
    def left(self, x: Tensor, weights: list[Tensor], options: list[int], kept: list[Tensor]) -> Shapes:
        """What the backward loop leaves, after the gradients of the first state, given what the forward loop kept."""

    @abstractmethod
    def gradients(
        self, x: Tensor, weights: list[Tensor], options: list[int], kept: list[Tensor], left: list[Tensor]
    ) -> list[Tensor]:
        """The gradients of x and of all weights."""


class RRUKernel(Kernel):
    """weights: W^x, W^h, b^j, each (W^k, b^k), W^c, b^c, W^o, b^o, S but where the residual is unscaled, Z."""

    linear_outputs = True
    sparse_below: ClassVar[float] = 0.45
    """The share of d that is not zero below which the gradients of the weights around it skip its zeros."""

    def options(self, cell: Any) -> list[int]:
        flags = [cell.normalize, cell.activate_outputs, cell.residual != "unscaled", cell.rezero == "vector"]
        return [cell.output_size, cell.expanded_size, cell.relu_layers, *flags]

    def output_size(self, weights: list[Tensor], options: list[int]) -> int:
        return options[0]

    def kept(self, x: Tensor, weights: list[Tensor], options: list[int]) -> Shapes:
        (steps, batch, m), (g, n), (_, _, relu_layers, _, activate, *_) = x.shape, weights[1].shape, options
        candidate = (steps, batch, n) if activate else (0,)
        middle = (relu_layers - 1, steps, batch, g)
        return [(steps, batch, m + n), (steps, batch, g), (steps, batch), middle, candidate, (1,)]

    def left(self, x: Tensor, weights: list[Tensor], options: list[int], kept: list[Tensor]) -> Shapes:
        (steps, batch, _), (g, n), (p, _, relu_layers, *_) = x.shape, weights[1].shape, options
        sparse = kept[-1].item() < self.sparse_below
        middle = (relu_layers - 1, steps, batch, g)
        features = (0,) if sparse else (steps, batch, g)
        by_weights = [(n, g), (p, g), (g, g) if relu_layers > 1 else (0,)] if sparse else [(0,)] * 3
        return [(steps, batch, g), middle, (steps, batch, n + p), features, *by_weights, (torch.get_num_threads(), n)]

    def gradients(
        self, x: Tensor, weights: list[Tensor], options: list[int], kept: list[Tensor], left: list[Tensor]
    ) -> list[Tensor]:
        n, (_, _, relu_layers, _, _, scaled, vector) = weights[1].shape[1], options
        xh, pre, _, hidden, _, _ = kept
        grad_inner, grad_middle, grad_both, features, grad_c, grad_o, grad_last, grad_kept = left
        weight_c, bias_c = weights[3 + 2 * (relu_layers - 1) :][:2]
        z = weights[-1]
        sparse = grad_c.numel() > 0
        if not sparse:
            grad_c, grad_o = over_steps(grad_both[..., :n], features), over_steps(grad_both[..., n:], features)
        bias = grad_both.sum((0, 1))  # (n + p,)
        middle: list[Tensor] = []
        for k, grad in enumerate(grad_middle):
            if sparse and k == relu_layers - 2:
                weight = grad_last
            else:
                weight = over_steps(grad, pre.relu() if k == 0 else hidden[k - 1])
            middle += [weight, grad.sum((0, 1))]
        # Of Z: the sum of c times its gradient, c not being kept
        grad_z = (weight_c.unsqueeze(1) @ grad_c.unsqueeze(2)).flatten() + bias_c * bias[:n]
        share = torch.sigmoid(10 * weights[-2]) if scaled else None
        return [
            grad_inner @ weights[0],
            *by_input_and_state(grad_inner, xh, x.shape[2]),
            grad_inner.sum((0, 1)),
            *middle,
            grad_c.mul_(z.unsqueeze(1)),
            z * bias[:n],
            grad_o,
            bias[n:],
            *([] if share is None else [10 * share * (1 - share) * grad_kept.sum(0)]),
            grad_z if vector else grad_z.sum(0, keepdim=True),
        ]


class LSTMKernel(Kernel):
    """weights: W^x, W^h, b with the forget bias in it."""

    def weights(self, cell: Any, named: dict[str, Tensor]) -> list[Tensor]:
        constant = torch.zeros_like(named["bias"])
        constant[cell.hidden_size : 2 * cell.hidden_size] = cell.forget_bias
        return [named["weight_x"], named["weight_h"], named["bias"] + constant]

    def kept(self, x: Tensor, weights: list[Tensor], options: list[int]) -> Shapes:
        (steps, batch, m), n = x.shape, self.output_size(weights, options)
        return [(steps, batch, m + n), (steps, batch, 4 * n), (steps, batch, n)]

    def left(self, x: Tensor, weights: list[Tensor], options: list[int], kept: list[Tensor]) -> Shapes:
        return [(*x.shape[:2], 4 * self.output_size(weights, options))]

    def gradients(
        self, x: Tensor, weights: list[Tensor], options: list[int], kept: list[Tensor], left: list[Tensor]
    ) -> list[Tensor]:
        (grad_gates,) = left
        return [grad_gates @ weights[0], *by_input_and_state(grad_gates, kept[0], x.shape[2]), grad_gates.sum((0, 1))]


class GRUKernel(Kernel):
    """weights: W^x, W^h, b, and with reset_after b^h."""

    def options(self, cell: Any) -> list[int]:
        return [cell.reset_after]

    def kept(self, x: Tensor, weights: list[Tensor], options: list[int]) -> Shapes:
        (steps, batch, m), n = x.shape, self.output_size(weights, options)
        return [(steps, batch, m + n), (steps, batch, 3 * n), (steps, batch, n)]

    def left(self, x: Tensor, weights: list[Tensor], options: list[int], kept: list[Tensor]) -> Shapes:
        n = self.output_size(weights, options)
        return [(*x.shape[:2], 3 * n), (*x.shape[:2], n) if options[0] else (0,)]

    def gradients(
        self, x: Tensor, weights: list[Tensor], options: list[int], kept: list[Tensor], left: list[Tensor]
    ) -> list[Tensor]:
        n, m = self.output_size(weights, options), x.shape[2]
        xh, _, inner = (tensor.flatten(0, 1) for tensor in kept)  # (T B, ...)
        grad_gates = left[0].flatten(0, 1)
        h = xh[:, m:]
        if options[0]:
            grad_inner = left[1].flatten(0, 1)
            candidate, bias_h = grad_inner.T @ h, [grad_inner.sum(0)]
        else:
            candidate, bias_h = grad_gates[:, 2 * n :].T @ inner, []
        return [
            left[0] @ weights[0],
            grad_gates.T @ xh[:, :m],
            torch.cat([grad_gates[:, : 2 * n].T @ h, candidate]),
            grad_gates.sum(0),
            *bias_h,
        ]


class MogrifierKernel(Kernel):
    """weights: W^x, W^h, b, and of each round A (where the rank is not 0), B, b."""

    def options(self, cell: Any) -> list[int]:
        return [cell.rounds, cell.rank]

    def _of_rounds(self, x: Tensor, weights: list[Tensor], options: list[int], targets: int) -> Shapes:
        """For each round a narrow tensor, where the rank is not 0, and so many of its target's size."""
        (rounds, rank), shapes = options, Shapes()
        for index in range(rounds):
            target = self.output_size(weights, options) if index % 2 else x.shape[2]
            shapes += [(*x.shape[:2], rank)] * (rank > 0) + [(*x.shape[:2], target)] * targets
        return shapes

    def kept(self, x: Tensor, weights: list[Tensor], options: list[int]) -> Shapes:
        (steps, batch, m), n = x.shape, self.output_size(weights, options)
        both = (steps, batch, m + n)
        return [both, both, (steps, batch, 4 * n), (steps, batch, n), *self._of_rounds(x, weights, options, 2)]

    def left(self, x: Tensor, weights: list[Tensor], options: list[int], kept: list[Tensor]) -> Shapes:
        gates = (*x.shape[:2], 4 * self.output_size(weights, options))
        return [tuple(x.shape), gates, *self._of_rounds(x, weights, options, 1)]

    def gradients(
        self, x: Tensor, weights: list[Tensor], options: list[int], kept: list[Tensor], left: list[Tensor]
    ) -> list[Tensor]:
        plain, xh, _, _, *of_rounds = kept
        grad_x, grad_gates, *grads = left
        found = [grad_x, *by_input_and_state(grad_gates, xh, x.shape[2]), grad_gates.sum((0, 1))]
        source = plain[..., x.shape[2] :]  # round 0 reads the state, every later one what the round before it left
        for _ in range(options[0]):
            if options[1]:
                narrow, _, value, *of_rounds = of_rounds
                grad_narrow, grad, *grads = grads
                found += [over_steps(grad_narrow, source), over_steps(grad, narrow), grad.sum((0, 1))]
            else:
                _, value, *of_rounds = of_rounds
                grad, *grads = grads
                found += [over_steps(grad, source), grad.sum((0, 1))]
            source = value
        return found


KERNELS: dict[str, Kernel] = {
    "rru": RRUKernel(),
    "lstm": LSTMKernel(),
    "gru": GRUKernel(),
    "mogrifier": MogrifierKernel(),
}


def over_steps(gradient: Tensor, values: Tensor) -> Tensor:
    """The gradient of a matrix: sums of gradient (T, B, out) times values (T, B, in) over all steps, (out, in)."""
    return gradient.flatten(0, 1).T @ values.flatten(0, 1)


def by_input_and_state(gradient: Tensor, xh: Tensor, m: int) -> list[Tensor]:
    """The gradients of W^x and W^h, given that of their sum, (T, B, out), and inputs beside states (T, B, m + n)."""
    return [over_steps(gradient, xh[..., :m]), over_steps(gradient, xh[..., m:])]
