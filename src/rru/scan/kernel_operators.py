"""The native and the fused scans as torch operators with autograd, for graphs.

An operator takes only tensors, numbers and strings. Graphs saved by torch.export contain its name and its arguments, so
these must not change.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from rru.scan.arguments import ScanArguments, ScanSpec
from rru.scan.autograd import Backward, differentiate, save_for_backward
from rru.scan.custom_op import Named, by_name, custom_op, empty_like, passed_on
from rru.scan.kernels import KERNELS

Forward = Callable[[ScanArguments, bool], list[Tensor]]
"""Return [outputs (T, B, p), *saved, *last state]. The flag says whether to save what the backward pass needs."""

_FIRST = "str kernel, Tensor x, Tensor[] state, Tensor[] weights"
_REST = "Tensor? lengths, Tensor? seed, float dropout, SymInt[] options, bool reverse"


class BackEnd(NamedTuple):
    """A back end on plain tensors, and how the signatures of its operators end."""

    forward: Forward
    allocate: Forward  # returns empty tensors like the results of `forward`
    backward: Backward
    forward_end: str
    backward_end: str
    device_types: str | None = None  # None: all


def _arguments(named: Named) -> ScanArguments:
    kernel = named["kernel"]
    options = KERNELS[kernel].options(*named["options"])
    defaults = named.get("cell_options", ""), named.get("autocast")
    spec = ScanSpec(kernel, options, named["dropout"], named["reverse"], *defaults)
    tensors = named["x"], named["state"], named["weights"], named["lengths"], named["seed"], named.get("resets")
    return ScanArguments(spec, *tensors)


def define(name: str, back_end: BackEnd) -> tuple[Any, Backward]:
    """Define `rru::<name>_forward` and `rru::<name>_backward`; return functions that call them.

    The first takes the arguments and whether to save, like `BackEnd.forward`. The second always computes the gradient
    of x.
    """
    signature = f"{_FIRST}, {_REST}, bool save, {back_end.forward_end}"
    forward_op = custom_op(
        f"{name}_forward",
        signature,
        lambda named: back_end.forward(_arguments(named), named["save"]),
        back_end.device_types,
    )
    forward_op.register_fake(by_name(signature, lambda named: back_end.allocate(_arguments(named), named["save"])))
    backward = _define_backward(f"{name}_backward", back_end)

    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: list[Tensor], keyword_only_inputs: Named | None = None
    ) -> None:
        arguments = by_name(signature, _arguments)(*inputs, **(keyword_only_inputs or {}))
        ctx.inputs, ctx.parts = passed_on(forward_op, inputs), len(arguments.initial_state)
        ctx.mark_non_differentiable(*output[1 : -ctx.parts])
        save_for_backward(ctx, arguments, output)

    def differentiate_op(ctx: Any, gradients: list[Tensor | None]) -> tuple[Any, ...]:
        states, _ = ctx.sizes
        grad_x, *others = differentiate(ctx, [gradients[0], *gradients[-ctx.parts :]], backward)
        return None, grad_x, others[:states], others[states:], *[None] * (ctx.inputs - 4)

    forward_op.register_autograd(differentiate_op, setup_context=setup_context)

    def forward(arguments: ScanArguments, save: bool) -> list[Tensor]:
        spec, x, state, weights, lengths, seed, resets = arguments
        rest = lengths, seed, spec.dropout, list(spec.options), spec.reverse, save
        end = {"cell_options": spec.cell_options, "autocast": spec.autocast, "resets": resets}
        results: list[Tensor] = forward_op(spec.kernel, x, list(state), list(weights), *rest, **end)
        return results

    return forward, backward


def _define_backward(name: str, back_end: BackEnd) -> Backward:
    signature = f"Tensor[] gradients, {_FIRST}, Tensor[] saved, {_REST}, {back_end.backward_end}"
    backward_op = custom_op(
        name,
        signature,
        lambda named: back_end.backward(_arguments(named), named["gradients"], named["saved"], True),
        back_end.device_types,
    )
    backward_op.register_fake(
        by_name(signature, lambda named: empty_like([named["x"], *named["state"], *named["weights"]]))
    )

    def backward(
        arguments: ScanArguments, gradients: Sequence[Tensor], saved: list[Tensor], wants_x: bool
    ) -> list[Tensor | None]:
        spec, x, state, weights, lengths, seed, resets = arguments
        rest = lengths, seed, spec.dropout, list(spec.options), spec.reverse, spec.autocast, resets
        computed: list[Tensor | None] = backward_op(
            list(gradients), spec.kernel, x, list(state), list(weights), saved, *rest
        )
        return computed

    return backward
