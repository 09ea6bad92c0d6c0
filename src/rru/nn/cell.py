"""What every cell shares: weights by name, checks, one step. What a cell computes is in its own file: see `rru.py`."""

import inspect
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from rru import scan
from rru.nn import checks
from rru.scan.dropout import dropout_seed
from rru.scan.operator import registered
from rru.scan.reference import State, autocast_dtype

PublicState = Tensor | tuple[Tensor, ...]
"""A state as users see it: a tensor where a cell has one (RRU, GRU), a tuple of them where it has more (LSTM)."""


_PLAIN = (Tensor, nn.Parameter)
_ONE_STEP = {1: "(input_size,)", 2: "(batch, input_size)"}


class Cell(nn.Module, ABC):
    """One step of a recurrence, and its weights.

    A subclass says what it computes in three parts: `project` is what needs no state and is done for all steps at once
    before the loop; `step` is what depends on the step before; `readout` is what no later step needs and is done for
    all steps at once after the loop. Its constructor keeps every argument as an attribute of the same name and ends
    with `allocate`, which makes the weights.

    **Shapes:** B = batch, m = `input_size`, n = `hidden_size`, p = `output_size`.
    """

    state_names: ClassVar[tuple[str, ...]] = ("h",)
    name: ClassVar[str | None] = None  # set by `register_cell`
    kernel: ClassVar[str | None] = None  # which native scan computes this very class; not inherited

    weight_shapes: dict[str, torch.Size]
    """The shape each weight must have, by name."""

    options: str
    """The constructor's arguments but `dropout`, as JSON: with `weights()`, all there is to know of the cell."""

    def __init__(
        self, input_size: int, hidden_size: int, output_size: int | None = None, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.built_as = type(self)  # torch's parametrizations put another class in its place
        self.input_size = checks.positive("input_size", input_size)
        self.hidden_size = checks.positive("hidden_size", hidden_size)
        self.output_size = hidden_size if output_size is None else checks.positive("output_size", output_size)
        self.dropout = dropout

    @property
    def dropout(self) -> float:
        """The share dropout drops while training; may be set at any time."""
        return self._dropout

    @dropout.setter
    def dropout(self, rate: float) -> None:
        self._dropout = checks.rate("dropout", rate)

    def allocate(
        self, shapes: Mapping[str, tuple[int, ...]], device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        """Makes a parameter of each name and shape, and gives them all their initial values."""
        for name, size in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(size, device=device, dtype=dtype)))
        self._weight_names = tuple(shapes)
        self.weight_shapes = {name: torch.Size(size) for name, size in shapes.items()}
        arguments = inspect.signature(type(self)).parameters
        self._option_names = tuple(name for name in arguments if name not in ("dropout", "device", "dtype"))
        self._describe()
        self.reset_parameters()

    def _describe(self) -> None:
        """Writes down the options as they are now."""
        options = {}
        for name in self._option_names:
            if not hasattr(self, name):
                raise TypeError(f"{type(self).__name__} must keep its argument {name!r} as an attribute of that name")
            options[name] = value = getattr(self, name)
            if not isinstance(value, str | int | float | None):
                raise TypeError(f"{type(self).__name__}: {name} must be a string or a number, got {value!r}")
        self.options = json.dumps(options)

    def __setattr__(self, name: str, value: Any) -> None:
        before: Any = self.__dict__.get(name)
        super().__setattr__(name, value)
        if name in self.__dict__.get("_option_names", ()):
            try:
                self._describe()
                self._check_weights_fit(name, before)
            except (TypeError, ValueError):
                super().__setattr__(name, before)
                self._describe()
                raise

    def _check_weights_fit(self, name: str, before: Any) -> None:
        """Raises unless a new cell of the present options would have weights of the same names and shapes."""
        arguments: dict[str, Any] = json.loads(self.options) | {"device": "meta"}
        if self.built_as(**arguments).weight_shapes != self.weight_shapes:
            raise ValueError(
                f"{name} of a {self.built_as.__name__} must stay {before!r}, got {getattr(self, name)!r}: it decides "
                "which weights there are; make a new one"
            )

    @abstractmethod
    def reset_parameters(self) -> None:
        """Gives all weights new initial values, from torch's generator."""

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """Before the loop, all steps at once: inputs (..., m) to (..., anything)."""

    @abstractmethod
    def step(self, projected: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
        """In the loop: one step's projected input (B, anything) and the state before it, to features and a new state.

        `keep` is dropout's mask, (B, `mask_size`), already divided by the share that is kept; None without dropout.
        """

    def readout(self, features: Tensor) -> Tensor:
        """After the loop, all steps at once: features (..., anything) to outputs (..., p)."""
        return features

    @property
    def mask_size(self) -> int:
        """How many features of a step dropout acts on."""
        return self.hidden_size

    def initial_state(self, batch: int) -> State:
        """The state before the first step where the user gives none: a (B, n) for each of `state_names`."""
        return tuple(self._like.new_zeros(batch, self.hidden_size) for _ in self.state_names)

    def forward(self, input: Tensor, state: PublicState | None = None) -> tuple[Tensor, Any]:
        """One step.

        **Arguments:**

        - `input`: (B, m), or (m,) for a single sequence.
        - `state`: (B, n), or (n,); for the LSTMs a pair (h, c) of these. Default: `initial_state`.

        **Returns:** the output, (B, p) or (p,), and the new state, in the form of `state`.
        """
        if not (self.training and self._dropout):
            again = scan.step_again(self, input, state)
            if again is not None:
                return again
        self.check_input(input, _ONE_STEP)
        if input.dim() == 1:
            parts = None if state is None else self.checked_state(state, (self.hidden_size,), "(hidden_size,)")
            batched = None if parts is None else self.public_state(tuple(part.unsqueeze(0) for part in parts))
            output, after = self.forward(input.unsqueeze(0), batched)
            return output[0], after[0] if isinstance(after, Tensor) else tuple(part[0] for part in after)
        batch = input.shape[0]
        if state is None:
            before = self.initial_state(batch)
        else:
            before = self.checked_state(state, (batch, self.hidden_size), "(batch, hidden_size)")
        seed = self.new_seed(input.device) if self.training else None
        output, after = scan.step(self, input, before, seed)
        return output, self.public_state(after)

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return self._like.dtype

    @property
    def _like(self) -> Tensor:
        """Some parameter, to make tensors like the weights without computing one that is parametrized."""
        own = next(iter(self._parameters.values()), None)  # as a rule, and faster
        return next(self.parameters()) if own is None else own

    def new_seed(self, device: torch.device) -> Tensor | None:
        """A seed for dropout's masks from torch's generator; None where there is no dropout to do."""
        return dropout_seed(device) if self.training and self.dropout > 0 else None

    def run_pre_hooks(self, *arguments: Any) -> None:
        """What torch does before a module is called, which a layer's cells never are: pruning makes weights there."""
        for key, hook in self._forward_pre_hooks.items():
            keywords: tuple[Any, ...] = ({},) if key in self._forward_pre_hooks_with_kwargs else ()
            hook(self, arguments, *keywords)

    def named_weights(self) -> dict[str, Tensor]:
        """The weights by name, in the order of `allocate`; each is read once, as parametrizations make them anew."""
        own: dict[str, Any] = self._parameters  # where torch would look last
        return {name: own[name] if name in own else getattr(self, name) for name in self._weight_names}

    def own_weights(self) -> dict[str, Tensor] | None:
        """The weights by name if all are plain tensors of the cell's own; None where anything else makes one."""
        own: dict[str, Any] = self._parameters
        plain = own.keys() == self.weight_shapes.keys() and all(type(weight) in _PLAIN for weight in own.values())
        return own if plain else None

    def weights(self) -> list[Tensor]:
        """The weights, in the order of `allocate`."""
        return list(self.named_weights().values())

    def bound(self, matrices: torch.dtype | None = None) -> "Cell":
        """This cell on its weights as they are now, for a whole scan; its matrices cast to the given type."""
        weights = self.named_weights()
        if matrices is not None:
            weights |= {name: weight.to(matrices) for name, weight in weights.items() if weight.dim() > 1}
        cell: Cell = object.__new__(self.built_as)
        cell.__dict__ |= self.__dict__ | {"_parameters": {}} | weights
        return cell

    @classmethod
    def from_weights(cls, weights: list[Tensor], options: str, dropout: float) -> Self:
        """The cell that these options and weights describe, with no parameters of its own."""
        arguments: dict[str, Any] = json.loads(options)
        cell = cls(**arguments | {"dropout": dropout, "device": "meta"})
        if cell.options != options:
            raise RuntimeError(f"{cls.__name__} must keep its arguments as they are; {options} became {cell.options}")
        cell.__dict__ |= {"_parameters": {}} | dict(zip(cell._weight_names, weights, strict=True))
        return cell

    def check_graph(self) -> None:
        """Raises unless a graph can make this cell again from its name, options and weights."""
        known = registered.get(self.name or "")
        if known is not self.built_as:
            raise RuntimeError(
                f"{self.built_as.__name__} must be registered (rru.register_cell) to be compiled or exported"
            )
        others = [name for name, _ in self.named_children() if name != "parametrizations"]
        others += [name for name, _ in self.named_buffers(recurse=False)]
        if others:
            raise RuntimeError(f"{self.built_as.__name__} holds more than its weights, which no graph knows: {others}")

    def check_input(self, input: Tensor, ranks: Mapping[int, str]) -> None:
        """Raises unless `input` has one of the given ranks, m features, and the weights' dtype and device."""
        if not isinstance(input, Tensor):
            raise TypeError(f"input must be a tensor, got {type(input).__name__}")
        if input.dim() not in ranks:
            raise ValueError(f"input must be {' or '.join(ranks.values())}, got shape {tuple(input.shape)}")
        if input.shape[-1] != self.input_size:
            raise ValueError(f"input must have input_size={self.input_size} features, got {input.shape[-1]}")
        if not self._is_like_weights(input):
            self._check_like_weights("input", input)

    def checked_state(self, state: PublicState, expected: tuple[int, ...], meaning: str) -> State:
        """The user's state as a tuple with a tensor for each of `state_names`, each of the expected shape."""
        names = self.state_names
        if not isinstance(state, Tensor if len(names) == 1 else tuple | list):
            wanted = "a tensor" if len(names) == 1 else f"a tuple ({', '.join(names)}) of tensors"
            raise TypeError(f"state must be {wanted}, got {type(state).__name__}")
        parts = (state,) if isinstance(state, Tensor) else tuple(state)
        if len(parts) != len(names):
            raise ValueError(f"state must be a tuple ({', '.join(names)}), got {len(parts)} values")
        for name, part in zip(names, parts, strict=True):
            if not (isinstance(part, Tensor) and part.shape == expected and self._is_like_weights(part)):
                checks.shape(f"state {name}", part, expected, meaning)
                self._check_like_weights(f"state {name}", part)
        return parts

    def public_state(self, state: State) -> PublicState:
        """The state as users see it."""
        return state[0] if len(self.state_names) == 1 else state

    def _is_like_weights(self, tensor: Tensor) -> bool:
        """Whether a tensor is what it is as a rule, which is right with autocast or without."""
        weight = self._like
        return tensor.dtype == weight.dtype == torch.float32 and tensor.is_cpu and weight.is_cpu

    def _check_like_weights(self, name: str, tensor: Tensor) -> None:
        weight = self._like
        if tensor.device != weight.device:
            raise ValueError(f"{name} is on {tensor.device}, the weights on {weight.device}: move one of them by .to()")
        allowed = [weight.dtype]
        if autocast_dtype(tensor.device.type) is not None:
            allowed = [torch.float32, torch.bfloat16, torch.float16]
        if tensor.dtype not in allowed:
            wanted = f"{weight.dtype} as the weights are" if len(allowed) == 1 else "of 32 or 16 bits under autocast"
            raise TypeError(f"{name} must be {wanted}, got {tensor.dtype}")

    def extra_repr(self) -> str:
        described = ", ".join(f"{name}={value!r}" for name, value in json.loads(self.options).items())
        return f"{described}, dropout={self.dropout}"


@torch.no_grad()
def glorot(*blocks: Tensor, fan_in: int, fan_out: int) -> None:
    """Fills the blocks of one joint matrix uniformly in +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    bound = math.sqrt(6 / (fan_in + fan_out))
    for block in blocks:
        block.uniform_(-bound, bound)
