"""Native scans and memory that held something else, NaN, infinity and denormal numbers."""

import pytest
import torch
import torch.utils.deterministic

import rru
from rru.scan import reference
from rru.scan.native import run as native
from rru.scan.reference import ScanInputs
from tests.scan.case import RAGGED, Case, assert_equal, every_cell, every_variant
from tests.variants import VARIANTS


@pytest.fixture
def fill_memory_with_nan():
    """Call it to make torch fill new memory with NaN until the end of the test."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory

    def begin():
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = True
        assert torch.empty(3).isnan().all()

    yield begin
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]


@pytest.mark.usefixtures("each_instruction_set")
@every_variant
@pytest.mark.parametrize(("ragged", "reverse", "dropout"), [(False, False, 0.0), (True, True, 0.9)])
def test_what_memory_held_before_does_not_matter(variant, ragged, reverse, dropout, fill_memory_with_nan):
    lengths = torch.tensor(RAGGED) if ragged else None
    case = Case(variant, lengths=lengths, reverse=reverse, dropout=dropout)
    wanted = case.run_and_differentiate(native.scan)
    assert all(tensor.isfinite().all() for tensor in wanted)
    fill_memory_with_nan()
    assert_equal(case.run_and_differentiate(native.scan), wanted)
    with torch.no_grad():
        assert_equal(case.run(native.scan), wanted[: 1 + len(case.state)])


@every_variant
@pytest.mark.parametrize(("reverse", "dropout"), [(False, 0.9), (True, 0.0)])
def test_nan_in_padding_reaches_nothing(variant, reverse, dropout, fill_memory_with_nan):
    case = Case(variant, lengths=torch.tensor(RAGGED), reverse=reverse, dropout=dropout)
    wanted = case.run_and_differentiate(native.scan)
    padding = torch.arange(5).unsqueeze(1) >= case.lengths
    with torch.no_grad():
        case.x[padding] = float("nan")
    fill_memory_with_nan()
    spoiled = case.run_and_differentiate(native.scan)
    assert_equal(spoiled, wanted)
    assert all(tensor.isfinite().all() for tensor in spoiled)
    outputs, grad_x = spoiled[0], spoiled[1 + len(case.state)]
    assert not outputs[padding].any()
    assert not grad_x[padding].any()


@every_variant
@pytest.mark.parametrize(("reverse", "dropout"), [(False, 0.0), (True, 0.9)])
def test_nan_in_an_input_reaches_every_later_output_of_its_sequence_and_no_other(variant, dropout, reverse):
    case = Case(variant, lengths=torch.tensor(RAGGED), reverse=reverse, dropout=dropout)
    with torch.no_grad():
        case.x[1, 2, 5] = float("nan")
    outputs, *last = case.run(native.scan)
    reached = torch.zeros(5, 7, dtype=torch.bool)
    reached[slice(0, 2) if reverse else slice(1, RAGGED[2]), 2] = True
    assert torch.equal(outputs.isnan().all(2), reached)
    assert torch.equal(outputs.isnan().any(2), reached)
    for part in last:
        assert torch.equal(part.isnan().all(1), torch.arange(7) == 2)
        assert torch.equal(part.isnan().any(1), torch.arange(7) == 2)


@pytest.mark.usefixtures("each_instruction_set")
@every_variant
@pytest.mark.parametrize("dropout", [0.0, 0.9])
def test_an_infinite_input_matches_reference(variant, dropout):
    case = Case(variant, dropout=dropout)
    with torch.no_grad():
        case.x[1, 2, 5] = float("inf")
    for actual, wanted in zip(case.run(native.scan), case.run(reference.scan), strict=True):
        torch.testing.assert_close(actual, wanted, equal_nan=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["weight_c", "weight_o"])
def test_a_weight_that_is_no_number_shows_though_most_features_are_zero(name, value):
    case = Case(VARIANTS[0], dropout=0.9)
    with torch.no_grad():
        getattr(case.cell, name)[3, 0] = value
    for actual, wanted in zip(case.run(native.scan), case.run(reference.scan), strict=True):
        assert torch.equal(actual.isnan(), wanted.isnan())
    assert any(part.isnan().any() for part in case.run(native.scan))


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.layer is rru.RRU], ids=str)
def test_gradients_of_what_is_no_number_are_none_either(variant):
    case = Case(variant)
    with torch.no_grad():
        case.x[1, 2, 5] = float("nan")
    for scan in (native.scan, reference.scan):
        grad_x, *_ = case.run_and_differentiate(scan)[1 + len(case.state) :]
        assert grad_x[1, 2].isnan().all()
        assert grad_x[:, 3].isfinite().all()


def test_an_infinite_middle_weight_shows_in_gradients_though_most_are_zero():
    case = Case(VARIANTS[2], m=20, n=150, steps=8, batch=8, dropout=0.95)  # several ReLU layers, n + p above 256
    with torch.no_grad():
        case.cell.weight_k2[3, 5] = float("inf")
    for actual, wanted in zip(
        case.run_and_differentiate(native.scan), case.run_and_differentiate(reference.scan), strict=True
    ):
        assert torch.equal(actual.isnan().any(), wanted.isnan().any())


def is_denormal(x):
    return (x != 0) & (x.abs() < torch.finfo(x.dtype).tiny)


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("wants_gradients", [False, True])
# 0.9 times the smallest denormals rounds to themselves: without flushing, such states never reach zero
@pytest.mark.parametrize("residual", [0.5, 0.9])
def test_states_that_decay_become_zero_and_never_denormal(residual, wants_gradients):
    cell = rru.RRUCell(3, 4, residual=residual, init="paper")  # Z = 0: nothing but the decay
    lengths = torch.tensor([2000, *range(120, 160), *range(800, 1000, 10)])
    x, state = torch.randn(2000, len(lengths), 3), (torch.ones(len(lengths), 4),)
    with torch.set_grad_enabled(wants_gradients):
        outputs, (last,) = native.scan(cell, ScanInputs(x, state, lengths))
    assert (last[0] == 0).all()
    assert not is_denormal(last).any()
    assert (last[1] != 0).all()
    assert outputs.isfinite().all()


@pytest.mark.parametrize("flushed", [False, True])
@every_cell
def test_torch_keeps_its_own_setting_for_denormals(variant, flushed):
    case = Case(variant, dtype=torch.float32)
    torch.set_flush_denormal(flushed)
    try:
        case.run_and_differentiate(native.scan)
        product = torch.tensor([1e-38]) * torch.tensor([1e-2])
    finally:
        torch.set_flush_denormal(False)
    assert (product.item() == 0) == flushed
