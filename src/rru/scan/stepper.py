"""Single steps without gradients: `NativeStep` for a cell, `Stepper` for a whole layer.

At batch size 1, Python overhead can exceed the cost of the step. So everything that does not change is prepared when
the cell is constructed, and a call only checks a few properties of each tensor. If anything is unusual, `NativeStep`
returns None and the caller takes the slower path, which handles every case and raises clear errors.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rru.scan import library
from rru.scan.library import BUILT, COMPUTED_IN, DTYPES, Function
from rru.scan.native import checked_weights, in_dtype, laid_out
from rru.scan.native_calls import scan_numbers
from rru.scan.native_cells import NATIVE_CELLS
from rru.scan.recording import PLAIN, is_recorded, transform
from rru.scan.reference import State

_WORTH_A_THREAD = 16_000_000  # weights times sequences; below this, starting a thread costs more than it saves


@functools.lru_cache(maxsize=1024)
def _function(
    kernel: str,
    dtype: torch.dtype,
    batch: int,
    sizes: tuple[int, int],
    options: Any,
    alone: bool,
    instruction_set: str,
) -> Function:
    numbers = scan_numbers(
        kernel, (1, batch, sizes[0]), sizes[1], options, reverse=False, save=False, has_lengths=False
    )
    return Function(f"{kernel}_forward", dtype, numbers, alone=alone)


class NativeStep:
    """Runs one step of a cell in the native library, without gradients. Each cell with a kernel has one."""

    def __init__(self, cell: Any) -> None:
        self.kernel = cell.kernel
        self.sizes = cell.input_size, cell.hidden_size, cell.output_size
        self.states = len(cell.state_names)
        self.names, shapes = tuple(cell.weight_shapes), cell.weight_shapes.values()
        self.size = sum(shape.numel() for shape in shapes)
        self.usual = {dtype: [(shape, dtype, True, True, True) for shape in shapes] for dtype in DTYPES}
        self.options = NATIVE_CELLS[self.kernel].options(cell)
        self.own = operator.itemgetter(*self.names)

    def __call__(self, cell: Any, x: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, State] | None:
        """Runs a step without dropout on x (B, m) and the state, (B, n) each.

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
            weights = self.own(cell._parameters)
        except KeyError:  # a weight is parametrized or pruned
            return None
        looks = [
            (weight.shape, weight.dtype, weight.is_cpu, weight.is_contiguous(), type(weight) in PLAIN)
            for weight in weights
        ]
        if looks != self.usual[dtype]:  # the library gets addresses, and cannot check shapes or dtypes
            return None
        if self.kernel == "lstm":  # the library expects the forget bias inside the bias
            weights = NATIVE_CELLS["lstm"].weights(cell, dict(zip(self.names, weights, strict=True)))
        return self.run(weights, x, state)

    def run(
        self,
        weights: Sequence[Tensor],
        x: Tensor,
        state: Sequence[Tensor],
        seed: Tensor | None = None,
        dropout: float = 0.0,
    ) -> tuple[Tensor, State]:
        """Calls the library. The tensors must already be contiguous CPU tensors of one dtype and the right shapes."""
        batch, dtype = len(x), x.dtype
        outputs, last = x.new_empty(batch, self.sizes[2]), tuple([torch.empty_like(part) for part in state])
        alone = batch * self.size < _WORTH_A_THREAD
        function = _function(self.kernel, dtype, batch, self.sizes[:2], self.options, alone, library.instruction_set)
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


def step(cell: Any, weights: dict[str, Tensor], x: Tensor, state: State, seed: Tensor | None) -> tuple[Tensor, State]:
    """Runs one native step on x (B, m), without gradients or tracing. Returns outputs (B, p) and the new state."""
    dtype = cell.some_weight().dtype
    x, *before = (laid_out(tensor, COMPUTED_IN[dtype]) for tensor in (x, *state))
    checked = checked_weights(cell, weights)
    outputs, last = cell.native_step.run(checked, x, before, seed, cell.dropout)
    return in_dtype(dtype, NATIVE_CELLS[cell.kernel], outputs, last)


class Stepper:
    """Runs a layer or a cell one step at a time, without gradients and dropout, for streaming.

    ```python
    stepper = layer.stepper()  # or cell.stepper()
    output, state = stepper(x)  # (B, m) to (B, p) and the new state of every cell
    output, state = stepper(x, state)
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

    def __call__(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Runs one step.

        **Arguments:**

        - `x`: (B, m).
        - `state`: (layers, B, n) for a layer, (B, n) for a cell; for the LSTMs a pair (h, c) of these. Default: the
          initial state.

        **Returns:** the output (B, p) and the new state, shaped like `state`.
        """
        output, after = self.run(x, self._by_cell(x, state))
        public = self._cells[0].public_state
        if not self._stacked:
            return output, public(after[0])
        return output, public(tuple([torch.stack(parts) for parts in zip(*after, strict=True)]))

    def _by_cell(self, x: Tensor, state: Any) -> list[State]:
        """Splits the layer's state into the state of each cell."""
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
        """Runs one step from the state of each cell, a tuple of (B, n). Returns the output and the new states."""
        after = []
        for cell, before in zip(self._cells, states, strict=True):
            step = cell.native_step
            done = None if step is None or cell._forward_pre_hooks else step(cell, x, before)
            x, last = self._call(cell, x, before) if done is None else done
            after.append(last)
        return x, after

    @torch.no_grad()
    def _call(self, cell: Any, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Runs a step by calling the cell, which also checks the input and the state."""
        training = cell.training
        try:
            output, last = cell.train(False)(x, cell.public_state(state))
        finally:
            cell.train(training)
        return output, last if isinstance(last, tuple) else (last,)
