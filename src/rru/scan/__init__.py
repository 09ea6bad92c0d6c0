"""How a layer runs over time: back ends that all compute the same recurrence."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from rru.scan import native, operator, reference
from rru.scan.library import BUILT, DTYPES, warn_once
from rru.scan.reference import State, Steps

_dispatch_modes, _tracing_state = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state
_transforms = torch._C._functorch.peek_interpreter_stack

BACKENDS = ("auto", "reference", "native")
_WORTH_PACKING = (
    16  # steps times sequences: with fewer, the backward pass takes longer to pack the weights than it saves
)


class AnyCell(Steps, Protocol):
    """A cell as `rru.nn.Cell` has it."""

    name: ClassVar[str | None]
    kernel: ClassVar[str | None]
    built_as: type
    options: str

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""
        ...

    def weights(self) -> list[Tensor]:
        """Its tensors, in the order of `from_weights`."""
        ...

    def own_weights(self) -> dict[str, Tensor] | None:
        """Its tensors by name, where they are all plain ones of its own."""
        ...

    def parameters(self) -> Iterator[Tensor]:
        """What is learned."""
        ...

    def check_graph(self) -> None:
        """Raises unless a graph can make the cell again."""
        ...


def check_backend(backend: str) -> None:
    """Raises unless `backend` names a back end that can run here."""
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(map(repr, BACKENDS))}, got {backend!r}")
    if backend == "native" and not BUILT:
        raise RuntimeError("backend 'native' is not part of this build; use 'auto' or 'reference'")


def run(
    cell: AnyCell,
    inputs: Tensor,
    state: State,
    *,
    lengths: Tensor | None = None,
    seed: Tensor | None = None,
    reverse: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, State]:
    """Runs `cell` over `inputs` (T, B, m): see `reference.scan` for the arguments and what comes back.

    `backend="auto"` takes a native scan where there is one that can run this and it pays, else the reference. Both give
    the same numbers and gradients; gradients of gradients only the reference has. In a graph either is one operator.
    """
    check_backend(backend)
    obstacle = _why_not_native(cell, inputs)
    if backend == "native" and obstacle:
        raise RuntimeError(f"backend 'native' cannot run this: {obstacle}; use 'auto' or 'reference'")
    if backend == "native" or (backend == "auto" and not obstacle and _pays(cell, inputs, state)):
        return native.scan(cell, inputs, state, lengths, seed, reverse)
    if not torch.compiler.is_compiling():
        return reference.scan(cell, inputs, state, lengths, seed, reverse)
    cell.check_graph()
    assert cell.name is not None
    autocast = reference.autocast_dtype(inputs.device.type)
    outputs, *last = operator.scan(
        inputs, list(state), cell.weights(), lengths, seed, cell.name, cell.options, cell.dropout, reverse, autocast
    )
    return outputs, tuple(last)


def step(cell: AnyCell, x: Tensor, state: State, seed: Tensor | None) -> tuple[Tensor, State]:
    """One step of `cell`, on x (B, m): outputs (B, p) and the new state; natively where no gradient is wanted."""
    plain = type(x) in (Tensor, torch.nn.Parameter) and not _is_recorded()
    weights = cell.own_weights() if plain and not _why_not_native(cell, x) else None
    if weights is None or _differentiates(weights.values(), x, state):
        return reference.step(cell, x, state, seed)
    return native.step(cell, weights, x, state, seed)


def step_again(cell: AnyCell, x: Tensor, state: Any) -> tuple[Tensor, Tensor] | None:
    """A step like the last that this cell did natively, which needs no further check; None where it is not like it."""
    if _is_recorded() or type(x) is not Tensor or type(state) is not Tensor:
        return None
    if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or _transform():
        return None
    return native.step_again(cell, x, state)


def _is_recorded() -> bool:
    """Whether operators are being recorded or reinterpreted, so that nothing may bypass torch's dispatcher."""
    return torch.compiler.is_compiling() or _tracing_state() is not None or bool(_dispatch_modes())


def _transform() -> str:
    """The derivatives being taken that native scans do not know; empty if none are."""
    if _transforms() is not None:
        return "native scans know nothing of torch.func's transforms"
    if forward_ad._current_level >= 0:
        return "native scans have no forward-mode derivatives"
    return ""


def _why_not_native(cell: AnyCell, inputs: Tensor) -> str:
    """What keeps the native scans from running this cell on these inputs; empty if nothing does."""
    if vars(cell.built_as).get("kernel") is None:
        return f"{cell.built_as.__name__} has no native scan"
    if not inputs.is_cpu:
        return f"native scans run on the CPU, the input is on {inputs.device}"
    if cell.dtype not in DTYPES:
        return f"native scans compute in float32 and float64, the weights are {cell.dtype}"
    if not torch.compiler.is_compiling():
        if transform := _transform():
            return transform
        if not BUILT:
            warn_once()
    return "" if BUILT else "the native scans are not part of this build"


def _pays(cell: AnyCell, inputs: Tensor, state: State) -> bool:
    """Whether there is enough to do; with few steps a native scan is faster forward, but not backward."""
    steps, batch = inputs.shape[:2]
    return (
        torch.compiler.is_compiling()
        or steps * batch >= _WORTH_PACKING
        or not _differentiates(cell.parameters(), inputs, state)
    )


def _differentiates(weights: Iterable[Tensor], inputs: Tensor, state: State) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (inputs, *state, *weights))
