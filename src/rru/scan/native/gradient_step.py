"""Single steps with gradients: one call of the library in each direction. Weight gradients wait for other steps.

A step is a scan over one step. If anything is unusual, `step` returns None and the caller takes the reference.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rru.scan import reference, thresholds
from rru.scan.arguments import ScanArguments, ScanSpec, as_contiguous
from rru.scan.autograd import differentiate_through
from rru.scan.cells import AnyCell
from rru.scan.kernels import KERNELS
from rru.scan.native import library
from rru.scan.native.call import function_of, shapes_of
from rru.scan.native.library import Function
from rru.scan.native.shared_weights import Node
from rru.scan.native.spec import BackwardPass
from rru.scan.recording import PLAIN, goes_through_autograd, is_recorded
from rru.scan.reference import State


def step(
    cell: AnyCell, weights: Sequence[Tensor], x: Tensor, state: State, seed: Tensor | None
) -> tuple[Tensor, State] | None:
    """Run one native step on plain tensors, x (B, m) and the state, so that autograd can differentiate it.

    **Returns:** outputs (B, p) and the new state, or None if anything is unusual.
    """
    native, dtype = cell.native_step, x.dtype
    assert native is not None
    if torch.is_autocast_enabled("cpu") or not len(x) or any(part.dtype is not dtype for part in state):
        return None
    if not native.are_usual(weights, dtype) or not all(weight.is_leaf for weight in weights):
        return None
    if KERNELS[native.kernel].arrange is not None:
        return None
    call = _Call(cell, cell.dropout, weights, seed, native.latest.of(weights))
    x, *before = [as_contiguous(tensor, dtype) for tensor in (x, *state)]
    outputs, *last = _Step.apply(call, call.node.tensor, x, *before)  # type: ignore[no-untyped-call]
    return outputs, tuple(last)


class _Call(NamedTuple):
    """What a step computes, besides its input and state."""

    cell: AnyCell
    dropout: float
    weights: Sequence[Tensor]
    seed: Tensor | None
    node: Node  # of the weights

    def run(self, function: Function, tensors: Sequence[Tensor]) -> None:
        """Call a function of the library on contiguous tensors of the right shapes."""
        if self.seed is not None:
            function = function.seeded(int(self.seed), self.dropout)
        function(function.memory_of(tensors))

    def run_reference(self, x: Tensor, *tensors: Tensor) -> list[Tensor]:
        """Return outputs and the new state, given state and weights."""
        states = len(self.cell.state_names)
        cell = self.cell.with_weights(dict(zip(self.cell.weight_shapes, tensors[states:], strict=True)), self.dropout)
        outputs, last = reference.step(cell, x, tensors[:states], self.seed)
        return [outputs, *last]


class _Loops(NamedTuple):
    """The functions of the library that run a step, and the shapes of the tensors that they write for each other."""

    spec: ScanSpec
    forward: Function
    backward: Function
    saved: list[tuple[int, ...]]
    buffers: list[tuple[int, ...]]


@functools.lru_cache(maxsize=4096)
def _loops_of(
    kernel: str, options: Any, dtype: torch.dtype, sizes: tuple[int, int, int], small: bool, instructions: str
) -> _Loops:
    """Return the loops for B, m and n, and whether one thread runs them, in an instruction set."""
    (batch, m, n), native, spec = sizes, KERNELS[kernel].native, ScanSpec(kernel, options, 0.0, False)
    x, h = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((1, batch, m), (batch, n)))
    arguments = ScanArguments(spec, x, [h], [], None, None)
    fields = native, options, dtype, (1, batch, m), n, small, instructions, False, True
    return _Loops(
        spec,
        function_of("forward", *fields),
        function_of("backward", *fields, False, False, False, tuple(native.step_numbers.items())),
        shapes_of(native.saved(arguments)),
        shapes_of(native.backward_buffers(arguments, native.step_numbers)),
    )


class _Step(torch.autograd.Function):
    """A native step in eager code. The tensor of the node stands for the weights."""

    @staticmethod
    def forward(ctx: Any, call: _Call, node: Tensor, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """Return outputs (B, p) and the new state."""
        native = call.cell.native_step
        assert native is not None
        m, n, p = native.sizes
        batch, instructions = len(x), library.instruction_set
        small = batch * native.size < thresholds.MIN_PARALLEL_WORK
        loops = _loops_of(native.kernel, native.options, x.dtype, (batch, m, n), small, instructions)
        outputs, last = x.new_empty(batch, p), [torch.empty_like(part) for part in state]
        saved = [x.new_empty(shape) for shape in loops.saved]
        call.run(loops.forward, (x, *state, *call.weights, outputs, *saved, *last))
        ctx.call, ctx.loops, ctx.sizes = call, loops, (len(state), len(call.weights), outputs.shape)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, *state, *call.weights, *saved)
        return outputs, *last

    @staticmethod
    def backward(ctx: Any, *ends: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of all arguments of `forward`. Those of the weights go to the node."""
        call, loops, (states, count, outputs) = ctx.call, ctx.loops, ctx.sizes
        x, *tensors = ctx.saved_tensors
        state, weights, saved = tensors[:states], tensors[states : states + count], tensors[states + count :]
        shapes = outputs, *[part.shape for part in state]
        gradients = [
            x.new_zeros(shape) if end is None else as_contiguous(end, x.dtype)
            for end, shape in zip(ends, shapes, strict=True)
        ]
        if is_recorded() or goes_through_autograd(gradients) or not PLAIN.issuperset(map(type, gradients)):
            grad_x, *others = differentiate_through(call.run_reference, (x, *state, *weights), gradients)
            call.node.shared.add(others[states:])
            return None, call.node.nothing, grad_x, *others[:states]
        grad_state = [torch.empty_like(part) for part in state]
        buffers = [x.new_empty(shape) for shape in loops.buffers]
        call.run(loops.backward, (x, *state, *weights, *saved, *gradients, *grad_state, *buffers))
        native = KERNELS[loops.spec.kernel].native
        arguments = ScanArguments(loops.spec, x.unsqueeze(0), state, weights, None, None)
        done = BackwardPass(arguments, saved, buffers, native.step_numbers)
        if call.node.is_wanted():
            call.node.shared.wait(done)
        grad_x = native.input_gradient(done).squeeze(0) if ctx.needs_input_grad[2] else None
        return None, call.node.nothing, grad_x, *grad_state
