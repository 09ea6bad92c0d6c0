"""The recurrence over time in plain PyTorch: the definition every other back end is checked against.

What a cell computes is in its own file (`nn/rru.py` holds the paper's Eq. 1-6); this is the loop around it.
"""

from typing import Protocol

import torch
from torch import Tensor

from rru.scan.dropout import dropout_mask

State = tuple[Tensor, ...]


class Steps(Protocol):
    """A cell as a scan sees it: one part before the loop, one inside it, one after it."""

    @property
    def dropout(self) -> float:
        """The share that dropout drops."""
        ...

    def bound(self, matrices: torch.dtype | None) -> "Steps":
        """The cell on its weights as they are now, its matrices cast to the given type."""
        ...

    @property
    def mask_size(self) -> int:
        """How many features of a step dropout acts on."""
        ...

    def project(self, x: Tensor) -> Tensor:
        """What needs no state, for all steps at once: inputs (..., m) to (..., anything)."""
        ...

    def step(self, projected: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
        """What depends on the step before: (B, anything), state and dropout mask to features (B, ...) and new state."""
        ...

    def readout(self, features: Tensor) -> Tensor:
        """What no later step needs, for all steps at once: features (..., g) to outputs (..., p)."""
        ...


def autocast_dtype(device: str) -> torch.dtype | None:
    """What autocast casts to on this type of device; None where it is off."""
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def scan(
    cell: Steps,
    inputs: Tensor,
    state: State,
    lengths: Tensor | None = None,
    seed: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, State]:
    """Runs `cell` over `inputs` (T, B, m) from `state`, a tuple of (B, n): outputs (T, B, p) and the last state.

    `lengths` (B,) says where each sequence ends: inputs after that are not read, and outputs there are zero. `seed`
    turns dropout on. `reverse` runs from each sequence's own end to its start; outputs stay in the order of inputs.
    """
    cell = cell.bound(autocast_dtype(inputs.device.type))
    steps, batch = inputs.shape[:2]
    ended = None
    if lengths is not None:
        ended = (torch.arange(steps, device=inputs.device).unsqueeze(1) >= lengths).unsqueeze(2)  # (T, B, 1)
        inputs = inputs.masked_fill(ended, 0)  # not times zero: padding may hold NaN

    projected = cell.project(inputs).unbind()  # T of (B, g)
    features = list(projected)
    for t in reversed(range(steps)) if reverse else range(steps):
        keep = None if seed is None else dropout_mask(seed, t, batch, cell.mask_size, cell.dropout, projected[t].dtype)
        features[t], new = cell.step(projected[t], state, keep)
        if ended is not None:
            new = tuple(torch.where(ended[t], old, now) for old, now in zip(state, new, strict=True))
        state = new
    outputs = cell.readout(torch.stack(features))  # (T, B, p)
    return (outputs if ended is None else outputs.masked_fill(ended, 0)), state


def step(cell: Steps, x: Tensor, state: State, seed: Tensor | None) -> tuple[Tensor, State]:
    """One step: x (B, m) to outputs (B, p) and the new state."""
    projected = cell.project(x)  # (B, g)
    keep = None if seed is None else dropout_mask(seed, 0, len(x), cell.mask_size, cell.dropout, projected.dtype)
    features, state = cell.step(projected, state, keep)
    return cell.readout(features), state
