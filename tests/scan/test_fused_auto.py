"""What `backend="auto"` does on devices other than CPUs; here the CPU is taken for one."""

import json
from contextlib import contextmanager

import pytest
import torch

import rru
from rru.scan import reference
from rru.scan.fused import pointwise, selfcheck, vendor
from rru.scan.fused import run as fused
from rru.scan.thresholds import MAX_WHOLE_STATE
from tests.scan.case import Case, assert_near
from tests.variants import CELLS, VARIANTS


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(fused, "REFERENCE_DEVICES", {"meta"})
    monkeypatch.setattr(selfcheck, "_verdicts", {})


@pytest.fixture
def scans(monkeypatch):
    """The scans that ran, by name."""
    ran = []

    def noting(name, scan):
        return lambda *arguments: ran.append(name) or scan(*arguments)

    monkeypatch.setattr(fused, "scan", noting("fused", fused.scan))
    monkeypatch.setattr(reference, "scan", noting("reference", reference.scan))
    return ran


def build(variant, **options):
    layer = variant.build(dtype=torch.float32, dropout=0.5, **options)
    layer.backend = "auto"
    return layer


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_first_scan_of_a_kind_is_checked_and_then_trusted(variant, scans):
    layer, x = build(variant), torch.randn(6, 2, 3)
    layer(x)
    assert scans == ["fused", "reference", "fused"]
    layer(x)
    assert scans[3:] == ["fused"]


def test_a_check_does_not_change_the_random_numbers(scans):
    layer, x = build(CELLS[0]), torch.randn(6, 2, 3)
    torch.manual_seed(3)
    first, _ = layer(x)
    torch.manual_seed(3)
    again, _ = layer(x)
    assert torch.equal(first, again)


def test_a_wrong_scan_is_reported_once_and_never_used(scans, monkeypatch):
    right = pointwise.updated
    monkeypatch.setattr(pointwise, "updated", lambda rows, mask: right(rows._replace(z=1.1 * rows.z), mask))
    layer, x = build(CELLS[0]), torch.randn(6, 2, 3)
    with pytest.warns(RuntimeWarning, match=r"disagrees with the reference .* Please report: rru .*: .* differ by"):
        layer(x)
    layer(x)  # warnings are errors: no second one
    assert scans == ["fused", "reference"]  # in the check; after it, what runs on a CPU


def test_a_scan_that_fails_is_reported_and_never_used(scans, monkeypatch):
    monkeypatch.setattr(pointwise, "updated", lambda *rows: 1 / 0)
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError"):
        build(CELLS[0])(torch.randn(6, 2, 3))
    assert scans == ["fused"]  # in the check


def test_the_check_can_be_turned_off(scans, monkeypatch):
    monkeypatch.setenv("RRU_SELF_CHECK", "0")
    build(CELLS[0])(torch.randn(6, 2, 3))
    assert scans == ["fused"]


def test_torch_compile_checks_while_it_traces(scans):
    torch.compiler.reset()
    layer, x = build(CELLS[0]), torch.randn(6, 2, 3)
    layer.dropout = 0.0
    outputs, _ = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
    assert len(selfcheck._verdicts) == 1
    torch.testing.assert_close(outputs, layer(x)[0])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "variant", [v for v in VARIANTS if v.name in ("lstm", "lstm-forget-bias", "gru-reset-after")], ids=str
)
def test_torchs_own_layers_compute_the_same_with_the_same_weights(variant, reverse):
    case = Case(variant, reverse=reverse)
    computed = case.run_and_differentiate(vendor.scan)
    assert_near(computed, case.run_and_differentiate(reference.scan), 1e-12)


@pytest.mark.parametrize(
    ("layer", "lengths", "handed_over"),
    [
        (rru.LSTM(3, 4), None, True),
        (rru.GRU(3, 4, reset_after=True), None, True),
        (rru.GRU(3, 4), None, False),
        (rru.LSTM(3, 4, dropout=0.5), None, False),
        (rru.LSTM(3, 4, dropout=0.5).eval(), None, True),
        (rru.LSTM(3, 4), torch.tensor([6, 2]), False),
        (rru.RRU(3, 4), None, False),
        (rru.MogrifierLSTM(3, 4), None, False),
        (rru.LSTM(3, 4, dtype=torch.bfloat16), None, True),
    ],
)
def test_torchs_own_layers_run_what_they_can_on_cuda(layer, lengths, handed_over, monkeypatch):
    calls = []
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(vendor, "scan", lambda cell, inputs: calls.append(inputs) or inputs[:2])
    layer(torch.randn(6, 2, 3, dtype=layer.cells[0].some_weight().dtype), lengths=lengths)
    assert bool(calls) == handed_over


def test_a_layer_that_runs_step_by_step_is_checked_step_by_step():
    def checked(layer):
        tiny = json.loads(selfcheck._tiny(layer.cells[0].options))
        return tiny["hidden_size"] <= MAX_WHOLE_STATE  # and small enough otherwise

    assert checked(rru.RRU(10, 100))
    assert not checked(rru.RRU(10, MAX_WHOLE_STATE + 1))
    assert not checked(rru.RRU(500, 100))  # g is large
    assert not checked(rru.RRU(10, 100, expansion=10.0))


@pytest.mark.parametrize("tf32", [False, True])
def test_torchs_newer_way_to_allow_tf32_is_understood(tf32):
    settings = torch.backends.cuda.matmul
    before, settings.fp32_precision = settings.fp32_precision, "tf32" if tf32 else "ieee"
    try:
        assert selfcheck._tolerance(torch.float32, None) == (2e-2 if tf32 else 2e-3)
    finally:
        settings.fp32_precision = before


def test_the_device_of_the_tensors_is_the_current_one_while_kernels_start(monkeypatch):
    entered = []

    @contextmanager
    def noting(index):
        entered.append(index)
        yield

    monkeypatch.setattr(torch.accelerator, "device_index", noting)
    layer = rru.RRU(3, 4, backend="fused")
    layer(torch.randn(6, 2, 3))[0].sum().backward()
    assert entered == [None, None]  # forward and backward; a CPU has no index
