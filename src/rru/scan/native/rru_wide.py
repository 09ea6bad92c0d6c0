"""The native scan of wide RRUs: those with many more features in d than in [x, h]. See native/rru_wide.h."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rru.scan.arguments import ScanArguments
from rru.scan.native.rru import NativeRRU, outer_gradients
from rru.scan.native.spec import BackwardPass, Shapes, TensorSpec
from rru.scan.native.weight_gradients import over_steps


class NativeWideRRU(NativeRRU):
    """The RRU with one ReLU layer, Normalize and dropout, computed from the live entries of d."""

    name = "rru_wide"
    rounds = False

    def derived(self, weights: Sequence[Tensor]) -> list[Tensor]:
        weight = torch.cat([weights[0], weights[1]], 1)  # (g, m + n)
        rows = weight.unsqueeze(0)  # (1, g, m + n): M sums over the rows of W
        return [over_steps(rows, rows, False, symmetric=True)]

    def saved(self, arguments: ScanArguments) -> Shapes:
        (steps, batch, m, n), options = arguments.sizes, arguments.spec.options
        tokens, g = (steps, batch), options.expanded_size
        live = [
            TensorSpec((*tokens, 4), torch.int32),
            TensorSpec((*tokens, g), torch.int32, whole=False),
            TensorSpec((*tokens, g), whole=False),
        ]
        activated = [(*tokens, n + options.output_size)] if options.activate_outputs else []
        return [(*tokens, m + n), tokens, (*tokens, m + n), *live, *activated]

    def backward_numbers(self, arguments: ScanArguments, saved: list[Tensor], wants_x: bool) -> dict[str, int]:
        return {"wants_x": int(wants_x)}

    def backward_buffers(self, arguments: ScanArguments, numbers: dict[str, int]) -> Shapes:
        (steps, batch, m, n), options = arguments.sizes, arguments.spec.options
        p, g = options.output_size, options.expanded_size
        grad_x = [TensorSpec((steps, batch, m), returned=True)] if numbers["wants_x"] else []
        return [(steps, batch, n + p), (n,), (steps, batch), (n, g), (p, g), (g, m), (g, n), (g,), *grad_x]

    def input_gradient(self, done: BackwardPass) -> Tensor:
        return done.buffers[-1]

    def gradients(self, done: BackwardPass) -> list[Tensor]:
        grad_both, grad_kept, k, grad_c, grad_o, grad_x, grad_h, grad_b = done.buffers[:8]
        weights, xh, m = done.arguments.weights, done.saved[0], grad_x.shape[1]
        weight = torch.cat([weights[0], weights[1], weights[2].unsqueeze(1)], 1)  # (g, m + n + 1)
        with_one = torch.cat([xh, torch.ones_like(k).unsqueeze(2)], 2)  # [u, 1], (T, B, m + n + 1)
        gram = over_steps(with_one * k.unsqueeze(2), with_one, False, symmetric=True)  # G, (m + n + 1, m + n + 1)
        return [
            grad_x.addmm_(weight, gram[:, :m], alpha=-1),
            grad_h.addmm_(weight, gram[:, m:-1], alpha=-1),
            grad_b.addmv_(weight, gram[:, -1], alpha=-1),
            *outer_gradients(done.arguments, grad_c, grad_o, grad_both.sum((0, 1)), grad_kept),
        ]

    def small_gradients(self, done: BackwardPass) -> None:
        return None
