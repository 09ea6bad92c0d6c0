"""The layers people import, and their cells."""

from rru.nn.cell import Cell as Cell
from rru.nn.gru import GRU as GRU
from rru.nn.gru import GRUCell as GRUCell
from rru.nn.layer import Layer as Layer
from rru.nn.lstm import LSTM as LSTM
from rru.nn.lstm import LSTMCell as LSTMCell
from rru.nn.mogrifier import MogrifierLSTM as MogrifierLSTM
from rru.nn.mogrifier import MogrifierLSTMCell as MogrifierLSTMCell
from rru.nn.quantization import quantize as quantize
from rru.nn.registry import cell_names as cell_names
from rru.nn.registry import layer_class as layer_class
from rru.nn.registry import register_cell as register_cell
from rru.nn.replacement import replace as replace
from rru.nn.rru import RRU as RRU
from rru.nn.rru import RRUCell as RRUCell
from rru.nn.sizing import count_parameters as count_parameters
from rru.nn.sizing import hidden_size_for as hidden_size_for

__all__ = [name for name in dir() if name[0] != "_" and callable(globals()[name])]  # without the modules
