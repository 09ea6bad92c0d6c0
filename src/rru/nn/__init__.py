"""The layers people import, and their cells."""

from rru.nn.cell import Cell
from rru.nn.gru import GRU, GRUCell
from rru.nn.layer import Layer
from rru.nn.lstm import LSTM, LSTMCell
from rru.nn.mogrifier import MogrifierLSTM, MogrifierLSTMCell
from rru.nn.quantization import quantize
from rru.nn.registry import cell_names, layer_class, register_cell
from rru.nn.replacement import replace
from rru.nn.rru import RRU, RRUCell
from rru.nn.sizing import count_parameters, hidden_size_for
from rru.nn.verification import Verification, verify

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
    "Verification",
    "cell_names",
    "count_parameters",
    "hidden_size_for",
    "layer_class",
    "quantize",
    "register_cell",
    "replace",
    "verify",
]
