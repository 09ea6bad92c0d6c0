"""The native scans as torch operators, for graphs: `rru::native_forward` and `rru::native_backward`.

The first call of an operator imports torch's compiler, which takes a second, so eager code does not use them.
"""

from typing import Any

import torch
from torch import Tensor

from rru.scan import native_calls
from rru.scan.native_autograd import differentiate, remember
from rru.scan.native_calls import ScanSpec


@torch.library.custom_op("rru::native_forward", mutates_args=(), device_types="cpu")
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
    cell_options: str = "",
    *,
    autocast: torch.dtype | None = None,
) -> list[Tensor]:
    """Returns [outputs (T, B, p), *saved, *last state], as `native_calls.forward` does."""
    call = ScanSpec(kernel, tuple(options), dropout, reverse, autocast=autocast)
    return native_calls.forward(call, x, state, weights, lengths, seed, save)


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
    cell_options: str = "",
    *,
    autocast: torch.dtype | None = None,
) -> list[Tensor]:
    call = ScanSpec(kernel, tuple(options), dropout, reverse, autocast=autocast)
    call = native_calls.in_best_form(call, x, state[0].shape[1], seed)
    return native_calls.allocate_results(call, x, state, lengths, save)


@torch.library.custom_op("rru::native_backward", mutates_args=(), device_types="cpu")
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
    autocast: torch.dtype | None = None,
) -> list[Tensor]:
    """Returns the gradients of [x, *state, *weights], as `native_calls.backward` does."""
    call = ScanSpec(kernel, tuple(options), dropout, reverse, autocast=autocast)
    found = native_calls.backward(call, gradients, x, state, weights, saved, lengths, seed)
    return [_own(gradient) for gradient in found if gradient is not None]


def _own(tensor: Tensor) -> Tensor:
    """Returns the tensor itself, or a copy of a view: results of an operator must not share memory."""
    return tensor.clone(memory_format=torch.contiguous_format) if tensor._is_view() else tensor


@backward.register_fake
def _(
    gradients: list[Tensor], kernel: str, x: Tensor, state: list[Tensor], weights: list[Tensor], *_: Any
) -> list[Tensor]:
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in (x, *state, *weights)]


def backward_call(
    call: ScanSpec,
    gradients: list[Tensor],
    x: Tensor,
    state: list[Tensor],
    weights: list[Tensor],
    saved: list[Tensor],
    lengths: Tensor | None,
    seed: Tensor | None,
    wants_x: bool,
) -> Any:
    """Runs `native_calls.backward` as an operator, which always computes the gradient of x."""
    rest = lengths, seed, call.dropout, list(call.options), call.reverse, call.autocast
    return backward(gradients, call.kernel, x, state, weights, saved, *rest)


def _setup_context(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: list[Tensor]
) -> None:
    kernel, x, state, weights, lengths, seed, dropout, options, reverse, _, cell_options = inputs
    ctx.mark_non_differentiable(*output[1 : -len(state)])
    call = ScanSpec(kernel, tuple(options), dropout, reverse, cell_options, **keyword_only_inputs)
    remember(ctx, call, x, state, weights, lengths, seed, output)


def _backward(ctx: Any, gradients: list[Tensor | None]) -> tuple[Any, ...]:
    states, _ = ctx.sizes
    found = differentiate(ctx, [gradients[0], *gradients[-states:]], backward_call)
    return None, found[0], found[1 : 1 + states], found[1 + states :], *[None] * 7


forward.register_autograd(_backward, setup_context=_setup_context)
