"""Initial values as the authors chose them, from torch's generator."""

import math

import pytest
import torch

import rru
from rru.settings import presets
from tests.variants import VARIANTS

every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


def assert_uniform(tensor, bound):
    """Uniform in +-bound: all inside, the edges nearly reached, the variance right."""
    assert tensor.abs().max() <= bound
    assert tensor.abs().max() > 0.98 * bound
    assert tensor.var().item() == pytest.approx(bound**2 / 3, rel=0.1)


@every_variant
def test_the_same_seed_gives_the_same_weights(variant):
    def weights(seed):
        torch.manual_seed(seed)
        return torch.cat([p.flatten() for p in variant.layer(3, 4, num_layers=2, **variant.options).parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


@every_variant
def test_resetting_gives_what_a_new_layer_has(variant):
    torch.manual_seed(1)
    layer = variant.layer(3, 4, num_layers=2, **variant.options)
    initial = {name: value.clone() for name, value in layer.state_dict().items()}
    for parameter in layer.parameters():
        torch.nn.init.constant_(parameter, 9.0)
    torch.manual_seed(1)
    layer.reset_parameters()
    assert all(torch.equal(value, initial[name]) for name, value in layer.state_dict().items())


def test_rru_with_the_papers_initial_values():
    m, n, p = 30, 50, 20
    cell = rru.RRUCell(m, n, output_size=p, relu_layers=3, expansion=1.5, init="paper")
    g = cell.expanded_size
    assert g == 120
    for name in ("weight_x", "weight_h"):  # one joint matrix
        assert_uniform(getattr(cell, name), math.sqrt(6 / (m + n + g)))
    for name in ("weight_k1", "weight_k2"):
        assert_uniform(getattr(cell, name), math.sqrt(6 / (g + g)))
    for name in ("weight_c", "weight_o"):  # one joint matrix
        assert_uniform(getattr(cell, name), math.sqrt(6 / (g + n + p)))
    for name in ("bias_j", "bias_k1", "bias_k2", "bias_c", "bias_o", "Z"):
        assert not getattr(cell, name).any()


def test_share_of_the_state_that_the_rru_keeps_with_the_papers_initial_values():
    scale = torch.sigmoid(10 * rru.RRUCell(1, 10_000, expansion=0.001, init="paper").S)
    assert 0.01 <= scale.min() < 0.012
    assert 0.988 < scale.max() <= 0.99
    assert scale.quantile(torch.tensor([0.25, 0.5, 0.75])).tolist() == pytest.approx([0.255, 0.5, 0.745], abs=0.02)


@pytest.mark.parametrize("init", ["balanced", "paper"])
def test_options_that_fix_what_the_rru_keeps(init):
    torch.testing.assert_close(
        torch.sigmoid(10 * rru.RRUCell(1, 8, residual=0.95, init=init).S), torch.full((8,), 0.95)
    )
    unscaled = rru.RRUCell(1, 8, residual="unscaled", init=init)
    assert not hasattr(unscaled, "S")
    assert not unscaled.Z.any()  # the state cannot grow
    assert rru.RRUCell(1, 8, rezero="scalar", init=init).Z.shape == (1,)


def statistics(tensor):
    """The mean over a batch, as its spread over features, and the spread over the batch."""
    return tensor.mean(dim=-2).square().mean().sqrt().item(), tensor.std(dim=-2).mean().item()


@pytest.mark.parametrize(("steps", "layers"), [(10, 1), (1000, 1), (200, 4)])
@pytest.mark.parametrize("sizes", [(8, 64), (100, 32)], ids=str)
def test_balanced_values_keep_state_and_output_spread_over_the_batch(steps, layers, sizes):
    torch.manual_seed(0)
    layer = rru.RRU(*sizes, layers)
    with torch.no_grad():
        output, state = layer(torch.randn(steps, 256, sizes[0]))
    constant, spread = statistics(output[-1])
    assert 0.8 < spread < 1.2
    assert constant < spread / 2
    constant, spread = statistics(state[-1])
    assert 0.5 < spread < 3
    assert constant < 3 * spread


@pytest.mark.parametrize("scale", [0.03, 1.0, 30.0])
def test_balanced_values_show_the_input_in_the_state_whatever_its_scale(scale):
    torch.manual_seed(0)
    with torch.no_grad():
        _, state = rru.RRU(8, 64)(scale * torch.randn(50, 256, 8))
    assert 0.5 < statistics(state[0])[1] < 2


def test_balanced_values_give_both_short_and_long_memory():
    decay = torch.sigmoid(10 * rru.RRUCell(1, 64).S)
    memory = -1 / decay.log()  # in steps
    assert (memory < 2).sum() > 10
    assert (memory > 30).sum() >= 7
    assert memory.max() > 300
    assert memory.max() <= 1001
    assert decay[0] < 0.02  # the constant feature of the initial state is forgotten at once


@pytest.mark.parametrize("hidden_size", [1, 2, 3, 5])
def test_balanced_values_of_tiny_layers_are_finite(hidden_size):
    for parameter in rru.RRU(1, hidden_size, expansion=0.5).parameters():
        assert parameter.isfinite().all()


def test_a_config_means_the_papers_values_unless_it_says_otherwise():
    config = presets.load("bach", "rru", "smoke")
    assert config.model.arguments["init"] == "paper"
    assert config.changed({"model.init": "balanced"}).model.arguments["init"] == "balanced"
    assert "init" not in presets.load("bach", "lstm", "smoke").model.arguments


def test_initial_state_of_the_rru():
    _, state = rru.RRU(3, 64, residual="unscaled", init="paper")(
        torch.randn(1, 2, 3)
    )  # Z = 0: the state stays as it was
    expected = torch.zeros(1, 2, 64)
    expected[:, :, 0] = 0.25 * 8
    assert torch.equal(state, expected)


def test_gru():
    m, n = 40, 60
    cell = rru.GRUCell(m, n, reset_after=True)
    for weight in (cell.weight_x, cell.weight_h):
        assert_uniform(weight[: 2 * n], math.sqrt(6 / (m + n + 2 * n)))
        assert_uniform(weight[2 * n :], math.sqrt(6 / (m + n + n)))
    assert (cell.bias[: 2 * n] == 1).all()
    assert not cell.bias[2 * n :].any()
    assert not cell.bias_h.any()


@pytest.mark.parametrize("cell_class", [rru.LSTMCell, rru.MogrifierLSTMCell])
def test_the_lstms(cell_class):
    m, n = 40, 60
    cell = cell_class(m, n)
    for weight in (cell.weight_x, cell.weight_h):
        assert_uniform(weight, math.sqrt(6 / (m + n + 4 * n)))
    assert not cell.bias.any()


def test_the_mogrifiers_gatings():
    m, n, rank = 70, 50, 30
    cell = rru.MogrifierLSTMCell(m, n, rounds=2, rank=rank)
    assert cell.weight_a0.shape == (rank, n)  # round 0 gates the input by the state
    assert cell.weight_b0.shape == (m, rank)
    assert cell.weight_a1.shape == (rank, m)  # round 1 gates the state by the input
    assert cell.weight_b1.shape == (n, rank)
    assert_uniform(cell.weight_a0, math.sqrt(6 / (rank + n)))
    assert_uniform(cell.weight_b1, math.sqrt(6 / (rank + n)))
    assert not cell.bias_m0.any()
    full = rru.MogrifierLSTMCell(m, n, rounds=1).weight_m0
    assert full.shape == (m, n)
    assert_uniform(full, math.sqrt(6 / (m + n)))
