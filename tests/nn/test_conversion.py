"""Converted layers match torch's: outputs and gradients, rru.LSTM and rru.GRU, both ways."""

import pytest
import torch
from torch import nn

import rru
from tests.variants import assert_same, randomize, state_parts

PAIRS = [
    pytest.param(rru.LSTM, nn.LSTM, {"forget_bias": 0.7}, id="lstm"),
    pytest.param(rru.GRU, nn.GRU, {"reset_after": True}, id="gru"),
]
SHAPES = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 3, "batch_first": True, "dtype": torch.float64},
]


def outputs_and_gradients(module, x):
    x = x.detach().requires_grad_()
    outputs, state = module(x)
    (outputs.sin().sum() + sum(part.cos().sum() for part in state_parts(state))).backward()
    return outputs, state, x.grad


@pytest.mark.parametrize(("ours", "theirs", "options"), PAIRS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_from_torch(ours, theirs, options, shape, bias):
    module = randomize(theirs(3, 5, bias=bias, **shape))
    layer = ours.from_torch(module)
    check_equal(layer, module)


@pytest.mark.parametrize(("ours", "theirs", "options"), PAIRS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_to_torch(ours, theirs, options, shape):
    layer = randomize(ours(3, 5, **options, **shape))
    module = layer.to_torch()
    assert type(module) is theirs
    check_equal(layer, module)


def check_equal(layer, module):
    tolerance = 1e-10 if next(layer.parameters()).dtype == torch.float64 else 1e-5
    x = torch.randn(6, 4, 3, dtype=next(layer.parameters()).dtype)
    ours, ours_state, ours_gradient = outputs_and_gradients(layer, x)
    theirs, theirs_state, theirs_gradient = outputs_and_gradients(module, x)
    assert_same(ours, theirs, tolerance)
    assert_same(ours_state, theirs_state, tolerance)
    assert_same(ours_gradient, theirs_gradient, tolerance)
    for index, cell in enumerate(layer.cells):
        depth, direction = divmod(index, layer.num_directions)
        suffix = f"l{depth}" + ("_reverse" if direction else "")
        assert_same(cell.weight_x.grad, getattr(module, f"weight_ih_{suffix}").grad, tolerance)
        assert_same(cell.weight_h.grad, getattr(module, f"weight_hh_{suffix}").grad, tolerance)
        assert cell.bias.requires_grad == module.bias
        if module.bias and hasattr(cell, "bias_h"):
            inner = getattr(module, f"bias_hh_{suffix}").grad[2 * layer.hidden_size :]
            assert_same(cell.bias_h.grad, inner, tolerance)
        if module.bias:
            assert_same(cell.bias.grad, getattr(module, f"bias_ih_{suffix}").grad, tolerance)


@pytest.mark.parametrize(("ours", "theirs", "options"), PAIRS)
def test_round_trip_preserves_weights(ours, theirs, options):
    module = randomize(theirs(3, 5, num_layers=2, bidirectional=True)).eval()
    back = ours.from_torch(module).to_torch()
    assert not back.training
    x = torch.randn(6, 4, 3)
    assert_same(back(x)[0], module(x)[0], 1e-6)


def test_unsupported_conversions_raise():
    with pytest.raises(ValueError, match=r"dropout must be 0 to convert, got 0\.3"):
        rru.LSTM.from_torch(nn.LSTM(3, 4, num_layers=2, dropout=0.3))
    with pytest.raises(ValueError, match=r"dropout must be 0 to convert, got 0\.3"):
        rru.LSTM(3, 4, dropout=0.3).to_torch()
    with pytest.raises(ValueError, match="proj_size must be 0 to convert, got 2"):
        rru.LSTM.from_torch(nn.LSTM(3, 4, proj_size=2))
    with pytest.raises(TypeError, match=r"module must be a torch\.nn\.modules\.rnn\.LSTM, got GRU"):
        rru.LSTM.from_torch(nn.GRU(3, 4))
    with pytest.raises(ValueError, match="reset_after must be True to convert"):
        rru.GRU(3, 4).to_torch()


def test_frozen_weights_stay_frozen():
    module = nn.LSTM(3, 4)
    module.weight_hh_l0.requires_grad_(False)
    layer = rru.LSTM.from_torch(module)
    assert [p.requires_grad for p in (layer.cells[0].weight_x, layer.cells[0].weight_h)] == [True, False]
    assert [p.requires_grad for p in layer.to_torch().parameters()] == [True, False, True, True]
    assert next(rru.GRU.from_torch(nn.GRU(3, 4, device="meta")).parameters()).is_meta
