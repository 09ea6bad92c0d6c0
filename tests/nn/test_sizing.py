"""The largest hidden size whose whole model fits a budget."""

import pytest
import torch
from torch import nn

import rru


@pytest.mark.parametrize("name", rru.cell_names())
@pytest.mark.parametrize("budget", [1_000, 70_000, 48_000_000])
def test_size_is_the_largest_within_the_budget(name, budget):
    def build(hidden_size):
        layer = rru.layer_class(name)(10, hidden_size, num_layers=2)
        return nn.ModuleList([nn.Embedding(20, 10), layer, nn.Linear(layer.output_size, 20)])

    size = rru.hidden_size_for(budget, build)
    with torch.device("meta"):
        assert rru.count_parameters(build(size)) <= budget < rru.count_parameters(build(size + 1))


def test_terabyte_of_parameters_is_sized_without_memory():
    size = rru.hidden_size_for(250_000_000_000, lambda n: rru.RRU(10, n))
    assert size == 204_116  # with g = 2 (n + 10): g (10 + 1 + 3 n) + 4 n = 6 n^2 + 86 n + 220


def test_budget_met_exactly_and_missed_by_one():
    whole = rru.count_parameters(rru.RRU(10, 21))
    assert rru.hidden_size_for(whole, lambda n: rru.RRU(10, n)) == 21
    assert rru.hidden_size_for(whole - 1, lambda n: rru.RRU(10, n)) == 20
    assert rru.hidden_size_for(102, lambda n: nn.ModuleList([rru.LSTM(10, n), nn.Linear(n, 27)])) == 1


def test_a_model_that_cannot_be_built_at_the_smallest_sizes():
    size = rru.hidden_size_for(35_000, lambda n: rru.RRU(1, n, output_size=64, expansion=0.2))
    assert rru.count_parameters(rru.RRU(1, size, output_size=64, expansion=0.2)) <= 35_000
    assert rru.hidden_size_for(9, lambda n: rru.RRU(1, n) if n < 3 and int("x") else nn.Linear(n, n, bias=False)) == 3
    with pytest.raises(ValueError, match="invalid literal"):
        rru.hidden_size_for(100, lambda n: int("x"))


def test_torch_generator_is_not_used():
    before = torch.get_rng_state()
    rru.hidden_size_for(10_000, lambda n: rru.RRU(10, n))
    assert torch.equal(torch.get_rng_state(), before)


def test_budget_too_small_for_any_size_raises():
    with pytest.raises(
        ValueError, match=r"budget must be at least 102, the size of the model at hidden size 1; got 50"
    ):
        rru.hidden_size_for(50, lambda n: nn.ModuleList([rru.LSTM(10, n), nn.Linear(n, 27)]))
    with pytest.raises(ValueError, match="budget must be positive, got 0"):
        rru.hidden_size_for(0, lambda n: rru.LSTM(10, n))


def test_build_that_ignores_the_hidden_size_raises():
    with pytest.raises(ValueError, match=r"build must use the hidden size it is given: at 128 .* fits a budget of 100"):
        rru.hidden_size_for(100, lambda n: nn.Linear(2, 2))
