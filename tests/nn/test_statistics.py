"""Properties that hold on average, or over many steps."""

import pytest
import torch

import rru
from tests.variants import CELLS, state_parts

every_cell = pytest.mark.parametrize("variant", CELLS, ids=str)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_dropout_keeps_the_expected_output_of_the_rru(rate):
    # Z = 0: outputs are linear in each step's mask
    layer = rru.RRU(3, 4, dropout=rate, init="paper", dtype=torch.float64)
    x = torch.randn(5, 1, 3).double()
    many = 20_000
    with torch.no_grad():
        outputs = layer(x.expand(-1, many, -1))[0]
        expected = layer.eval()(x)[0]
    error = outputs.std(dim=1, keepdim=True) / many**0.5
    assert (outputs.mean(dim=1, keepdim=True) - expected).abs().div(error).max() < 5  # standard errors


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("cell_class", [rru.GRUCell, rru.LSTMCell, rru.MogrifierLSTMCell])
def test_dropout_keeps_the_expected_state_of_the_gated_cells(cell_class, rate):
    cell = cell_class(3, 4, dropout=rate, dtype=torch.float64)  # the memory is linear in one step's mask
    x, many = torch.randn(1, 3).double(), 20_000
    with torch.no_grad():
        memory = state_parts(cell(x.expand(many, -1))[1])[-1]
        expected = state_parts(cell.eval()(x)[1])[-1]
    error = memory.std(dim=0) / many**0.5
    assert (memory.mean(dim=0) - expected).abs().div(error).max() < 5


@every_cell
def test_five_thousand_steps_keep_states_and_gradients_finite(variant):
    layer = variant.layer(3, 16)
    x = torch.randn(5000, 2, 3, requires_grad=True)
    outputs, state = layer(x)
    outputs.square().mean().backward()
    assert outputs.isfinite().all()
    assert all(part.isfinite().all() for part in state_parts(state))
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def gradient_after_zeros(state):
    """The largest gradient of an RRU that has just begun to learn, where the inputs are zero."""
    layer = rru.RRU(3, 16, residual=0.95)
    cell = layer.cells[0]
    torch.nn.init.normal_(cell.bias_j, std=1e-5)
    torch.nn.init.normal_(cell.Z, std=1e-5)
    outputs, last = layer(torch.zeros(3, 1, 3), state)
    outputs.sum().backward()
    assert outputs.isfinite().all()
    assert last.isfinite().all()
    return max(parameter.grad.abs().max().item() for parameter in layer.parameters())


def test_zero_input_is_stable_from_the_default_state_only():
    assert gradient_after_zeros(None) < 200
    assert gradient_after_zeros(torch.zeros(1, 1, 16)) > 2000  # the paper's reason for its h_0
