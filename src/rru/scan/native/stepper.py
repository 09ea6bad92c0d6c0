"""Single steps without gradients: `NativeStep` for a cell, `Stepper` for a whole layer.

At batch size 1, Python overhead can exceed the cost of the step. So everything that does not change is prepared when
the cell is constructed, and a call only checks a few properties of each tensor. If anything is unusual, `NativeStep`
returns None and the caller takes the slower path, which handles every case and raises clear errors.
"""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rru.scan import thresholds
from rru.scan.arguments import as_contiguous
from rru.scan.cells import AnyCell
from rru.scan.kernels import KERNELS
from rru.scan.native import library
from rru.scan.native.call import function_of
from rru.scan.native.library import BUILT, COMPUTED_IN, DTYPES
from rru.scan.native.run import in_dtype
from rru.scan.native.shared_weights import Latest
from rru.scan.recording import PLAIN, is_recorded, transform
from rru.scan.reference import State, reset
from rru.scan.resets import check_resets
from rru.scan.weights import checked_weights


class NativeStep:
    """Run one step of a cell in the native library, without gradients. Each cell with a kernel has one."""

    def __init__(self, cell: AnyCell) -> None:
        self.kernel = str(cell.kernel)
        self.sizes = cell.input_size, cell.hidden_size, cell.output_size
        self.states = len(cell.state_names)
        self.names, shapes = tuple(cell.weight_shapes), cell.weight_shapes.values()
        self.size = sum(shape.numel() for shape in shapes)
        self.usual = {dtype: [(shape, dtype, True, True, True) for shape in shapes] for dtype in DTYPES}
        self.options = KERNELS[self.kernel].options.of(cell)
        self.select_weights = operator.itemgetter(*self.names)
        self.latest = Latest()

    def __call__(self, cell: Any, x: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, State] | None:
        """Run a step without dropout on x (B, m) and the state, (B, n) each.

        **Returns:** outputs (B, p) and the new state, or None if anything is unusual.
        """
        if not BUILT or is_recorded() or torch.is_autocast_enabled("cpu") or transform():
            return None
        m, n, _ = self.sizes
        if type(x) is not Tensor or x.dim() != 2 or len(state) != self.states:
            return None
        batch, dtype = len(x), x.dtype
        if not (batch and dtype in DTYPES and _is_plain(x, (batch, m), dtype)):
            return None
        for part in state:
            if not _is_plain(part, (batch, n), dtype):
                return None
        try:
            weights = self.select_weights(cell._parameters)
        except KeyError:  # a weight is parametrized or pruned
            return None
        if not self.are_usual(weights, dtype):
            return None
        if KERNELS[self.kernel].arrange is not None:
            weights = KERNELS[self.kernel].weights(cell, dict(zip(self.names, weights, strict=True)))
        return self.run(weights, x, state)

    def are_usual(self, weights: Sequence[Tensor], dtype: torch.dtype) -> bool:
        """Return whether the library can read the weights: it gets addresses, and cannot check shapes or dtypes."""
        looks = [
            (weight.shape, weight.dtype, weight.is_cpu, weight.is_contiguous(), type(weight) in PLAIN)
            for weight in weights
        ]
        return looks == self.usual.get(dtype)

    def run(
        self,
        weights: Sequence[Tensor],
        x: Tensor,
        state: Sequence[Tensor],
        seed: Tensor | None = None,
        dropout: float = 0.0,
    ) -> tuple[Tensor, State]:
        """Call the library. The tensors must already be contiguous CPU tensors of one dtype and the right shapes."""
        batch, dtype = len(x), x.dtype
        outputs, last = x.new_empty(batch, self.sizes[2]), tuple([torch.empty_like(part) for part in state])
        m, n, _ = self.sizes
        single_threaded = batch * self.size < thresholds.MIN_PARALLEL_WORK
        cell, instructions = KERNELS[self.kernel].native, library.instruction_set
        function = function_of("forward", cell, self.options, dtype, (1, batch, m), n, single_threaded, instructions)
        if seed is not None:
            function = function.seeded(int(seed), dropout)
        function(function.memory_of((x, *state, *weights, outputs, *last)))
        return outputs, last


