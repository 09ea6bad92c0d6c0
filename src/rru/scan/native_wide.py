"""The native scan of wide RRUs: those with many more features in d than in [x, h]. See native/rru_wide.h."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rru.scan.native_cell import NativeCell, Room, Shapes
from rru.scan.native_cells import NATIVE_CELLS
from rru.scan.native_rru import NativeRRU, RRUOptions
from rru.scan.weight_gradients import over_steps


class NativeWideRRU(NativeRRU):
    """The RRU with one ReLU layer, Normalize and dropout, computed from the live entries of d."""

    def derived(self, weights: Sequence[Tensor]) -> list[Tensor]:
        weight = torch.cat([weights[0], weights[1]], 1)  # (g, m + n)
        rows = weight.unsqueeze(0)  # (1, g, m + n): M sums over the rows of W
        return [over_steps(rows, rows, False, symmetric=True)]

    def saved(self, x: Tensor, n: int, options: RRUOptions) -> Shapes:
        (steps, batch, m), g = x.shape, options.expanded_size
        tokens = (steps, batch)
        live = [
            Room((*tokens, 4), torch.int32),
            Room((*tokens, g), torch.int32, whole=False),
            Room((*tokens, g), whole=False),
        ]
        activated = [(*tokens, n + options.output_size)] if options.activate_outputs else []
        return [(*tokens, m + n), tokens, (*tokens, m + n), *live, *activated]

    def backward_numbers(self, n: int, options: RRUOptions, saved: list[Tensor], wants_x: bool) -> dict[str, int]:
        return {"wants_x": int(wants_x)}

    def left(self, x: Tensor, n: int, options: RRUOptions, numbers: dict[str, int]) -> Shapes:
        steps, batch, m = x.shape
        p, g = options.output_size, options.expanded_size
        grad_x = [(steps, batch, m)] if numbers["wants_x"] else []
        return [(steps, batch, n + p), (n,), (steps, batch), (n, g), (p, g), (g, m), (g, n), (g,), *grad_x]

    def input_gradient(self, weights: list[Tensor], left: list[Tensor]) -> Tensor:
        return left[-1]

    def gradients(
        self,
        x: Tensor,
        weights: list[Tensor],
        options: RRUOptions,
        saved: list[Tensor],
        left: list[Tensor],
        bfloat16: bool,
    ) -> list[Tensor]:
        grad_both, grad_kept, k, grad_c, grad_o, grad_x, grad_h, grad_b = left[:8]
        xh, m = saved[0], x.shape[2]
        weight = torch.cat([weights[0], weights[1], weights[2].unsqueeze(1)], 1)  # (g, m + n + 1)
        with_one = torch.cat([xh, torch.ones_like(k).unsqueeze(2)], 2)  # [u, 1], (T, B, m + n + 1)
        gram = over_steps(with_one * k.unsqueeze(2), with_one, False, symmetric=True)  # G, (m + n + 1, m + n + 1)
        return [
            grad_x.addmm_(weight, gram[:, :m], alpha=-1),
            grad_h.addmm_(weight, gram[:, m:-1], alpha=-1),
            grad_b.addmv_(weight, gram[:, -1], alpha=-1),
            *self.outer_gradients(weights, options, grad_both, grad_kept, grad_c, grad_o),
        ]

    def small_gradients(
        self, weights: list[Tensor], options: RRUOptions, saved: list[Tensor], left: list[Tensor]
    ) -> None:
        return None


FORMS: dict[str, NativeCell] = NATIVE_CELLS | {"rru_wide": NativeWideRRU()}
"""All native scans by the name of their loops: those of cells, and the wide form of the RRU."""

LEAST_DROPOUT = 0.45  # at most the other entries of d are live
LEAST_WIDTH = 256  # n + p; as for other products that skip zeros
LEAST_TOKENS = 16  # T B, for which weights are packed
SELECT_ABOVE = 0.7  # the dropout above which Eq. 1 is computed only where dropout keeps it, as in native/rru_wide.h
MOST_EXTRA, MOST_EXTRA_SELECTED = 0.6, 0.8  # see `is_wide`; up to SELECT_ABOVE, and above it


def is_wide(x: Tensor, n: int, options: RRUOptions, dropout: float) -> bool:
    """Returns whether to run the wide form of an RRU. The thresholds were measured, see docs/performance.md.

    Two products of Eq. 1's size become sparse, or three above `SELECT_ABOVE`, but four smaller ones come on top.
    Relative to Eq. 1's product over all tokens, y and G take about (m + n) / g, and M and W G about (m + n) / (T B).
    The sum of both decides.
    """
    if dropout < LEAST_DROPOUT or options.relu_layers > 1 or not options.normalize:
        return False
    (steps, batch, m), g = x.shape, options.expanded_size
    if n + options.output_size < LEAST_WIDTH or steps * batch < LEAST_TOKENS:
        return False
    most = MOST_EXTRA_SELECTED if dropout > SELECT_ABOVE else MOST_EXTRA
    return (m + n) * (g + steps * batch) < most * g * steps * batch
