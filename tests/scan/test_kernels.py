"""The table of kernels: every back end asks it, and it says what the library has."""

import dataclasses

import pytest
import torch

import rru
from rru.scan.fused import run as fused
from rru.scan.fused import vendor
from rru.scan.kernels import KERNELS, kernel_of
from rru.scan.native import library, quantized
from rru.scan.reference import ScanInputs
from tests.scan.case import every_variant


@every_variant
def test_each_cell_with_a_kernel_is_in_the_table(variant):
    assert kernel_of(variant.build(3, 4).cells[0]) is KERNELS[variant.build(3, 4).cells[0].kernel]


@pytest.mark.skipif(not library.BUILT, reason="the native library is not built")
@pytest.mark.parametrize("name", KERNELS)
def test_the_library_has_the_loops_that_the_table_lists(name):
    directions = ["forward", "backward"] + ["quantized"] * KERNELS[name].quantized
    assert all(library._find(f"{name}_{direction}_f32_{library.instruction_set}") for direction in directions)


def test_a_kernel_without_int8_or_fused_loops_is_refused_not_computed_as_another(monkeypatch):
    cell = rru.GRUCell(3, 4)
    monkeypatch.setitem(KERNELS, "gru", dataclasses.replace(KERNELS["gru"], fused=None, quantized=False))
    assert not quantized.can_run("gru")
    assert "GRUCell has no fused scan" in fused.why_not(cell)
    with pytest.raises(TypeError, match="GRUCell cannot be quantized"):
        rru.quantize(cell)


def test_a_subclass_may_compute_something_else_so_no_kernel_runs_it(monkeypatch):
    cell = type("OwnCell", (rru.LSTMCell,), {})(3, 4)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    inputs = ScanInputs(torch.randn(5, 2, 3), cell.initial_state(2))
    assert kernel_of(cell) is None
    assert not vendor.computes(cell, inputs)
    assert vendor.computes(rru.LSTMCell(3, 4), inputs)
