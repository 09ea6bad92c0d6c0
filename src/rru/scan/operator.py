"""The reference scan as one operator, `rru::scan`: all that torch.compile and torch.export see of the loop.

Traced step by step, a graph would grow with the sequence and so would the time to compile it. An operator takes only
tensors, numbers and strings, so a cell travels as its registered name, its options (JSON) and the list of its weights.
The backward pass runs the scan once more and differentiates it.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from rru.scan import reference
from rru.scan.lengths import check_lengths
from rru.scan.reference import Steps


class Rebuilt(Protocol):
    """A class of cells that can be made again from what a graph knows of them."""

    def from_weights(self, weights: list[Tensor], options: str, dropout: float) -> Steps:
        """The cell of these weights and options."""
        ...


registered: dict[str, Rebuilt] = {}
"""Classes of cells by name; `rru.register_cell` adds to it."""


def _scan(
    inputs: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    cell: str,
    options: str,
    dropout: float,
    reverse: bool,
    autocast: torch.dtype | None,
) -> list[Tensor]:
    """The reference scan on plain arguments: [outputs, *last state]."""
    if cell not in registered:
        raise RuntimeError(f"this graph has a cell named {cell!r}: register it (rru.register_cell) before running it")
    steps = registered[cell].from_weights(weights, options, dropout)
    if autocast is None:
        outputs, last = reference.scan(steps, inputs, tuple(state), lengths, seed, reverse)
    else:  # the backward pass of a compiled graph runs outside the user's autocast block, so the operator has its own
        with torch.autocast(inputs.device.type, dtype=autocast):
            outputs, last = reference.scan(steps, inputs, tuple(state), lengths, seed, reverse)
    return [outputs, *last]


@torch.library.custom_op("rru::scan", mutates_args=())
def scan(
    inputs: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    cell: str,
    options: str,
    dropout: float,
    reverse: bool,
    autocast: torch.dtype | None,
) -> list[Tensor]:
    """As `reference.scan`, for graphs."""
    check_lengths(lengths, inputs.shape[0])
    results = _scan(inputs, state, weights, lengths, seed, cell, options, dropout, reverse, autocast)
    return [result.clone(memory_format=torch.contiguous_format) for result in results]  # never an input's own memory


@scan.register_fake
def _(inputs: Tensor, state: list[Tensor], weights: list[Tensor], lengths: Tensor | None, *rest: Any) -> list[Tensor]:
    # Shapes and types follow from one step of the cell itself, so that no cell has to state them a second time.
    outputs, *last = _scan(inputs[0].unsqueeze(0), state, weights, lengths, *rest)
    return [outputs.new_empty(inputs.shape[0], *outputs.shape[1:]), *map(_empty_like, last)]


@torch.library.custom_op("rru::scan_backward", mutates_args=())
def scan_backward(
    gradients: list[Tensor],
    inputs: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    cell: str,
    options: str,
    dropout: float,
    reverse: bool,
    autocast: torch.dtype | None,
) -> list[Tensor]:
    """Gradients of [inputs, *state, *weights]."""

    def forward(inputs: Tensor, state: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        return _scan(inputs, state, weights, lengths, seed, cell, options, dropout, reverse, autocast)

    # torch.func differentiates inside an operator, where autograd itself is switched off.
    differentiate = torch.func.vjp(forward, inputs, state, weights)[1]
    for_inputs, for_state, for_weights = differentiate(gradients)
    found = [for_inputs, *for_state, *for_weights]
    return [gradient.clone(memory_format=torch.contiguous_format) for gradient in found]


@scan_backward.register_fake
def _(gradients: list[Tensor], inputs: Tensor, state: list[Tensor], weights: list[Tensor], *rest: Any) -> list[Tensor]:
    return [*map(_empty_like, (inputs, *state, *weights))]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    first, state, weights, lengths, seed, *ctx.rest = inputs
    ctx.states = len(state)
    ctx.save_for_backward(first, lengths, seed, *state, *weights)


def _backward(ctx: Any, gradients: list[Tensor]) -> tuple[Any, ...]:
    inputs, lengths, seed, *tensors = ctx.saved_tensors
    state, weights = tensors[: ctx.states], tensors[ctx.states :]
    first, *found = scan_backward(gradients, inputs, state, weights, lengths, seed, *ctx.rest)
    return first, found[: ctx.states], found[ctx.states :], None, None, *[None] * len(ctx.rest)


scan.register_autograd(_backward, setup_context=_setup_context)


def _empty_like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)
