"""The cells with a native scan: the arguments of their C++ loops, and the weight gradients.

The loops are in native/. Weight gradients are products over all steps, computed here by torch after the backward loop.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from rru.scan.weight_gradients import by_input_and_state, over_steps


class Room(NamedTuple):
    """A tensor to allocate, if it has another dtype than x or the loop writes only a part of it (`whole` is False)."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None = None
    whole: bool = True


Shapes = list[tuple[int, ...] | Room]


# The options of each cell. C++ reads and checks them by these names. Do not change their order: graphs saved by
# torch.export contain the values in this order.


class NoOptions(NamedTuple):
    """For a cell without options. It has a dummy entry, because an operator cannot take an empty list of numbers."""

    unused: int = 0


class RRUOptions(NamedTuple):
    """Options of the RRU."""

    output_size: int
    expanded_size: int
    relu_layers: int
    normalize: int
    activate_outputs: int
    scaled_residual: int
    vector_rezero: int


class GRUOptions(NamedTuple):
    """Options of the GRU."""

    reset_after: int


class MogrifierOptions(NamedTuple):
    """Options of the Mogrifier LSTM."""

    rounds: int
    rank: int


class NativeCell(ABC):
    """Describes a cell's native scan to PyTorch.

    **Shapes:** `x` is (T, B, m); `weights` is what `weights()` returns; `options` is an instance of `Options`.
    """

    Options: ClassVar[Any]
    linear_outputs: ClassVar[bool] = False
    """Whether the outputs come from a linear map, and so have autocast's dtype under autocast."""

    def weights(self, cell: Any, named: dict[str, Tensor]) -> list[Tensor]:
        """Returns the weights, given by name, in the order in which the loops read them. Must be differentiable."""
        return list(named.values())

    def equivalent(self, cell_options: str) -> str:
        """Returns the options (JSON) of a cell that computes the same and has `weights()` as its weights."""
        return cell_options

    def options(self, cell: Any) -> Any:
        """Returns the cell's `Options`; by default, its attributes of the same names."""
        return self.Options(*(int(getattr(cell, name)) for name in self.Options._fields))

    def numbers(self, n: int, options: Any) -> dict[str, int]:
        """Returns the numbers that the loops read in addition to those of every scan. `n` is the hidden size."""
        return {"output_size": n, **options._asdict()}

    def derived(self, weights: Sequence[Tensor]) -> list[Tensor]:
        """Returns tensors that the forward loop needs besides the weights, made from them."""
        return []

    @abstractmethod
    def saved(self, x: Tensor, n: int, options: Any) -> Shapes:
        """Returns the shapes of the tensors that the forward loop saves for the backward loop."""

    def backward_numbers(self, n: int, options: Any, saved: list[Tensor], wants_x: bool) -> dict[str, int]:
        """Returns the numbers that only the backward loop reads. `wants_x`: whether x needs a gradient."""
        return {}

    @abstractmethod
    def left(self, x: Tensor, n: int, options: Any, numbers: dict[str, int]) -> Shapes:
        """Returns the shapes of the tensors that the backward loop writes after the gradients of the initial state.

        `numbers` is what `backward_numbers` returned.
        """

    def input_gradient(self, weights: list[Tensor], left: list[Tensor]) -> Tensor:
        """Returns the gradient of x; by default, `left` begins with the gradient of W^x x."""
        return left[0] @ weights[0]

    @abstractmethod
    def gradients(
        self, x: Tensor, weights: list[Tensor], options: Any, saved: list[Tensor], left: list[Tensor], bfloat16: bool
    ) -> list[Tensor]:
        """Returns the gradients of all weights, from the tensors that the loops wrote.

        With `bfloat16`, products may round their factors to it.
        """

    def small_gradients(
        self, weights: list[Tensor], options: Any, saved: list[Tensor], left: list[Tensor]
    ) -> tuple[dict[str, int], list[Tensor]] | None:
        """Returns numbers and tensors that the library needs to compute the gradients of x and of all weights.

        For small layers this is faster than calling torch. None if the library has no function for it.
        """
        return None


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
