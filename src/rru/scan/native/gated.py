"""The native scans of LSTM, GRU and Mogrifier: the arguments of their C++ loops, and their weight gradients."""

from typing import Any

import torch
from torch import Tensor

from rru.scan.arguments import ScanArguments
from rru.scan.native.spec import BackwardPass, NativeCell, Shapes, TensorSpec
from rru.scan.native.weight_gradients import by_input_and_state, over_steps


class NativeLSTM(NativeCell):
    """The LSTM: native/lstm.h."""

    name = "lstm"

    def numbers(self, n: int, options: Any) -> dict[str, int]:
        return {"output_size": n}

    def saved(self, arguments: ScanArguments) -> Shapes:
        steps, batch, m, n = arguments.sizes
        return [(steps, batch, m + n), (steps, batch, 4 * n), (steps, batch, n)]

    def backward_buffers(self, arguments: ScanArguments, numbers: dict[str, int]) -> Shapes:
        steps, batch, _, n = arguments.sizes
        return [(steps, batch, 4 * n)]

    def gradients(self, done: BackwardPass) -> list[Tensor]:
        grad_gates, m = done.buffers[0], done.arguments.sizes[2]
        matrices = by_input_and_state(grad_gates, done.saved[0], m, done.arguments.spec.bfloat16)
        return [*matrices, grad_gates.sum((0, 1))]

    def small_gradients(self, done: BackwardPass) -> tuple[dict[str, int], list[Tensor]] | None:
        return {}, [done.arguments.weights[0], done.saved[0], *done.buffers]


class NativeGRU(NativeCell):
    """The GRU: native/gru.h."""

    name = "gru"

    def saved(self, arguments: ScanArguments) -> Shapes:
        steps, batch, m, n = arguments.sizes
        return [(steps, batch, m + n), (steps, batch, 3 * n), (steps, batch, n)]

    def backward_buffers(self, arguments: ScanArguments, numbers: dict[str, int]) -> Shapes:
        steps, batch, _, n = arguments.sizes
        return [(steps, batch, 3 * n), *([(steps, batch, n)] if arguments.spec.options.reset_after else [])]

    def gradients(self, done: BackwardPass) -> list[Tensor]:
        (_, _, m, n), bfloat16 = done.arguments.sizes, done.arguments.spec.bfloat16
        xh, _, inner = done.saved
        grad_gates, *grad_inner = done.buffers
        h = xh[..., m:]
        if grad_inner:  # reset_after
            candidate, bias_h = over_steps(grad_inner[0], h, bfloat16), [grad_inner[0].sum((0, 1))]
        else:
            candidate, bias_h = over_steps(grad_gates[..., 2 * n :], inner, bfloat16), []
        return [
            over_steps(grad_gates, xh[..., :m], bfloat16),
            torch.cat([over_steps(grad_gates[..., : 2 * n], h, bfloat16), candidate]),
            grad_gates.sum((0, 1)),
            *bias_h,
        ]

    def small_gradients(self, done: BackwardPass) -> tuple[dict[str, int], list[Tensor]] | None:
        options = done.arguments.spec.options
        inner = [] if options.reset_after else [done.saved[2]]
        return options._asdict(), [done.arguments.weights[0], done.saved[0], *inner, *done.buffers]


class NativeMogrifier(NativeLSTM):
    """The Mogrifier LSTM: native/mogrifier.h."""

    name = "mogrifier"
    numbers = NativeCell.numbers

    def _round_shapes(self, arguments: ScanArguments, targets: int) -> Shapes:
        """Return, for each round, the low-rank shape (unless the rank is 0) and `targets` times the target's shape."""
        (steps, batch, m, n), (rounds, rank) = arguments.sizes, arguments.spec.options
        shapes = Shapes()
        for index in range(rounds):
            target = n if index % 2 else m
            shapes += [(steps, batch, rank)] * (rank > 0) + [(steps, batch, target)] * targets
        return shapes

    def saved(self, arguments: ScanArguments) -> Shapes:
        of_lstm = super().saved(arguments)
        return [*of_lstm, of_lstm[0], *self._round_shapes(arguments, 2)]

    def backward_buffers(self, arguments: ScanArguments, numbers: dict[str, int]) -> Shapes:
        of_lstm = super().backward_buffers(arguments, numbers)
        grad_x = TensorSpec(tuple(arguments.x.shape), returned=True)
        return [*of_lstm, grad_x, *self._round_shapes(arguments, 1)]

    def input_gradient(self, done: BackwardPass) -> Tensor:
        return done.buffers[1]

    def gradients(self, done: BackwardPass) -> list[Tensor]:
        rank, bfloat16 = done.arguments.spec.options.rank, done.arguments.spec.bfloat16
        (plain, *of_rounds), (_, *grads) = done.saved[3:], done.buffers[1:]
        gradients = super().gradients(done)
        source = plain[..., done.arguments.sizes[2] :]  # round 0 reads the state; each later round the previous result
        while of_rounds:
            if rank:
                low, of_rounds = of_rounds[0], of_rounds[1:]
                grad_low, *grads = grads
                gradients.append(over_steps(grad_low, source, bfloat16))
                source = low
            (_, value, *of_rounds), (grad, *grads) = of_rounds, grads
            gradients += [over_steps(grad, source, bfloat16), grad.sum((0, 1))]
            source = value
        return gradients

    def small_gradients(self, done: BackwardPass) -> None:
        return None
