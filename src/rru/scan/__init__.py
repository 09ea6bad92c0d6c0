"""How a layer runs over time: back ends that all compute the same recurrence."""

from typing import ClassVar, Protocol

import torch
from torch import Tensor

from rru.scan import operator, reference
from rru.scan.lengths import check_lengths
from rru.scan.reference import State, Steps

BACKENDS = ("auto", "reference", "native")
_AVAILABLE = ("auto", "reference")


class RegisteredSteps(Steps, Protocol):
    """A cell that can also be described to a graph (`operator.py`)."""

    name: ClassVar[str | None]
    options: str

    def weights(self) -> list[Tensor]:
        """Its tensors, in the order its builder takes them."""
        ...


def check_backend(backend: str) -> None:
    """Raises unless `backend` names a back end that can run here."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(map(repr, BACKENDS))}, got {backend!r}")
    if backend not in _AVAILABLE:
        raise RuntimeError(f"backend {backend!r} is not part of this build; use 'auto' or 'reference'")


def run(
    cell: RegisteredSteps,
    inputs: Tensor,
    state: State,
    *,
    lengths: Tensor | None = None,
    seed: Tensor | None = None,
    reverse: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, State]:
    """Runs `cell` over `inputs` (T, B, m): see `reference.scan` for the arguments and what comes back."""
    check_backend(backend)
    if not torch.compiler.is_compiling():
        check_lengths(lengths, inputs.shape[0])
        return reference.scan(cell, inputs, state, lengths, seed, reverse)
    if cell.name is None:
        raise RuntimeError(f"{type(cell).__name__} must be registered (rru.register_cell) to be compiled or exported")
    device = inputs.device.type
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    outputs, *last = operator.scan(
        inputs, list(state), cell.weights(), lengths, seed, cell.name, cell.options, cell.dropout, reverse, autocast
    )
    return outputs, tuple(last)
