"""The Residual Recurrent Unit for PyTorch, and the gated cells it is compared with."""

from importlib.metadata import version

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
    "register_cell",
]
