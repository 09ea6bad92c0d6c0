"""The fused scans as torch operators with autograd: `rru::fused_forward` and `rru::fused_backward`."""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from rru.scan import native_calls
from rru.scan.fused.call import Call
from rru.scan.fused.cell import FusedCell
from rru.scan.fused.gru import FusedGRU
from rru.scan.fused.lstm import FusedLSTM
from rru.scan.fused.mogrifier import FusedMogrifier
from rru.scan.fused.rru import FusedRRU
from rru.scan.native_autograd import differentiate, remember
from rru.scan.native_cells import NATIVE_CELLS

FUSED_CELLS: dict[str, FusedCell] = {
    "rru": FusedRRU(),
    "lstm": FusedLSTM(),
    "gru": FusedGRU(),
    "mogrifier": FusedMogrifier(),
}


def _allocate(call: Call, cell: FusedCell) -> list[Tensor]:
    return [call.x.new_empty(shape, dtype=dtype) for shape, dtype in cell.saved(call)] if call.save else []


def _current(device: torch.device) -> AbstractContextManager[Any]:
    """Returns a context in which a device is the current one: Triton launches on that, wherever the tensors are."""
    return torch.accelerator.device_index(device.index)  # nothing to do for None, the index of a CPU


@torch.library.custom_op("rru::fused_forward", mutates_args=())
def forward(
    kernel: str,
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    options: list[int],
    reverse: bool,
    save: bool,
    autocast: torch.dtype | None,
    cell_options: str = "",
) -> list[Tensor]:
    """Returns [outputs (T, B, p), *saved, *last state]. With `save`, `saved` is what the backward pass needs.

    `autocast` is the dtype of matrix products. `cell_options` is `cell.options`; only gradients of gradients need it.
    """
    known = NATIVE_CELLS[kernel].Options(*options)
    call = Call(x, state, weights, lengths, seed, dropout, known, reverse, save, autocast)
    saved = _allocate(call, FUSED_CELLS[kernel])
    with torch.autocast(x.device.type, enabled=False), _current(x.device):
        outputs, last = FUSED_CELLS[kernel].forward(call, saved)
    return [outputs, *saved, *last]


@forward.register_fake
def _(
    kernel: str,
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    options: list[int],
    reverse: bool,
    save: bool,
    autocast: torch.dtype | None,
    cell_options: str = "",
) -> list[Tensor]:
    cell, known = FUSED_CELLS[kernel], NATIVE_CELLS[kernel].Options(*options)
    call = Call(x, state, weights, lengths, seed, dropout, known, reverse, save, autocast)
    shape, dtype = cell.outputs(call)
    return [x.new_empty(shape, dtype=dtype), *_allocate(call, cell), *map(torch.empty_like, state)]


@torch.library.custom_op("rru::fused_backward", mutates_args=())
def backward(
    gradients: list[Tensor],
    kernel: str,
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    saved: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    dropout: float,
    options: list[int],
    reverse: bool,
    autocast: torch.dtype | None,
) -> list[Tensor]:
    """Returns the gradients of [x, *state, *weights], given those of [outputs, *last state].

    `saved` is what the forward pass returned for it.
    """
    known = NATIVE_CELLS[kernel].Options(*options)
    call = Call(x, state, weights, lengths, seed, dropout, known, reverse, True, autocast)
    with torch.autocast(x.device.type, enabled=False), _current(x.device):
        found = FUSED_CELLS[kernel].backward(call, saved, gradients)
    return [gradient.to(like.dtype).contiguous() for gradient, like in zip(found, [x, *state, *weights], strict=True)]


@backward.register_fake
def _(
    gradients: list[Tensor], kernel: str, x: Tensor, state: list[Tensor], weights: list[Tensor], *_: Any
) -> list[Tensor]:
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (x, *state, *weights)]


def _backward_call(
    call: native_calls.ScanSpec,
    gradients: list[Tensor],
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    saved: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    wants_x: bool,
) -> Any:
    rest = lengths, seed, call.dropout, list(call.options), call.reverse, call.autocast
    return backward(gradients, call.kernel, x, state, weights, saved, *rest)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    kernel, x, state, weights, lengths, seed, dropout, options, reverse, _, autocast, cell_options = inputs
    ctx.mark_non_differentiable(*output[1 : -len(state)])
    call = native_calls.ScanSpec(kernel, tuple(options), dropout, reverse, cell_options, autocast)
    remember(ctx, call, x, state, weights, lengths, seed, output)


def _backward(ctx: Any, gradients: list[Tensor | None]) -> tuple[Any, ...]:
    states, _ = ctx.sizes
    found = differentiate(ctx, [gradients[0], *gradients[-states:]], _backward_call)
    return None, found[0], found[1 : 1 + states], found[1 + states :], *[None] * 8


forward.register_autograd(_backward, setup_context=_setup_context)
