"""Eager code runs the native scans without torch's compiler, and chooses the faster back end."""

import subprocess
import sys

import pytest
import torch

import rru
from rru.scan import reference
from rru.scan.native import call, library
from rru.scan.native import run as native
from tests.timeouts import TIMEOUT

pytestmark = pytest.mark.skipif(not library.BUILT, reason="the native library is not built")

FIRST_CALLS = """
import sys, torch, rru
for layer_class in (rru.RRU, rru.GRU, rru.LSTM, rru.MogrifierLSTM):
    for backend in ("native", "reference"):
        layer = layer_class(3, 4, dropout=0.5, backend=backend)
        layer(torch.randn(5, 2, 3), lengths=torch.tensor([5, 2]))[0].sum().backward()
print("torch._dynamo" in sys.modules)
"""


def test_neither_import_nor_first_call_load_torchs_compiler_which_takes_a_second():
    ran = subprocess.run([sys.executable, "-c", FIRST_CALLS], capture_output=True, text=True, timeout=TIMEOUT)
    assert ran.stdout == "False\n", ran.stderr


@pytest.fixture
def chosen(monkeypatch):
    """Names the back ends that ran."""
    ran = []
    for name, module in (("native", native), ("reference", reference)):

        def recorded(*given, original=module.scan, name=name):
            ran.append(name)
            return original(*given)

        monkeypatch.setattr(module, "scan", recorded)
    return ran


@pytest.mark.parametrize(
    ("hidden_size", "steps", "batch", "grad", "wanted"),
    [
        (8, 1, 1, True, "native"),
        (8, 10, 1, True, "native"),
        (8, 1, 64, False, "native"),
        (200, 3, 1, True, "native"),
        (200, 2, 64, True, "reference"),
        (200, 2, 1, True, "reference"),
        (200, 2, 1, False, "native"),
        (200, 1, 64, False, "reference"),
    ],
)
def test_a_layer_takes_the_native_scan_unless_it_is_large_and_has_one_or_two_steps(
    hidden_size, steps, batch, grad, wanted, chosen
):
    layer, x = rru.RRU(8, hidden_size), torch.randn(steps, batch, 8)
    with torch.set_grad_enabled(grad):
        layer(x)
    assert chosen == [wanted]


def test_the_gradient_of_an_input_that_wants_none_is_not_computed(monkeypatch):
    asked = []
    original = call.backward

    def recorded(*given):
        asked.append(given[-1])
        return original(*given)

    monkeypatch.setattr(call, "backward", recorded)
    layer = rru.RRU(3, 4, num_layers=2, backend="native")
    layer(torch.randn(5, 2, 3))[0].sum().backward()
    assert asked == [True, False]
    assert all(parameter.grad is not None for parameter in layer.parameters())
