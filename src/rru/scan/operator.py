"""The reference scan as a single operator, `rru::scan`, for torch.compile and torch.export.

If the loop were traced step by step, the graph and its compile time would grow with the sequence length. An operator
takes only tensors, numbers and strings, so a cell is passed as its registered name, its options (JSON) and its weights.
The backward pass runs the scan again and differentiates it.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from rru.scan import reference
from rru.scan.cells import AnyCell
from rru.scan.custom_op import Named, by_name, custom_op, empty_like, passed_on
from rru.scan.lengths import check_lengths
from rru.scan.reference import Resets, ScanInputs, Steps


class Rebuilt(Protocol):
    """A cell class whose cells can be rebuilt from what a graph stores."""

    def from_weights(self, weights: list[Tensor], options: str, dropout: float) -> Steps:
        """Build a cell from its weights and options."""
        ...


registered: dict[str, Rebuilt] = {}
"""Cell classes by name; `rru.register_cell` adds to it."""


def graph_name(cell: AnyCell) -> str:
    """Return the registered name of a cell; raise if a graph cannot rebuild it from its options and weights."""
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


_SIGNATURE = (
    "Tensor inputs, Tensor[] state, Tensor[] weights, Tensor? lengths, Tensor? seed, "
    "str cell, str options, float dropout, bool reverse, ScalarType? autocast, Tensor? resets=None"
)


def _scan(named: Named) -> list[Tensor]:
    """Run the reference scan on the operator's arguments. Return [outputs, *last state]."""
    name, x, autocast = named["cell"], named["inputs"], named["autocast"]
    if name not in registered:
        raise RuntimeError(f"this graph has a cell named {name!r}: register it (rru.register_cell) before running it")
    cell = registered[name].from_weights(named["weights"], named["options"], named["dropout"])
    state, mask, resets = tuple(named["state"]), named.get("resets"), None
    if mask is not None:  # the state to reset to comes after the initial one
        parts = len(state) // 2
        state, resets = state[:parts], Resets(mask, state[parts:])
    inputs = ScanInputs(x, state, named["lengths"], named["seed"], named["reverse"], resets)
    if autocast is None:
        outputs, last = reference.scan(cell, inputs)
    else:  # a compiled graph's backward pass runs outside the user's autocast block, so enter one here
        with torch.autocast(x.device.type, dtype=autocast):
            outputs, last = reference.scan(cell, inputs)
    return [outputs, *last]


def _run(named: Named) -> list[Tensor]:
    check_lengths(named["lengths"], len(named["inputs"]))
    return _copies(_scan(named))


def _allocate(named: Named) -> list[Tensor]:
    # Run one step of the cell to get shapes and dtypes, so that cells need not declare them.
    steps = named["inputs"].shape[0]
    over_time = [name for name in ("inputs", "resets") if named.get(name) is not None]
    outputs, *last = _scan(named | {name: named[name][0].unsqueeze(0) for name in over_time})
    return [outputs.new_empty(steps, *outputs.shape[1:]), *empty_like(last)]


def _run_backward(named: Named) -> list[Tensor]:
    """Return the gradients of [inputs, *state, *weights], given those of [outputs, *last state]."""

    def forward(inputs: Tensor, state: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        return _scan(named | {"inputs": inputs, "state": state, "weights": weights})

    # Autograd is off inside an operator, but torch.func works.
    differentiate = torch.func.vjp(forward, named["inputs"], named["state"], named["weights"])[1]
    for_inputs, for_state, for_weights = differentiate(named["gradients"])
    return _copies([for_inputs, *for_state, *for_weights])


def _copies(results: list[Tensor]) -> list[Tensor]:
    """Return copies: the results of an operator must share memory neither with its arguments nor with each other."""
    return [result.clone(memory_format=torch.contiguous_format) for result in results]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    first, state, weights, lengths, seed, *rest = inputs
    ctx.rest, resets = rest[:5], rest[5] if len(rest) > 5 else None
    ctx.states, ctx.inputs = len(state), passed_on(scan, inputs)
    ctx.save_for_backward(first, lengths, seed, resets, *state, *weights)


def _backward(ctx: Any, gradients: list[Tensor]) -> tuple[Any, ...]:
    inputs, lengths, seed, resets, *tensors = ctx.saved_tensors
    state, weights = tensors[: ctx.states], tensors[ctx.states :]
    first, *others = scan_backward(gradients, inputs, state, weights, lengths, seed, *ctx.rest, resets)
    return first, others[: ctx.states], others[ctx.states :], *[None] * (ctx.inputs - 3)


scan = custom_op("scan", _SIGNATURE, _run)
"""`reference.scan` as an operator. Return [outputs, *last state]."""
scan.register_fake(by_name(_SIGNATURE, _allocate))
scan.register_autograd(_backward, setup_context=_setup_context)
_SIGNATURE_BACKWARD = f"Tensor[] gradients, {_SIGNATURE}"
scan_backward = custom_op("scan_backward", _SIGNATURE_BACKWARD, _run_backward)
scan_backward.register_fake(
    by_name(_SIGNATURE_BACKWARD, lambda named: empty_like([named["inputs"], *named["state"], *named["weights"]]))
)
