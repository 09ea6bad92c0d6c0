"""`quantize`: a copy of a model whose rru layers have int8 weights, for streaming and inference on CPUs."""

import copy
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from rru import scan
from rru.nn import checks
from rru.nn.cell import Cell
from rru.nn.checks import PublicState
from rru.scan.native import quantized
from rru.scan.reference import ScanInputs, State
from rru.scan.weights import checked_weights

Model = TypeVar("Model", bound=nn.Module)


def quantize(model: Model) -> Model:
    """Return a copy of a model in which the cells of every rru layer have int8 weights.

    ```python
    model = rru.RRU(88, 1000).eval()
    small = rru.quantize(model)  # a quarter of the memory
    stream = rru.stream(small)
    ```

    A step with few sequences mostly reads weights, so it becomes about three times as fast. With more than about eight
    sequences the float model is faster. Each row of a weight matrix is rounded to 255 levels. Everything else in the
    model stays as it is. The copy is in evaluation mode and cannot be trained, compiled or exported: keep the float
    model for that.

    **Arguments:** `model`: a model that holds RRU, GRU or LSTM layers of rru with float32 weights on the CPU, or such a
    layer or cell itself.
    """
    copied = copy.deepcopy(model).eval()
    if isinstance(copied, Cell):
        return QuantizedCell(copied)  # type: ignore[return-value]
    count = 0
    for parent in list(copied.modules()):
        for name, child in parent._modules.items():
            if isinstance(child, Cell):
                parent._modules[name] = QuantizedCell(child)
                count += 1
    if not count:
        raise ValueError(f"the model must hold a layer of rru with float weights, got a {type(model).__name__}")
    return copied


class QuantizedCell(nn.Module):
    """A cell with int8 weights and no parameters, made by `quantize`. In a layer it stands in for the float cell."""

    quantized: ClassVar[bool] = True
    dropout = 0.0

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        name, weight = cell.built_as.__name__, cell.some_weight()
        if cell.native_step is None or not quantized.can_run(cell.kernel):
            raise TypeError(f"{name} cannot be quantized: RRUCell, GRUCell and LSTMCell can, with the native library")
        if weight.dtype != torch.float32 or not weight.is_cpu:
            raise TypeError(f"{name} must have float32 weights on the CPU, got {weight.dtype} on {weight.device}")
        self.input_size, self.hidden_size, self.output_size = cell.input_size, cell.hidden_size, cell.output_size
        self.state_names, self.kernel, self.built_as = cell.state_names, cell.kernel, cell.built_as
        self.options, self.native_options = cell.options, cell.native_step.options
        with torch.no_grad():
            weights = [weight.detach() for weight in checked_weights(cell, cell.weights())]
            if any(not weight.isfinite().all() for weight in weights):
                raise ValueError(f"{name} has infinite or NaN weights, which cannot be rounded to int8")
            matrices, others = quantized.matrices_of(str(cell.kernel), weights, self.native_options)
            self._count = len(matrices)
            for index, matrix in enumerate(matrices):
                for part, tensor in matrix._asdict().items():
                    self.register_buffer(f"{part}_{index}", tensor)
            for index, tensor in enumerate(others):
                self.register_buffer(f"other_{index}", tensor.clone())
            for part, tensor in zip(cell.state_names, cell.initial_state(1), strict=True):
                self.register_buffer(f"initial_{part}", tensor)  # (1, n)
        self.training = False

    def native_tensors(self) -> list[Tensor]:
        """Return the tensors that the native scan reads, in order."""
        return [tensor for name, tensor in self._buffers.items() if tensor is not None and name[:8] != "initial_"]

    def some_weight(self) -> Tensor:
        """Return a float tensor, to get device and dtype."""
        weight: Tensor = self._buffers["scales_0"]  # type: ignore[assignment]
        return weight

    def train(self, mode: bool = True) -> "QuantizedCell":
        """Raise if `mode` is true: int8 weights cannot be trained."""
        if mode:
            raise RuntimeError(
                f"a quantized {self.built_as.__name__} cannot be trained: train the float model and quantize it again"
            )
        return self

    def new_seed(self, device: torch.device) -> None:
        """Return None: there is no dropout."""

    def initial_state(self, batch: int) -> State:
        """Return the initial state of the float cell: a (B, n) tensor for each of `state_names`."""
        return tuple(getattr(self, f"initial_{part}").repeat(batch, 1) for part in self.state_names)

    def public_state(self, state: State) -> PublicState:
        """Return the state in the form users see."""
        return state[0] if len(self.state_names) == 1 else state

    def native_step(self, cell: object, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run one step on x (B, m), as `rru.scan.NativeStep` does for a float cell."""
        checks.input_of(self, x, {2: "(batch, input_size)"})
        before = checks.state_of(
            self, self.public_state(tuple(state)), (len(x), self.hidden_size), "(batch, hidden_size)"
        )
        outputs, last = quantized.scan(self, ScanInputs(x.unsqueeze(0), before))
        return outputs[0], last

    def forward(
        self, input: Tensor, state: PublicState | None = None, *, hx: PublicState | None = None
    ) -> tuple[Tensor, Any]:
        """Run one step; arguments and results are those of `Cell.forward`, with a batch."""
        state = checks.one_state(state, hx)
        checks.input_of(self, input, {2: "(batch, input_size)"})
        before = self.initial_state(len(input)) if state is None else (state if isinstance(state, tuple) else (state,))
        output, last = self.native_step(self, input, before)
        return output, self.public_state(last)

    def stepper(self) -> scan.Stepper:
        """Return a `rru.scan.Stepper`."""
        return scan.Stepper([self], stacked=False)

    def extra_repr(self) -> str:
        return f"{self.built_as.__name__} in int8, {self.options}"
