"""Argument checks. Each error names the argument, the value given and what is allowed."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from rru.scan.reference import State, autocast_dtype

PublicState = Tensor | tuple[Tensor, ...]
"""A state as users see it: one tensor (RRU, GRU), or a tuple if the cell has several (LSTM)."""


class SizedCell(Protocol):
    """The part of a cell that the checks of inputs and states read."""

    @property
    def input_size(self) -> int: ...
    @property
    def state_names(self) -> tuple[str, ...]: ...
    @property
    def built_as(self) -> type: ...
    def some_weight(self) -> Tensor: ...


def positive(name: str, value: int) -> int:
    """Return `value` if it is an int of at least 1, else raise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {value!r} of type {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be positive, got {value}")
    return value


def flag(name: str, value: bool) -> bool:
    """Return `value` if it is a bool, else raise; truthy values are not accepted."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """Return `value` if it is one of the allowed strings, else raise."""
    if value not in allowed:
        raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, got {value!r}")
    return str(value)


def shape(name: str, tensor: Tensor, expected: tuple[int, ...], meaning: str) -> None:
    """Raise unless a tensor has exactly the expected shape. `meaning` names its dimensions for the error."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor of shape {meaning}, got {type(tensor).__name__}")
    if tensor.shape != expected:
        raise ValueError(f"{name} must have shape {expected} = {meaning}, got {tuple(tensor.shape)}")


def like_weights(name: str, tensor: Tensor, weight: Tensor) -> None:
    """Raise unless a tensor is on the device of the weights and has their dtype, or one that autocast accepts."""
    if tensor.device != weight.device:
        raise ValueError(f"{name} is on {tensor.device}, the weights on {weight.device}: move one of them with .to()")
    if tensor.dtype == weight.dtype and tensor.dtype == torch.float32:
        return  # valid with and without autocast
    allowed = [weight.dtype]
    if autocast_dtype(tensor.device.type) is not None:
        allowed = [torch.float32, torch.bfloat16, torch.float16]
    if tensor.dtype not in allowed:
        wanted = (
            f"{weight.dtype} as the weights are" if len(allowed) == 1 else "a 32-bit or 16-bit float under autocast"
        )
        raise TypeError(f"{name} must be {wanted}, got {tensor.dtype}")


def input_of(cell: SizedCell, input: Tensor, ranks: Mapping[int, str]) -> None:
    """Raise unless an input has one of the given ranks, `input_size` features, and the weights' dtype and device."""
    if not isinstance(input, Tensor):
        raise TypeError(f"input must be a tensor, got {type(input).__name__}")
    if input.dim() not in ranks:
        raise ValueError(f"input must be {' or '.join(ranks.values())}, got shape {tuple(input.shape)}")
    if input.shape[-1] != cell.input_size:
        raise ValueError(f"input must have input_size={cell.input_size} features, got {input.shape[-1]}")
    like_weights("input", input, cell.some_weight())


def whole_weight(layer: str, weight: Tensor, x: Tensor) -> None:
    """Raise if FSDP holds a weight in parts. It gathers the weights of modules that are called, and cells are not."""
    if type(weight).__name__ == "DTensor" != type(x).__name__:
        raise TypeError(
            f"the weights in {layer}.cells are sharded (DTensor): apply fully_shard to the {layer}, not to its cells"
        )


def state_of(
    cell: SizedCell, state: object, expected: tuple[int, ...], meaning: str, layer: str | None = None
) -> State:
    """Return the user's state as a tuple with one tensor per name in `state_names`, after checking their shapes.

    **Arguments:** `layer`: the name of the layer whose state it is. Default: it is the cell's own.
    """
    names = cell.state_names
    if len(names) == 1:
        if not isinstance(state, Tensor):
            owner = layer or cell.built_as.__name__
            hint = f": {owner} has one state h, not a pair (h, c)" * isinstance(state, tuple | list)
            raise TypeError(f"state must be a tensor, got {type(state).__name__}{hint}")
        parts: State = (state,)
    else:
        listed = f"({', '.join(names)})"
        if not isinstance(state, tuple | list):
            raise TypeError(f"state must be a tuple {listed} of tensors, got {type(state).__name__}")
        if len(state) != len(names):
            raise ValueError(f"state must be a tuple {listed}, got {len(state)} values")
        parts = tuple(state)
    weight = cell.some_weight()
    for name, part in zip(names, parts, strict=True):
        shape(f"state {name}", part, expected, meaning)
        like_weights(f"state {name}", part, weight)
    return parts


def one_state(state: PublicState | None, hx: PublicState | None) -> PublicState | None:
    """Return the state given as `state` or as `hx`; raise if both were given."""
    if hx is None:
        return state
    if state is not None:
        raise TypeError("state and hx are the same argument (hx is torch's name for it): give one of them")
    return hx


def refuse_torchs_weight(module: object, name: str, where: str) -> None:
    """Raise if `name` is a weight of torch's layers, which ours do not have."""
    if name.startswith(("weight_", "bias_")) or name in ("all_weights", "_all_weights"):
        raise AttributeError(
            f"{type(module).__name__} has no {name}: its weights are in {where}, in named_parameters()"
        )
