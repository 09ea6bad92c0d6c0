"""The reference scan as a single operator, `rru::scan`, for torch.compile and torch.export.

If the loop were traced step by step, the graph and its compile time would grow with the sequence length. An operator
takes only tensors, numbers and strings, so a cell is passed as its registered name, its options (JSON) and its weights.
The backward pass runs the scan again and differentiates it.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from rru.scan import reference
from rru.scan.lengths import check_lengths
from rru.scan.reference import Steps


class Rebuilt(Protocol):
    """A cell class whose cells can be rebuilt from what a graph stores."""

    def from_weights(self, weights: list[Tensor], options: str, dropout: float) -> Steps:
        """Builds a cell from its weights and options."""
        ...


registered: dict[str, Rebuilt] = {}
"""Cell classes by name; `rru.register_cell` adds to it."""


def graph_name(cell: Any) -> str:
    """Returns the registered name of a cell; raises if a graph cannot rebuild it from its options and weights."""
    name = cell.name or ""
    known: Any = registered.get(name)
    if known is not cell.built_as:
        raise RuntimeError(
            f"{cell.built_as.__name__} must be registered (rru.register_cell) to be compiled or exported"
        )
    others = [name for name, _ in cell.named_children() if name != "parametrizations"]
    others += [name for name, _ in cell.named_buffers(recurse=False)]
    if others:
        raise RuntimeError(
            f"{cell.built_as.__name__} has state besides its weights, which a graph cannot store: {others}"
        )
    return str(name)


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
    """Runs the reference scan on plain arguments. Returns [outputs, *last state]."""
    if cell not in registered:
        raise RuntimeError(f"this graph has a cell named {cell!r}: register it (rru.register_cell) before running it")
    steps = registered[cell].from_weights(weights, options, dropout)
    if autocast is None:
        outputs, last = reference.scan(steps, inputs, tuple(state), lengths, seed, reverse)
    else:  # a compiled graph's backward pass runs outside the user's autocast block, so enter one here
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
    """Runs `reference.scan` as an operator. Returns [outputs, *last state]."""
    check_lengths(lengths, inputs.shape[0])
    results = _scan(inputs, state, weights, lengths, seed, cell, options, dropout, reverse, autocast)
    return [result.clone(memory_format=torch.contiguous_format) for result in results]  # outputs must not alias inputs


@scan.register_fake
def _(inputs: Tensor, state: list[Tensor], weights: list[Tensor], lengths: Tensor | None, *rest: Any) -> list[Tensor]:
    # Run one step of the cell to get shapes and dtypes, so that cells need not declare them.
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
    """Returns the gradients of [inputs, *state, *weights], given those of [outputs, *last state]."""

    def forward(inputs: Tensor, state: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        return _scan(inputs, state, weights, lengths, seed, cell, options, dropout, reverse, autocast)

    # Autograd is off inside an operator, but torch.func works.
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
