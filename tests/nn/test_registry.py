"""A cell of one's own: one file, one registration, and everything knows it."""

import re
from pathlib import Path

import pytest
import torch

import rru
from rru.nn import registry
from rru.scan import operator
from tests.variants import Variant, assert_same, randomize

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def own_cell(monkeypatch):
    """The cell that CONTRIBUTING.md adds, forgotten again afterwards."""
    for known in (registry._layers, operator.registered):
        monkeypatch.setitem(known, "janet", None)
    (source,) = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)
    names = {"__name__": "own_cell"}
    exec(source, names)
    return names


def test_it_is_registered(own_cell):
    assert rru.cell_names() == ("gru", "lstm", "mogrifier", "rru", "janet")
    assert rru.layer_class("janet") is own_cell["JANET"]


def test_it_computes_what_its_equations_say(own_cell):
    layer = randomize(rru.layer_class("janet")(3, 4, forget_bias=0.5, dtype=torch.float64))
    cell = layer.cells[0]
    x = torch.randn(5, 2, 3).double()
    h = torch.zeros(2, 4).double()
    for t in range(5):
        f, j = (x[t] @ cell.weight_x.T + h @ cell.weight_h.T + cell.bias).chunk(2, dim=-1)
        kept = torch.sigmoid(f + 0.5)
        h = kept * h + (1 - kept) * torch.tanh(j)
    assert_same(layer(x)[0][-1], h)


def test_it_has_layers_directions_lengths_and_dropout(own_cell):
    layer = own_cell["JANET"](3, 4, num_layers=2, bidirectional=True, dropout=0.5)
    outputs, state = layer(torch.randn(5, 2, 3), lengths=torch.tensor([5, 1]))
    assert outputs.shape == (5, 2, 8)
    assert state.shape == (4, 2, 4)


def test_it_is_sized_compiled_and_exported(own_cell):
    size = rru.hidden_size_for(10_000, lambda n: rru.layer_class("janet")(3, n))
    assert size == 68  # 2 n (n + 4) parameters
    layer = Variant("janet", own_cell["JANET"]).build()
    x = torch.randn(5, 2, 3).double()
    torch.compiler.reset()
    assert_same(torch.compile(layer, fullgraph=True, backend="aot_eager")(x)[0], layer(x)[0])
    assert_same(torch.export.export(layer, (x,)).module()(x)[0], layer(x)[0])


def test_gradients_of_it(own_cell):
    layer = Variant("janet", own_cell["JANET"]).build(hidden_size=2)
    x = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(x)[0], x)


def test_an_unknown_name():
    with pytest.raises(
        ValueError, match=r"no cell is named 'rruu'; did you mean 'rru'\? Known: gru, lstm, mogrifier, rru"
    ):
        rru.layer_class("rruu")


def test_a_name_that_is_taken():
    with pytest.raises(ValueError, match=r"cell name 'rru' is taken by rru\.nn\.rru\.RRU"):

        @rru.register_cell("rru")
        class Other(rru.Layer):
            cell_class = rru.RRUCell

    assert rru.layer_class("rru") is rru.RRU


def test_a_cell_that_is_not_registered_says_so_when_compiled():
    class Unregistered(rru.GRUCell):
        name = None

    class Mine(rru.Layer):
        cell_class = Unregistered

    layer = Mine(3, 4)
    assert layer(torch.randn(5, 2, 3))[0].shape == (5, 2, 4)
    with pytest.raises(RuntimeError, match=r"Unregistered must be registered \(rru\.register_cell\)"):
        torch.export.export(layer, (torch.randn(5, 2, 3),))
