"""Resets of the state inside the loops of a fused scan, in torch operations on the rows of a step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rru.scan.arguments import ScanArguments


class Resets:
    """The resets of a scan, and in the backward pass the gradients of the state to reset to. None cost nothing."""

    def __init__(self, scan: ScanArguments) -> None:
        self._state = scan.reset_state
        self._masks = [] if scan.resets is None else scan.resets.unsqueeze(2).unbind()  # T of (B, 1)
        self.gradients = [torch.zeros_like(part) for part in scan.reset_state]

    def apply(self, t: int, *parts: Sequence[Tensor]) -> None:
        """Reset the state before step t. `parts`: for each part of it, the rows (B, n) that hold it."""
        for rows, new in zip(parts, self._state, strict=False):
            for row in rows:
                row.copy_(torch.where(self._masks[t], new, row))

    def differentiate(self, t: int, *parts: Sequence[Tensor]) -> None:
        """Move the gradients of the state before step t. `parts`: for each part, rows whose sum is its gradient."""
        for rows, gradient in zip(parts, self.gradients, strict=False):
            for row in rows:
                gradient.add_(torch.where(self._masks[t], row, 0))
                row.masked_fill_(self._masks[t], 0)
