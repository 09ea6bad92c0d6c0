"""The Residual Recurrent Unit for PyTorch, and the gated cells it is compared with."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from rru.nn import (
    GRU,
    LSTM,
    RRU,
    Cell,
    GRUCell,
    Layer,
    LSTMCell,
    MogrifierLSTM,
    MogrifierLSTMCell,
    RRUCell,
    cell_names,
    count_parameters,
    hidden_size_for,
    layer_class,
    register_cell,
)

if TYPE_CHECKING:
    from rru.generate import load, stream

__version__ = version("rru")

__all__ = [
    "GRU",
    "LSTM",
    "RRU",
    "Cell",
    "GRUCell",
    "LSTMCell",
    "Layer",
    "MogrifierLSTM",
    "MogrifierLSTMCell",
    "RRUCell",
    "cell_names",
    "count_parameters",
    "hidden_size_for",
    "layer_class",
    "load",
    "register_cell",
    "stream",
]


def __getattr__(name: str) -> Any:
    if name not in ("load", "stream"):
        raise AttributeError(f"module 'rru' has no attribute {name!r}")
    from rru import generate  # only now: the layers need none of what it imports

    return getattr(generate, name)
