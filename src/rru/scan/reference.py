"""The loop over time in plain PyTorch. It is the definition that every other back end is tested against.

The equations are in the cells' own files: `nn/rru.py` has the paper's Eq. 1-6.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from rru.scan.dropout import dropout_mask

State = tuple[Tensor, ...]


class Steps(Protocol):
    """The part of a cell that a scan uses: methods to run before, inside and after the loop."""

    @property
    def dropout(self) -> float:
        """The dropout rate."""
        ...

    def bound(self, matrices: torch.dtype | None) -> "Steps":
        """Return a copy that holds the current weights, with matrices cast to the given dtype."""
        ...

    @property
    def mask_size(self) -> int:
        """The number of features per step that dropout acts on."""
        ...

    def project(self, x: Tensor) -> Tensor:
        """Map the inputs of all steps (..., m) to (..., any size), before the loop."""
        ...

    def step(self, projected: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
        """Map projected inputs (B, any size), state and dropout mask to features (B, any size) and the new state."""
        ...

    def readout(self, features: Tensor) -> Tensor:
        """Map the features of all steps (..., any size) to outputs (..., p), after the loop."""
        ...


def autocast_dtype(device: str) -> torch.dtype | None:
    """Return the dtype that autocast uses on this device type; None if autocast is off."""
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


class Resets(NamedTuple):
    """Where a scan resets the state, and to what.

    **Arguments:**

    - `mask`: (T, B), boolean: whether to reset the state before each step. False after the end of a sequence.
    - `state`: the state to start from there, a tuple of (B, n).
    """

    mask: Tensor
    state: State

    def applied(self, t: int, state: State) -> State:
        """Return the state before step t, after a reset if there is one; given what the step before left."""
        return reset(state, self.mask[t], self.state)


def reset(state: State, mask: Tensor, to: State) -> State:
    """Return the state (B, n), but for the rows in `mask` (B,) that of `to`, in the dtype of the state."""
    rows = mask.unsqueeze(1)
    return tuple(torch.where(rows, new.to(old.dtype), old) for old, new in zip(state, to, strict=True))


class ScanInputs(NamedTuple):
    """The arguments of a scan, besides the cell.

    **Arguments:**

    - `x`: (T, B, m).
    - `state`: the initial state, a tuple of (B, n).
    - `lengths`: (B,), the length of each sequence. Inputs after it are ignored, and outputs there are zero.
    - `seed`: the seed of the dropout masks; None turns dropout off.
    - `reverse`: run each sequence from its end to its start. Outputs stay in the order of the inputs.
    - `resets`: where the state starts anew. Not together with `reverse`.
    """

    x: Tensor
    state: State
    lengths: Tensor | None = None
    seed: Tensor | None = None
    reverse: bool = False
    resets: Resets | None = None


def scan(cell: Steps, inputs: ScanInputs) -> tuple[Tensor, State]:
    """Run a cell over a sequence. Return outputs (T, B, p) and the last state."""
    x, state, lengths, seed, reverse, resets = inputs
    cell = cell.bound(autocast_dtype(x.device.type))
    steps, batch = x.shape[:2]
    ended = None
    if lengths is not None:
        x, ended = without_padding(x, lengths)

    projected = cell.project(x).unbind()  # T of (B, g)
    features = list(projected)
    for t in reversed(range(steps)) if reverse else range(steps):
        keep = None if seed is None else dropout_mask(seed, t, batch, cell.mask_size, cell.dropout, projected[t].dtype)
        if resets is not None:
            state = resets.applied(t, state)
        features[t], new = cell.step(projected[t], state, keep)
        if ended is not None:
            new = tuple(torch.where(ended[t], old, now) for old, now in zip(state, new, strict=True))
        state = new
    outputs = cell.readout(torch.stack(features))  # (T, B, p)
    return (outputs if ended is None else outputs.masked_fill(ended, 0)), state


def without_padding(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return x (T, B, m) with zeros after the end of each sequence, and a mask of these steps (T, B, 1)."""
    ended = (torch.arange(x.shape[0], device=x.device).unsqueeze(1) >= lengths).unsqueeze(2)
    return x.masked_fill(ended, 0), ended  # multiplying by zero would keep NaN in the padding


def step(cell: Steps, x: Tensor, state: State, seed: Tensor | None) -> tuple[Tensor, State]:
    """Run one step on x (B, m). Return outputs (B, p) and the new state."""
    projected = cell.project(x)  # (B, g)
    keep = None if seed is None else dropout_mask(seed, 0, len(x), cell.mask_size, cell.dropout, projected.dtype)
    features, state = cell.step(projected, state, keep)
    return cell.readout(features), state
