"""The base class of all cells: options, weights and a single step. Each cell has its own file, such as `rru.py`."""

import inspect
import json
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn, Self, TypedDict

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from rru import scan
from rru.nn import checks, tracing
from rru.nn.checks import PublicState
from rru.nn.options import Declared, Option, declared, parameters_of
from rru.nn.signatures import describe, known_arguments
from rru.scan.dropout import dropout_seed
from rru.scan.reference import State

_ONE_STEP = {1: "(input_size,)", 2: "(batch, input_size)"}


class CellOptions(TypedDict, total=False):
    """Keyword arguments that every cell takes."""

    dropout: float
    device: torch.device | str | None
    dtype: torch.dtype | None


def _option(name: str) -> property:
    """Return a read-only property for one of the cell's options."""

    def get(cell: "Cell") -> object:
        return cell._options[name]

    def refuse(cell: "Cell", value: object) -> None:
        raise AttributeError(
            f"{name} of a {cell.built_as.__name__} is fixed at {cell._options[name]!r}: create a new cell to change it"
        )

    return property(get, refuse)


class Cell(nn.Module, ABC):
    """Base class for one step of a recurrence and its weights.

    A subclass splits its equations into three methods. `project` does not depend on the state and runs once, for all
    steps, before the loop. `step` depends on the previous step and runs inside the loop. `readout` does not affect
    later steps and runs once, for all steps, after the loop. `shapes` lists the weights. The subclass's constructor
    declares its options and passes all of them to this constructor, which checks them and makes each a read-only
    attribute.

    **Shapes:** B = batch, m = `input_size`, n = `hidden_size`, p = `output_size`.
    """

    input_size: int
    hidden_size: int
    state_names: ClassVar[tuple[str, ...]] = ("h",)
    name: ClassVar[str | None] = None  # set by `register_cell`
    kernel: ClassVar[str | None] = None  # name of the native scan; applies to this class only, not to subclasses
    quantized: ClassVar[bool] = False  # see `rru.quantize`
    arguments: ClassVar[dict[str, Declared]]  # constructor arguments by name

    options: str
    """The options as JSON. Together with `weights()` and `dropout` they define the cell completely."""

    weight_shapes: dict[str, torch.Size]
    """The name and shape of each weight, in order."""

    def __init__(
        self,
        input_size: Annotated[int, Option("m, features of an input step", at_least=1)],
        hidden_size: Annotated[int, Option("n, features of the state", at_least=1)],
        *,
        dropout: Annotated[
            float,
            Option(
                "recurrent dropout: share of features dropped in each step during training; a new mask at every step",
                at_least=0,
                below=1,
            ),
        ] = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.built_as = type(self)  # torch's parametrizations replace the class of a module
        self.dropout = dropout
        options = {"input_size": input_size, "hidden_size": hidden_size, **options}
        self._options = {"output_size": hidden_size} | self._checked(options)
        named = [name for name in inspect.signature(type(self)).parameters if name in options and self._computes(name)]
        self.options = json.dumps({name: self._options[name] for name in named})
        self._derive()
        for name, size in self.weight_shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(size, device=device, dtype=dtype)))
        self.reset_parameters()

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        cls.arguments = cls.arguments | declared(cls)
        for name in cls.arguments:
            if not hasattr(cls, name):
                setattr(cls, name, _option(name))
        describe(cls, parameters_of(cls).values(), cls.arguments)

    def _computes(self, option: str) -> bool:
        return option not in self.arguments or self.arguments[option].option.computes

    def _derive(self) -> None:
        """Set the attributes that follow from the options."""
        self.weight_shapes = {name: torch.Size(size) for name, size in self.shapes().items()}
        has_kernel = vars(self.built_as).get("kernel") is not None
        self.native_step = scan.NativeStep(self) if has_kernel else None

    def __getstate__(self) -> dict[str, Any]:
        """Return what to pickle: only values of public and built-in classes, so that a file needs no others."""
        return {name: value for name, value in vars(self).items() if name not in ("weight_shapes", "native_step")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._derive()

    def _checked(self, options: dict[str, object]) -> dict[str, object]:
        """Return the options after checking each against its declaration in this class or a base class."""
        cls, signature = type(self), inspect.signature(type(self)).parameters
        options = known_arguments(cls, options, dict.fromkeys([*signature, *self.arguments]))
        for name in signature:
            if name not in options and name not in ("dropout", "device", "dtype"):
                raise TypeError(f"{cls.__name__} must pass its argument {name!r} to super().__init__()")
            if name in options and name not in self.arguments:
                raise TypeError(f"{cls.__name__}: {name} must be a string or a number, got {options[name]!r}")
        return {name: self.arguments[name].check(value) for name, value in options.items()}

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return an option or a weight."""

    output_size = _option("output_size")

    @property
    def dropout(self) -> float:
        """The dropout rate during training; can be changed at any time."""
        return self._dropout

    @dropout.setter
    def dropout(self, rate: float) -> None:
        self._dropout: float = Cell.arguments["dropout"].check(rate)

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of each weight. The options are already set as attributes when this is called."""

    @abstractmethod
    def reset_parameters(self) -> None:
        """Initialize all weights, using torch's random number generator."""

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """Map the inputs of all steps (..., m) to (..., any size). The scan calls it once, before the loop."""

    @abstractmethod
    def step(self, projected: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
        """Compute features and the new state from one step's projected input (B, any size) and the previous state.

        `keep` is the dropout mask (B, `mask_size`), already divided by the keep probability; None without dropout.
        """

    def readout(self, features: Tensor) -> Tensor:
        """Map the features of all steps (..., any size) to outputs (..., p). The scan calls it once, after the loop."""
        return features

    @property
    def mask_size(self) -> int:
        """The number of features per step that dropout acts on."""
        return self.hidden_size

    def initial_state(self, batch: int) -> State:
        """Return the default initial state: a (B, n) tensor for each of `state_names`."""
        return tuple(self.some_weight().new_zeros(batch, self.hidden_size) for _ in self.state_names)

    def forward(
        self, input: Tensor, state: PublicState | None = None, *, hx: PublicState | None = None
    ) -> tuple[Tensor, Any]:
        """Run one step.

        **Arguments:**

        - `input`: (B, m), or (m,) for a single sequence.
        - `state`: (B, n), or (n,); for the LSTMs a pair (h, c) of these. Default: `initial_state`.
        - `hx`: torch's name for `state`.

        **Returns:** the output, (B, p) or (p,), and the new state, shaped like `state`.
        """
        if isinstance(input, Proxy):
            return tracing.fx_node(self, input, state=state, hx=hx)
        state = state if hx is None else checks.one_state(state, hx)
        if self.native_step is not None and state is not None and not torch.is_grad_enabled() and not self._drops():
            results = self.native_step(self, input, (state,) if isinstance(state, Tensor) else state)
            if results is not None:
                return results[0], self.public_state(results[1])
        checks.input_of(self, input, _ONE_STEP)
        if input.dim() == 1:
            parts = None if state is None else checks.state_of(self, state, (self.hidden_size,), "(hidden_size,)")
            batched = None if parts is None else self.public_state(tuple(part.unsqueeze(0) for part in parts))
            output, after = self.forward(input.unsqueeze(0), batched)
            return output[0], after[0] if isinstance(after, Tensor) else tuple(part[0] for part in after)
        batch = input.shape[0]
        if state is None:
            before = self.initial_state(batch)
        else:
            before = checks.state_of(self, state, (batch, self.hidden_size), "(batch, hidden_size)")
        output, after = scan.step(self, input, before, self.new_seed(input.device))
        return output, self.public_state(after)

    def stepper(self) -> scan.Stepper:
        """Return a `rru.scan.Stepper`, the fastest way to run this cell step by step without gradients."""
        return scan.Stepper([self], stacked=False)

    def new_seed(self, device: torch.device) -> Tensor | None:
        """Draw a seed for the dropout masks from torch's generator; return None if dropout is off.

        It is always off in a graph for ONNX, which runs without training.
        """
        return dropout_seed(device) if self._drops() and not scan.onnx.is_exporting() else None

    def _drops(self) -> bool:
        return self.training and self._dropout > 0

    def public_state(self, state: State) -> PublicState:
        """Return the state in the form users see."""
        return state[0] if len(self.state_names) == 1 else state

    def weights(self) -> dict[str, Tensor]:
        """Return the weights by name, in order. Read each once: a parametrization recomputes it on every read."""
        stored: dict[str, Any] = self._parameters  # faster than getattr, which tries this dict last
        return {name: stored[name] if name in stored else getattr(self, name) for name in self.weight_shapes}

    def some_weight(self) -> Tensor:
        """Return any parameter, to get device and dtype without computing a parametrized weight."""
        weight = next(iter(self._parameters.values()), None)
        if weight is None:
            weight = next(self.parameters(), None)
        if weight is None:  # replicas of nn.DataParallel have no parameters
            weight = getattr(self, next(iter(self.weight_shapes)))
        return weight

    def bound(self, matrices: torch.dtype | None = None) -> "Cell":
        """Return a copy of this cell that holds the current weights, for a whole scan.

        **Arguments:** `matrices`: the dtype to cast the weight matrices to. Default: no cast.
        """
        weights = self.weights()
        if matrices is not None:
            weights |= {name: weight.to(matrices) for name, weight in weights.items() if weight.dim() > 1}
        return self.with_weights(weights, self._dropout)

    def with_weights(self, weights: dict[str, Tensor], dropout: float) -> "Cell":
        """Return a copy of this cell that holds these weights, as plain tensors, and has this dropout rate."""
        cell: Cell = object.__new__(self.built_as)
        cell.__dict__ |= self.__dict__ | {"_parameters": {}, "_dropout": dropout} | weights
        return cell

    @classmethod
    def from_weights(cls, weights: list[Tensor], options: str, dropout: float) -> Self:
        """Build a cell from its options (JSON) and weights. The weights are plain tensors, not parameters."""
        cell = cls(**json.loads(options), device="meta")
        if cell.options != options:
            raise RuntimeError(f"{cls.__name__} must keep its arguments as they are; {options} became {cell.options}")
        cell.dropout = dropout
        cell.__dict__ |= {"_parameters": {}} | dict(zip(cell.weight_shapes, weights, strict=True))
        return cell

    def __prepare_scriptable__(self) -> NoReturn:  # called by torch.jit.script
        tracing.refuse_scripting(self)

    def extra_repr(self) -> str:
        described = ", ".join(f"{name}={value!r}" for name, value in json.loads(self.options).items())
        return f"{described}, dropout={self.dropout}"


Cell.arguments = declared(Cell)


@torch.no_grad()
def glorot(*blocks: Tensor, fan_in: int, fan_out: int) -> None:
    """Fill blocks of one matrix uniformly from +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    bound = math.sqrt(6 / (fan_in + fan_out))
    for block in blocks:
        block.uniform_(-bound, bound)
