"""The cells with a native scan."""

import json
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rru.scan.native_cell import NativeCell, Shapes
from rru.scan.native_rru import NativeRRU
from rru.scan.weight_gradients import by_input_and_state, over_steps

# The options of each cell. C++ reads and checks them by these names. Do not change their order: graphs saved by
# torch.export contain the values in this order.


class NoOptions(NamedTuple):
    """For a cell without options. It has a dummy entry, because an operator cannot take an empty list of numbers."""

    unused: int = 0


class GRUOptions(NamedTuple):
    """Options of the GRU."""

    reset_after: int


class MogrifierOptions(NamedTuple):
    """Options of the Mogrifier LSTM."""

    rounds: int
    rank: int


class NativeLSTM(NativeCell):
    """Weights: W^x, W^h, and b with the forget bias added."""

    Options = NoOptions

    def options(self, cell: Any) -> NoOptions:
        return NoOptions()

    def numbers(self, n: int, options: NoOptions) -> dict[str, int]:
        return {"output_size": n}

    def weights(self, cell: Any, named: dict[str, Tensor]) -> list[Tensor]:
        bias, n = named["bias"], cell.hidden_size
        if cell.forget_bias:
            constant = torch.zeros_like(bias)
            constant.narrow(0, n, n).fill_(cell.forget_bias)
            bias = bias + constant
        return [named["weight_x"], named["weight_h"], bias]

    def equivalent(self, cell_options: str) -> str:
        return json.dumps(json.loads(cell_options) | {"forget_bias": 0.0})

    def saved(self, x: Tensor, n: int, options: NoOptions) -> Shapes:
        steps, batch, m = x.shape
        return [(steps, batch, m + n), (steps, batch, 4 * n), (steps, batch, n)]

    def left(self, x: Tensor, n: int, options: Any, numbers: dict[str, int]) -> Shapes:
        return [(*x.shape[:2], 4 * n)]

    def gradients(
        self, x: Tensor, weights: list[Tensor], options: Any, saved: list[Tensor], left: list[Tensor], bfloat16: bool
    ) -> list[Tensor]:
        (grad_gates,) = left
        return [*by_input_and_state(grad_gates, saved[0], x.shape[2], bfloat16), grad_gates.sum((0, 1))]

    def small_gradients(
        self, weights: list[Tensor], options: Any, saved: list[Tensor], left: list[Tensor]
    ) -> tuple[dict[str, int], list[Tensor]]:
        return {}, [weights[0], saved[0], *left]


class NativeGRU(NativeCell):
    """Weights: W^x, W^h, b, and b^h with reset_after."""

    Options = GRUOptions

    def saved(self, x: Tensor, n: int, options: GRUOptions) -> Shapes:
        steps, batch, m = x.shape
        return [(steps, batch, m + n), (steps, batch, 3 * n), (steps, batch, n)]

    def left(self, x: Tensor, n: int, options: GRUOptions, numbers: dict[str, int]) -> Shapes:
        steps, batch, _ = x.shape
        return [(steps, batch, 3 * n), *([(steps, batch, n)] if options.reset_after else [])]

    def gradients(
        self,
        x: Tensor,
        weights: list[Tensor],
        options: GRUOptions,
        saved: list[Tensor],
        left: list[Tensor],
        bfloat16: bool,
    ) -> list[Tensor]:
        n, m = weights[1].shape[1], x.shape[2]
        xh, _, inner = saved
        grad_gates, h = left[0], xh[..., m:]
        if options.reset_after:
            candidate, bias_h = over_steps(left[1], h, bfloat16), [left[1].sum((0, 1))]
        else:
            candidate, bias_h = over_steps(grad_gates[..., 2 * n :], inner, bfloat16), []
        return [
            over_steps(grad_gates, xh[..., :m], bfloat16),
            torch.cat([over_steps(grad_gates[..., : 2 * n], h, bfloat16), candidate]),
            grad_gates.sum((0, 1)),
            *bias_h,
        ]

    def small_gradients(
        self, weights: list[Tensor], options: GRUOptions, saved: list[Tensor], left: list[Tensor]
    ) -> tuple[dict[str, int], list[Tensor]]:
        inner = [] if options.reset_after else [saved[2]]
        return options._asdict(), [weights[0], saved[0], *inner, *left]


class NativeMogrifier(NativeCell):
    """Weights: W^x, W^h, b, and for each round A (unless the rank is 0), B, b."""

    Options = MogrifierOptions

    def _round_shapes(self, x: Tensor, n: int, options: MogrifierOptions, targets: int) -> Shapes:
        """Returns, for each round, the low-rank shape (unless the rank is 0) and `targets` times the target's shape."""
        steps, batch, m = x.shape
        shapes = Shapes()
        for index in range(options.rounds):
            target = n if index % 2 else m
            shapes += [(steps, batch, options.rank)] * (options.rank > 0) + [(steps, batch, target)] * targets
        return shapes

    def saved(self, x: Tensor, n: int, options: MogrifierOptions) -> Shapes:
        steps, batch, m = x.shape
        both = (steps, batch, m + n)
        return [both, (steps, batch, 4 * n), (steps, batch, n), both, *self._round_shapes(x, n, options, 2)]

    def left(self, x: Tensor, n: int, options: MogrifierOptions, numbers: dict[str, int]) -> Shapes:
        return [(*x.shape[:2], 4 * n), tuple(x.shape), *self._round_shapes(x, n, options, 1)]

    def input_gradient(self, weights: list[Tensor], left: list[Tensor]) -> Tensor:
        return left[1]

    def gradients(
        self,
        x: Tensor,
        weights: list[Tensor],
        options: MogrifierOptions,
        saved: list[Tensor],
        left: list[Tensor],
        bfloat16: bool,
    ) -> list[Tensor]:
        xh, _, _, plain, *of_rounds = saved
        grad_gates, _, *grads = left
        found = [*by_input_and_state(grad_gates, xh, x.shape[2], bfloat16), grad_gates.sum((0, 1))]
        source = plain[..., x.shape[2] :]  # round 0 reads the state; each later round reads the previous result
        for _ in range(options.rounds):
            if options.rank:
                narrow, _, value, *of_rounds = of_rounds
                grad_narrow, grad, *grads = grads
                found += [
                    over_steps(grad_narrow, source, bfloat16),
                    over_steps(grad, narrow, bfloat16),
                    grad.sum((0, 1)),
                ]
            else:
                _, value, *of_rounds = of_rounds
                grad, *grads = grads
                found += [over_steps(grad, source, bfloat16), grad.sum((0, 1))]
            source = value
        return found


NATIVE_CELLS: dict[str, NativeCell] = {
    "rru": NativeRRU(),
    "lstm": NativeLSTM(),
    "gru": NativeGRU(),
    "mogrifier": NativeMogrifier(),
}
