"""Errors for bad input name the argument, the value given and what is allowed."""

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import rru
from rru import scan
from tests.variants import CELLS

every_cell = pytest.mark.parametrize("variant", CELLS, ids=str)

CONSTRUCTOR = [
    ({"input_size": 0}, ValueError, "input_size must be a whole number at least 1, got 0"),
    ({"hidden_size": -1}, ValueError, "hidden_size must be a whole number at least 1, got -1"),
    ({"hidden_size": 4.0}, TypeError, "hidden_size must be a whole number at least 1, got 4.0 of type float"),
    ({"hidden_size": True}, TypeError, "hidden_size must be a whole number at least 1, got True"),
    ({"num_layers": 0}, ValueError, "num_layers must be positive, got 0"),
    ({"dropout": -0.1}, ValueError, "dropout must be a number at least 0 and below 1, got -0.1"),
    ({"dropout": 1}, ValueError, "dropout must be a number at least 0 and below 1, got 1.0"),
    ({"dropout": float("nan")}, ValueError, "dropout must be a number at least 0 and below 1, got nan"),
    ({"dropout": "0.5"}, TypeError, "dropout must be a number at least 0 and below 1, got '0.5'"),
    ({"backend": "cuda"}, ValueError, "backend must be one of 'auto', 'reference', 'native', 'fused', got 'cuda'"),
]
RRU_CONSTRUCTOR = [
    ({"output_size": 0}, ValueError, "output_size must be a whole number at least 1, got 0"),
    ({"expansion": 0.05}, ValueError, "expansion must give at least one unit: .* is 0 for expansion=0.05"),
    ({"expansion": -2.0}, ValueError, "expansion must be a number above 0 and at most 10000, got -2.0"),
    ({"expansion": float("inf")}, ValueError, "expansion must be a number above 0 and at most 10000, got inf"),
    ({"relu_layers": 0}, ValueError, "relu_layers must be a whole number at least 1 and at most 1000, got 0"),
    ({"rezero": "matrix"}, ValueError, "rezero must be 'vector' or 'scalar', got 'matrix'"),
    ({"normalize": "no"}, TypeError, "normalize must be true or false, got 'no'"),
    (
        {"residual": 1.0},
        ValueError,
        "residual must be a number above 0 and below 1 or 'learned' or 'unscaled', got 1.0",
    ),
    ({"residual": "fixed"}, ValueError, "residual must be .* or 'learned' or 'unscaled', got 'fixed'"),
]


def build(layer_class, arguments):
    return layer_class(**{"input_size": 3, "hidden_size": 4} | arguments)


@every_cell
@pytest.mark.parametrize(("arguments", "error", "message"), CONSTRUCTOR)
def test_constructor(variant, arguments, error, message):
    with pytest.raises(error, match=message):
        build(variant.layer, arguments)


@pytest.mark.parametrize(("arguments", "error", "message"), RRU_CONSTRUCTOR)
def test_constructor_of_the_rru(arguments, error, message):
    with pytest.raises(error, match=message):
        build(rru.RRU, arguments)
    with pytest.raises(error, match=message):
        build(rru.RRUCell, arguments)


def test_constructors_of_the_gated_layers():
    with pytest.raises(ValueError, match="forget_bias must be a number, got inf"):
        rru.LSTM(3, 4, forget_bias=float("inf"))
    with pytest.raises(ValueError, match="rounds must be a whole number at least 0 and at most 1000, got -1"):
        rru.MogrifierLSTM(3, 4, rounds=-1)
    with pytest.raises(TypeError, match=r"rank must be a whole number at least 0, got 1\.5"):
        rru.MogrifierLSTM(3, 4, rank=1.5)
    with pytest.raises(
        TypeError, match=r"LSTM takes no argument 'forget_bais'; did you mean 'forget_bias'\? Known: input_size, "
    ):
        rru.LSTM(3, 4, forget_bais=1.0)


def test_missing_native_backend_is_an_error(monkeypatch):
    monkeypatch.setattr(scan, "BUILT", False)
    with pytest.raises(RuntimeError, match="backend 'native' is not part of this build; use 'auto' or 'reference'"):
        rru.RRU(3, 4, backend="native")
    rru.RRU(3, 4)(torch.randn(20, 2, 3))


def test_unsupported_native_calls_raise():
    with pytest.raises(
        RuntimeError, match="'native' cannot run this: native scans run on the CPU, the input is on meta"
    ):
        rru.RRU(3, 4, backend="native", device="meta")(torch.randn(5, 2, 3, device="meta"))