def _is_plain(tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    return (
        type(tensor) is Tensor
        and tensor.shape == shape
        and tensor.dtype is dtype
        and tensor.is_cpu
        and tensor.is_contiguous()
        and not tensor.is_neg()
    )


def step(
    cell: AnyCell, weights: dict[str, Tensor], x: Tensor, state: State, seed: Tensor | None
) -> tuple[Tensor, State]:
    """Run one native step on x (B, m), without gradients or tracing. Return outputs (B, p) and the new state."""
    dtype = cell.some_weight().dtype
    x, *before = (as_contiguous(tensor, COMPUTED_IN[dtype]) for tensor in (x, *state))
    checked = checked_weights(cell, weights)
    assert cell.native_step is not None
    outputs, last = cell.native_step.run(checked, x, before, seed, cell.dropout)
    return in_dtype(dtype, cell.native_step.kernel, outputs, last)


class Stepper:
    """Run a layer or a cell one step at a time, without gradients and dropout, for streaming.

    ```python
    stepper = layer.stepper()  # or cell.stepper()
    output, state = stepper(x)  # (B, m) to (B, p) and the new state of every cell
    output, state = stepper(x, state)
    output, state = stepper(x, state, resets=done)  # rows with done (B,) start anew
    ```

    It works for any batch size, and each call uses the current weights. It calls the native library directly; if that
    cannot run (see `native`), it calls the cells one by one.
    """

    def __init__(self, cells: Sequence[Any], stacked: bool = True) -> None:
        self._cells, self._stacked = list(cells), stacked

    @property
    def native(self) -> bool:
        """Whether all cells have a native step. It runs if inputs and weights are plain CPU tensors."""
        return BUILT and all(cell.native_step is not None for cell in self._cells)

    def __call__(
        self, x: Tensor, state: Any = None, *, resets: Tensor | None = None, reset_state: Any = None
    ) -> tuple[Tensor, Any]:
        """Run one step.

        **Arguments:**

        - `x`: (B, m).
        - `state`: (layers, B, n) for a layer, (B, n) for a cell; for the LSTMs a pair (h, c) of these. Default: the
          initial state.
        - `resets`: boolean, (B,): which rows to reset before the step.
        - `reset_state`: the state to reset to, in the form of `state`. Default: the initial state.

        **Returns:** the output (B, p) and the new state, shaped like `state`.
        """
        before = self._by_cell(x, state)
        if resets is not None:
            check_resets(resets, tuple(x.shape[:1]), "(batch,)")
            starts = self._by_cell(x, reset_state)
            before = [reset(old, resets, new) for old, new in zip(before, starts, strict=True)]
        elif reset_state is not None:
            raise ValueError("reset_state needs resets, which say where it is used; otherwise give state")
        output, after = self.run(x, before)
        public = self._cells[0].public_state
        if not self._stacked:
            return output, public(after[0])
        return output, public(tuple([torch.stack(parts) for parts in zip(*after, strict=True)]))

    def _by_cell(self, x: Tensor, state: Any) -> list[State]:
        """Split the layer's state into the state of each cell."""
        if state is None:
            if not isinstance(x, Tensor) or x.dim() != 2:
                what = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
                raise ValueError(f"input must be a tensor (batch, input_size) if there is no state, got {what}")
            return [cell.initial_state(len(x)) for cell in self._cells]
        parts = (state,) if isinstance(state, Tensor) else tuple(state)
        names = self._cells[0].state_names
        if len(parts) != len(names):
            cell, several = self._cells[0].built_as.__name__, "s" if len(parts) > 1 else ""
            raise TypeError(f"state of {cell} must be {' and '.join(names)}, got {len(parts)} value{several}")
        if not self._stacked:
            return [parts]
        if any(len(part) != len(self._cells) for part in parts):
            shapes = ", ".join(str(tuple(part.shape)) for part in parts)
            raise ValueError(f"state must have shape ({len(self._cells)}, batch, hidden_size), got {shapes}")
        return list(zip(*(part.unbind() for part in parts), strict=True))

    def run(self, x: Tensor, states: Sequence[State]) -> tuple[Tensor, list[State]]:
        """Run one step from the state of each cell, a tuple of (B, n). Return the output and the new states."""
        after = []
        for cell, before in zip(self._cells, states, strict=True):
            step = cell.native_step
            done = None if step is None or cell._forward_pre_hooks else step(cell, x, before)
            x, last = self._call(cell, x, before) if done is None else done
            after.append(last)
        return x, after

    @torch.no_grad()
    def _call(self, cell: Any, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run a step by calling the cell, which also checks the input and the state."""
        training = cell.training
        try:
            output, last = cell.train(False)(x, cell.public_state(state))
        finally:
            cell.train(training)
        return output, last if isinstance(last, tuple) else (last,)
