"""What every cell shares: weights by name, checks, one step. What a cell computes is in its own file: see `rru.py`."""

import inspect
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from rru.nn import checks
from rru.scan.dropout import dropout_mask, dropout_seed
from rru.scan.reference import State

PublicState = Tensor | tuple[Tensor, ...]
"""A state as users see it: a tensor where a cell has one (RRU, GRU), a tuple of them where it has more (LSTM)."""


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

    options: str
    """The constructor's arguments but `dropout`, as JSON: with `weights()`, all there is to know of the cell."""

    def __init__(
        self, input_size: int, hidden_size: int, output_size: int | None = None, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.input_size = checks.positive("input_size", input_size)
        self.hidden_size = checks.positive("hidden_size", hidden_size)
        self.output_size = hidden_size if output_size is None else checks.positive("output_size", output_size)
        self.dropout = checks.rate("dropout", dropout)

    def allocate(
        self, shapes: Mapping[str, tuple[int, ...]], device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        """Makes a parameter of each name and shape, and gives them all their initial values."""
        for name, size in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(size, device=device, dtype=dtype)))
        self._weight_names = tuple(shapes)
        arguments = [name for name in inspect.signature(type(self)).parameters if name not in _NOT_OPTIONS]
        self.options = json.dumps({name: getattr(self, name) for name in arguments})
        self.reset_parameters()

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
        weight = self.weights()[0]
        return tuple(weight.new_zeros(batch, self.hidden_size) for _ in self.state_names)

    def forward(self, input: Tensor, state: PublicState | None = None) -> tuple[Tensor, Any]:
        """One step.

        **Arguments:**

        - `input`: (B, m), or (m,) for a single sequence.
        - `state`: (B, n), or (n,); for the LSTMs a pair (h, c) of these. Default: `initial_state`.

        **Returns:** the output, (B, p) or (p,), and the new state, in the form of `state`.
        """
        self.check_input(input, ranks={1: "(input_size,)", 2: "(batch, input_size)"})
        lead = input.shape[:-1]  # (B,) or ()
        x = input.reshape(-1, self.input_size)  # (B, m)
        if state is None:
            before = self.initial_state(len(x))
        else:
            parts = self.checked_state(state, (*lead, self.hidden_size), "([batch,] hidden_size)")
            before = tuple(part.reshape(-1, self.hidden_size) for part in parts)
        seed = self.new_seed(x.device)
        keep = None if seed is None else dropout_mask(seed, 0, len(x), self.mask_size, self.dropout, x.dtype)
        features, after = self.step(self.project(x), before, keep)
        output = self.readout(features).reshape(*lead, self.output_size)
        return output, self.public_state(tuple(part.reshape(*lead, self.hidden_size) for part in after))

    def new_seed(self, device: torch.device) -> Tensor | None:
        """A seed for dropout's masks from torch's generator; None where there is no dropout to do."""
        return dropout_seed(device) if self.training and self.dropout > 0 else None

    def weights(self) -> list[Tensor]:
        """The weights, in the order of `allocate`."""
        return [getattr(self, name) for name in self._weight_names]

    @classmethod
    def from_weights(cls, weights: list[Tensor], **options: Any) -> Self:
        """A cell that computes with the given tensors and has no parameters of its own."""
        cell = cls(**options | {"device": "meta"})
        for name, weight in zip(cell._weight_names, weights, strict=True):
            delattr(cell, name)
            setattr(cell, name, weight)
        return cell

    def check_input(self, input: Tensor, ranks: Mapping[int, str]) -> None:
        """Raises unless `input` has one of the given ranks, m features, and the weights' dtype and device."""
        if not isinstance(input, Tensor):
            raise TypeError(f"input must be a tensor, got {type(input).__name__}")
        if input.dim() not in ranks:
            raise ValueError(f"input must be {' or '.join(ranks.values())}, got shape {tuple(input.shape)}")
        if input.shape[-1] != self.input_size:
            raise ValueError(f"input must have input_size={self.input_size} features, got {input.shape[-1]}")
        self._check_like_weights("input", input)

    def checked_state(self, state: PublicState, expected: tuple[int, ...], meaning: str) -> State:
        """The user's state as a tuple with a tensor for each of `state_names`, each of the expected shape."""
        names = self.state_names
        if isinstance(state, Tensor) != (len(names) == 1):
            wanted = "a tensor" if len(names) == 1 else f"a tuple ({', '.join(names)}) of tensors"
            raise TypeError(f"state must be {wanted}, got {type(state).__name__}")
        parts = (state,) if isinstance(state, Tensor) else tuple(state)
        if len(parts) != len(names):
            raise ValueError(f"state must be a tuple ({', '.join(names)}), got {len(parts)} values")
        for name, part in zip(names, parts, strict=True):
            checks.shape(f"state {name}", part, expected, meaning)
            self._check_like_weights(f"state {name}", part)
        return parts

    def public_state(self, state: State) -> PublicState:
        """The state as users see it."""
        return state[0] if len(self.state_names) == 1 else state

    def _check_like_weights(self, name: str, tensor: Tensor) -> None:
        weight = self.weights()[0]
        if tensor.device != weight.device:
            raise ValueError(f"{name} is on {tensor.device}, the weights on {weight.device}: move one of them by .to()")
        if tensor.dtype != weight.dtype and not torch.is_autocast_enabled(tensor.device.type):
            raise TypeError(f"{name} must be {weight.dtype} as the weights are, got {tensor.dtype}")

    def extra_repr(self) -> str:
        described = ", ".join(f"{name}={value!r}" for name, value in json.loads(self.options).items())
        return f"{described}, dropout={self.dropout}"


_NOT_OPTIONS = ("dropout", "device", "dtype")


@torch.no_grad()
def glorot(*blocks: Tensor, fan_in: int, fan_out: int) -> None:
    """Fills the blocks of one joint matrix uniformly in +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    bound = math.sqrt(6 / (fan_in + fan_out))
    for block in blocks:
        block.uniform_(-bound, bound)