@every_cell
def test_input_of_a_layer(variant):
    layer = variant.layer(3, 4)
    with pytest.raises(ValueError, match=r"\(steps, input_size\) or \(steps, batch, input_size\), got shape \(3,\)"):
        layer(torch.zeros(3))
    layer.batch_first = True
    with pytest.raises(ValueError, match=r"or \(batch, steps, input_size\), got shape \(1, 1, 1, 3\)"):
        layer(torch.zeros(1, 1, 1, 3))
    with pytest.raises(ValueError, match="input must have input_size=3 features, got 5"):
        layer(torch.zeros(2, 7, 5))
    with pytest.raises(ValueError, match="input must have at least one step, got 0"):
        layer(torch.zeros(2, 0, 3))
    with pytest.raises(TypeError, match=r"input must be torch\.float32 as the weights are, got torch\.float64"):
        layer(torch.zeros(2, 7, 3).double())
    with pytest.raises(TypeError, match=r"input must be torch\.float32 as the weights are, got torch\.int64"):
        layer(torch.zeros(2, 7, 3).long())
    with pytest.raises(ValueError, match="input is on meta, the weights on cpu"):
        layer(torch.zeros(2, 7, 3, device="meta"))
    with pytest.raises(TypeError, match="input must be a tensor, got list"):
        layer([[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="input must have input_size=3 features, got 2"):
        layer(pack_sequence([torch.zeros(4, 2)]))


@every_cell
def test_input_of_a_cell(variant):
    cell = variant.layer(3, 4).cells[0]
    with pytest.raises(ValueError, match=r"\(input_size,\) or \(batch, input_size\), got shape \(1, 1, 3\)"):
        cell(torch.zeros(1, 1, 3))
    with pytest.raises(ValueError, match="input must have input_size=3 features, got 2"):
        cell(torch.zeros(5, 2))


@pytest.mark.parametrize("layer_class", [rru.RRU, rru.GRU])
def test_state_of_one_tensor(layer_class):
    layer = layer_class(3, 4, num_layers=2)
    x = torch.zeros(7, 5, 3)
    with pytest.raises(ValueError, match=r"state h must have shape \(2, 5, 4\) = .*, got \(2, 4, 5\)"):
        layer(x, torch.zeros(2, 4, 5))
    with pytest.raises(ValueError, match=r"state h must have shape \(2, 4\) = .*, got \(2, 1, 4\)"):
        layer(x[:, 0], torch.zeros(2, 1, 4))
    with pytest.raises(TypeError, match=r"state must be a tensor, got tuple: .* has one state h, not a pair \(h, c\)"):
        layer(x, (torch.zeros(2, 5, 4), torch.zeros(2, 5, 4)))
    with pytest.raises(TypeError, match=r"state h must be torch\.float32 as the weights are, got torch\.float64"):
        layer(x, torch.zeros(2, 5, 4).double())
    with pytest.raises(ValueError, match=r"state h must have shape \(5, 4\) = .*, got \(4, 4\)"):
        layer.cells[0](x[0], torch.zeros(4, 4))


@pytest.mark.parametrize("layer_class", [rru.LSTM, rru.MogrifierLSTM])
def test_state_of_a_pair(layer_class):
    layer = layer_class(3, 4)
    x, h = torch.zeros(7, 5, 3), torch.zeros(1, 5, 4)
    with pytest.raises(TypeError, match=r"state must be a tuple \(h, c\) of tensors, got Tensor"):
        layer(x, h)
    with pytest.raises(ValueError, match=r"state must be a tuple \(h, c\), got 3 values"):
        layer(x, (h, h, h))
    with pytest.raises(ValueError, match=r"state c must have shape \(1, 5, 4\) = .*, got \(1, 5, 3\)"):
        layer(x, (h, h[..., :3]))
    with pytest.raises(TypeError, match="state c must be a tensor"):
        layer(x, (h, None))
    with pytest.raises(TypeError, match=r"state must be a tuple \(h, c\) of tensors, got int"):
        layer(x, 5)


@every_cell
def test_lengths(variant):
    layer = variant.layer(3, 4)
    x = torch.zeros(7, 2, 3)
    with pytest.raises(ValueError, match="lengths must be from 1 to 7, the steps of the input; got 0"):
        layer(x, lengths=torch.tensor([0, 7]))
    with pytest.raises(ValueError, match="lengths must be from 1 to 7, the steps of the input; got 8"):
        layer(x, lengths=torch.tensor([1, 8]))
    with pytest.raises(ValueError, match=r"lengths must have shape \(2,\) = \(batch,\), got \(3,\)"):
        layer(x, lengths=torch.tensor([1, 7, 7]))
    with pytest.raises(TypeError, match=r"lengths must be integers, got torch\.float32"):
        layer(x, lengths=torch.tensor([1.0, 7.0]))
    with pytest.raises(TypeError, match=r"lengths must be integers, got torch\.bool"):
        layer(x, lengths=torch.tensor([True, True]))
    with pytest.raises(ValueError, match="lengths must not be given with a PackedSequence"):
        layer(pack_sequence([x[:, 0]]), lengths=torch.tensor([7]))


def test_backend_set_afterwards():
    layer = rru.RRU(3, 4)
    layer.backend = "fast"
    with pytest.raises(ValueError, match="backend must be one of 'auto', 'reference', 'native', 'fused', got 'fast'"):
        layer(torch.randn(5, 2, 3))
