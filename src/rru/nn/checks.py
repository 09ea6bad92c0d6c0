"""Errors that name the argument, the value given and what would be right."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor


def positive(name: str, value: int) -> int:
    """A count of at least one."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {value!r} of type {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be positive, got {value}")
    return value


def non_negative(name: str, value: int) -> int:
    """A count that may be zero."""
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{name} must be 0 or more, got {value}")
    return value if type(value) is int else positive(name, value)


def flag(name: str, value: bool) -> bool:
    """Yes or no, and nothing that merely counts as one of them."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def real(name: str, value: float) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return float(value)


def rate(name: str, value: float) -> float:
    """A probability below one."""
    if not 0 <= real(name, value) < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value}")
    return float(value)


def choice(name: str, value: Any, allowed: Sequence[str], otherwise: str = "") -> str:
    """One of a few words."""
    if value not in allowed:
        raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}{otherwise}, got {value!r}")
    return str(value)


def shape(name: str, tensor: Tensor, expected: tuple[int, ...], meaning: str) -> None:
    """A tensor of exactly this shape; `meaning` says in words what its dimensions are."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor of shape {meaning}, got {type(tensor).__name__}")
    if tensor.shape != expected:
        raise ValueError(f"{name} must have shape {expected} = {meaning}, got {tuple(tensor.shape)}")
