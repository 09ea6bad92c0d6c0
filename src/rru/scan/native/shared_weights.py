"""The weights of a cell as one node of a graph that all its steps share.

A step alone has too few rows for fast weight gradients, and autograd would add up those of all steps. So a step's
backward pass only adds its rows to a `SharedWeights`. Autograd calls the backward pass of the node after those of all
steps, and this computes the gradients from all rows at once.
"""

import operator
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rru.scan import thresholds
from rru.scan.kernels import KERNELS
from rru.scan.native import call
from rru.scan.native.spec import BackwardPass

Gradients = list[Tensor | None]


class _Sum:
    """The gradients of all weights in one backward pass: a sum so far, and rows that are still to be added to it."""

    def __init__(self) -> None:
        self.gradients: Gradients | None = None
        self.waiting: list[BackwardPass] = []
        self.rows = 0

    def wait(self, done: BackwardPass) -> None:
        self.waiting.append(done)
        self.rows += done.arguments.sizes[1]
        if self.rows >= thresholds.MAX_WAITING_ROWS:
            self.finish()

    def add(self, gradients: Gradients) -> None:
        if self.gradients is None:
            self.gradients = gradients
        else:
            self.gradients = list(map(_plus, self.gradients, gradients))

    def finish(self) -> Gradients | None:
        """Add the rows that wait, and return the sum; None if there were no rows at all."""
        if self.waiting:
            waiting, self.waiting, self.rows = self.waiting, [], 0
            done = call.joined(waiting)
            cell = KERNELS[done.arguments.spec.kernel].native
            self.add(call.final_gradients(cell, done, wants_x=False)[1:])
        return self.gradients


def _plus(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


class SharedWeights:
    """The gradients of a cell's weights, in every backward pass that is running.

    The weights must be leaves of the graph.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights, self.looks = weights, _looks(weights)
        self._sums: dict[int, _Sum] = {}  # by backward pass: several may run, in threads or inside each other

    def are(self, weights: Sequence[Tensor]) -> bool:
        """Return whether these are the weights, and gradients flow to the same ones of them as before."""
        return all(map(operator.is_, weights, self.weights)) and _looks(weights) == self.looks

    def wait(self, done: BackwardPass) -> None:
        """Keep the rows of a step, until there are enough for fast products or the backward pass comes to its end."""
        self._sum().wait(done)

    def add(self, gradients: Gradients) -> None:
        """Add the gradients of a step, which may be differentiable themselves."""
        self._sum().add(gradients)

    def finish(self) -> Gradients:
        """Return the gradients of all weights in this backward pass."""
        found = self._sums.pop(torch._C._current_graph_task_id(), None)
        return (None if found is None else found.finish()) or [None] * len(self.weights)

    def _sum(self) -> _Sum:
        return self._sums.setdefault(torch._C._current_graph_task_id(), _Sum())


def _looks(weights: Sequence[Tensor]) -> list[tuple[bool, torch.dtype]]:
    return [(weight.requires_grad, weight.dtype) for weight in weights]


class _Weights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shared: SharedWeights, *weights: Tensor) -> Tensor:
        ctx.shared = shared
        return weights[0].new_empty(0)

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        gradients = zip(ctx.shared.finish(), ctx.needs_input_grad[1:], strict=True)
        return None, *[gradient if wanted else None for gradient, wanted in gradients]


class Node:
    """What a step gets instead of the weights: an empty tensor that depends on them, and their gradients."""

    __slots__ = ("__weakref__", "nothing", "shared", "tensor")

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.shared = SharedWeights(weights)
        apply: Callable[..., Tensor] = _Weights.apply
        self.tensor = apply(self.shared, *weights)
        self.nothing = self.tensor.detach()

    def is_wanted(self) -> bool:
        """Return whether the backward pass that is running computes gradients of the weights."""
        node = self.tensor.grad_fn
        return node is not None and torch._C._will_engine_execute_node(node)


class Latest:
    """The node that the next step of a cell can share with its last ones, as long as their graph exists."""

    def __init__(self) -> None:
        self._node: Callable[[], Node | None] = lambda: None

    def of(self, weights: Sequence[Tensor]) -> Node:
        """Return the node of these weights."""
        node = self._node()
        if node is None or not node.shared.are(weights):
            node = Node(weights)
            self._node = weakref.ref(node)
        return node
