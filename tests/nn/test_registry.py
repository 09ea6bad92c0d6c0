"""Your own cell: one file and one registration make it available everywhere."""

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rru
from rru.nn import registry
from rru.scan import operator
from tests.variants import Variant, assert_same, randomize

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_the_same_file_works_inside_the_package(tmp_path):
    package = shutil.copytree(Path(rru.__file__).parent, tmp_path / "rru")
    source, *_ = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)
    (package / "nn" / "janet.py").write_text(source)
    with (package / "nn" / "__init__.py").open("a") as init:
        init.write("from rru.nn import janet\n")
    code = "import rru, torch; print(rru.layer_class('janet')(3, 4)(torch.zeros(5, 2, 3))[0].shape)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.stdout == "torch.Size([5, 2, 4])\n", done.stderr


def test_it_is_registered(own_cell):
    assert rru.cell_names() == ("gru", "lstm", "mogrifier", "rru", "janet")
    assert rru.layer_class("janet") is own_cell["JANET"]


def test_matches_its_equations(own_cell):
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


def test_its_gradients_match_finite_differences(own_cell):
    layer = Variant("janet", own_cell["JANET"]).build(hidden_size=2)
    x = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(x)[0], x)


def test_an_unknown_name():
    with pytest.raises(ValueError, match=r"unknown cell 'rruu'; did you mean 'rru'\? Known: gru, lstm, mogrifier, rru"):
        rru.layer_class("rruu")


def test_taken_name_is_rejected():
    with pytest.raises(ValueError, match=r"cell name 'rru' is taken by rru\.nn\.rru\.RRU"):

        @rru.register_cell("rru")
        class Other(rru.Layer):
            cell_class = rru.RRUCell

    assert rru.layer_class("rru") is rru.RRU


def test_compiling_an_unregistered_cell_raises():
    class Unregistered(rru.GRUCell):
        def step(self, projected, state, keep):
            features, state = super().step(projected, state, keep)
            return 2 * features, state

    class Mine(rru.Layer):
        cell_class = Unregistered

    layer, x = Mine(3, 4), torch.randn(20, 2, 3)
    plain = rru.GRU(3, 4)
    plain.load_state_dict(layer.state_dict())
    assert_same(layer(x)[0], 2 * plain(x)[0], 1e-6)  # its own step, not its parent's native scan
    with pytest.raises(RuntimeError, match=r"Unregistered must be registered \(rru\.register_cell\)"):
        torch.export.export(layer, (torch.randn(5, 2, 3),))


def test_invalid_registrations_raise():
    with pytest.raises(TypeError, match=r"register_cell takes a name: @register_cell\('mine'\)"):

        @rru.register_cell
        class Forgotten(rru.Layer):
            cell_class = rru.GRUCell

    with pytest.raises(TypeError, match=r"must be a subclass of rru\.Layer that names its cell_class"):
        rru.register_cell("mine")(rru.GRUCell)
    with pytest.raises(ValueError, match="GRUCell is already registered as 'gru'"):

        @rru.register_cell("mine")
        class Again(rru.Layer):
            cell_class = rru.GRUCell

    assert rru.GRUCell.name == "gru"


def test_cell_that_a_graph_cannot_rebuild_is_rejected(own_cell):
    class Forgetful(own_cell["JANETCell"]):
        def __init__(self, input_size, hidden_size, *, scale=1.0, dropout=0.0, device=None, dtype=None):
            super().__init__(input_size, hidden_size, dropout=dropout, device=device, dtype=dtype)

    with pytest.raises(TypeError, match=r"Forgetful must pass its argument 'scale' to super\(\)\.__init__"):
        Forgetful(3, 4)

    class WithList(own_cell["JANETCell"]):
        def __init__(self, input_size, hidden_size, *, gains=(1.0,), dropout=0.0, device=None, dtype=None):
            super().__init__(input_size, hidden_size, gains=gains, dropout=dropout, device=device, dtype=dtype)

    with pytest.raises(TypeError, match=r"WithList: gains must be a string or a number, got \(1\.0,\)"):
        WithList(3, 4)

    layer = own_cell["JANET"](3, 4)
    layer.cells[0].norm = torch.nn.LayerNorm(4)
    with pytest.raises(
        RuntimeError, match=r"JANETCell has state besides its weights, which a graph cannot store: \['norm'\]"
    ):
        torch.export.export(layer, (torch.randn(5, 2, 3),))


def test_cell_may_fix_an_option_of_its_base_class(own_cell, monkeypatch):
    for known in (registry._layers, operator.registered):
        monkeypatch.setitem(known, "forgetful", None)

    @rru.register_cell("forgetful")
    class Forgetful(rru.Layer):
        class cell_class(own_cell["JANETCell"]):
            def __init__(self, input_size, hidden_size, *, gain: float = 1.0, device=None, dtype=None):
                super().__init__(input_size, hidden_size, forget_bias=-3.0, gain=gain, device=device, dtype=dtype)

    layer, x = Forgetful(3, 4, gain=2), torch.randn(5, 2, 3)
    assert (layer.cells[0].forget_bias, layer.cells[0].gain) == (-3.0, 2.0)
    assert "forget_bias" not in inspect.signature(Forgetful).parameters
    torch.compiler.reset()
    assert_same(torch.compile(layer, fullgraph=True, backend="aot_eager")(x)[0], layer(x)[0], 1e-6)


def test_its_options_are_those_of_its_constructor(own_cell):
    layer = own_cell["JANET"](3, 4, forget_bias=2)
    assert layer.cells[0].forget_bias == 2.0
    assert "forget_bias=2.0" in repr(layer)
    assert inspect.signature(own_cell["JANET"]).parameters["forget_bias"].default == 1.0
    with pytest.raises(TypeError, match="forget_bias must be a number, got 'much'"):
        own_cell["JANET"](3, 4, forget_bias="much")
    with pytest.raises(AttributeError, match=r"forget_bias of a JANETCell is fixed at 2\.0: create a new cell"):
        layer.cells[0].forget_bias = 3.0
