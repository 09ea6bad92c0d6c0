"""The fused scans compute what the reference and the native scans compute, here in torch operations on the CPU."""

import pytest
import torch
from hypothesis import given, settings
from torch._subclasses import FakeTensorMode

import rru
from rru.scan import reference, thresholds
from rru.scan.fused import run as fused
from rru.scan.native import run as native
from tests.scan.case import RAGGED, Case, assert_equal, assert_near, cases, every_cell, every_variant


def assert_right(case, tolerance):
    computed = case.run_and_differentiate(fused.scan)
    assert_near(computed, case.run_and_differentiate(reference.scan), tolerance)
    assert_near(computed, case.run_and_differentiate(native.scan), tolerance)
    with torch.no_grad():  # nothing is saved for the backward pass
        assert_near(case.run(fused.scan), computed[: 1 + len(case.state)], tolerance)


@every_variant
@settings(max_examples=8)
@given(case=cases(largest=(20, 30, 10, 6)))
def test_outputs_states_and_all_gradients_match_reference(variant, case):
    assert_right(Case(variant, **case), 1e-9)


@every_variant
@settings(max_examples=3)
@given(case=cases(torch.float32, largest=(20, 20, 16, 4)))
def test_outputs_states_and_all_gradients_match_reference_in_float32(variant, case):
    assert_right(Case(variant, **case), 1e-4)


@every_cell
@pytest.mark.parametrize("reverse", [False, True])
def test_masks_made_a_few_steps_at_a_time_match_reference(variant, reverse, monkeypatch):
    case = Case(variant, steps=8, dropout=0.5, reverse=reverse)
    monkeypatch.setattr(thresholds, "MASK_ENTRIES", 3 * 7 * case.cell.mask_size)
    assert_right(case, 1e-9)


@every_variant
@pytest.mark.parametrize(("reverse", "dropout"), [(False, 0.5), (True, 0.0)])
def test_nan_in_padding_reaches_nothing(variant, reverse, dropout):
    case = Case(variant, lengths=torch.tensor(RAGGED), reverse=reverse, dropout=dropout)
    wanted = case.run_and_differentiate(fused.scan)
    padding = torch.arange(5).unsqueeze(1) >= case.lengths
    with torch.no_grad():
        case.x[padding] = float("nan")
        case.weighed[padding] = float("nan")
    outputs, *last = case.run(fused.scan)
    total = (outputs * case.weighed).masked_fill(padding.unsqueeze(2), 0).sum() + sum((part**2).sum() for part in last)
    gradients = torch.autograd.grad(total, [case.x, *case.state, *case.cell.parameters()])
    assert_equal([outputs, *last, *gradients], wanted)
    assert not outputs[padding].any()
    assert not gradients[0][padding].any()


@every_variant
def test_nan_in_an_input_reaches_every_later_output_and_gradient_of_its_sequence_and_no_other(variant):
    case = Case(variant, lengths=torch.tensor(RAGGED), dropout=0.9)
    with torch.no_grad():
        case.x[1, 2, 5] = float("nan")
    outputs, *last = case.run(fused.scan)
    assert torch.equal(outputs.isnan(), case.run(reference.scan)[0].isnan())
    assert outputs[1:3, 2].isnan().all()
    for part in last:
        assert torch.equal(part.isnan().all(1), torch.arange(7) == 2)
    gradient = case.run_and_differentiate(fused.scan)[1 + len(last)]
    assert gradient[1, 2].isnan().all()
    assert gradient[:, 3].isfinite().all()


@every_cell
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_multiplies_in_16_bits_and_keeps_states_in_32(variant, dtype):
    case = Case(variant, dtype=torch.float32, lengths=torch.tensor(RAGGED), dropout=0.5)
    wanted = case.run_and_differentiate(reference.scan)
    with torch.autocast("cpu", dtype=dtype):
        of_reference = case.run(reference.scan)
        outputs, *rest = case.run_and_differentiate(fused.scan)
    assert [outputs.dtype, *(part.dtype for part in rest)] == [of_reference[0].dtype] + [torch.float32] * len(rest)
    for computed, exact in zip([outputs.float(), *rest], wanted, strict=True):
        assert not torch.equal(computed, exact)
        assert (computed - exact).norm() <= 0.03 * exact.norm()


@every_variant
def test_fake_tensors_have_the_shapes_and_types_of_real_ones(variant):
    layer = variant.build(dtype=torch.float32, dropout=0.5, bidirectional=True)
    layer.backend = "fused"
    x, lengths = torch.randn(5, 2, 3), torch.tensor([5, 2])
    with torch.autocast("cpu"):
        outputs, _ = layer(x, lengths=lengths)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake, _ = layer(mode.from_tensor(x), lengths=mode.from_tensor(lengths))
            fake.sum().backward()
    assert (fake.shape, fake.dtype) == (outputs.shape, outputs.dtype)


@every_variant
def test_what_a_training_step_keeps_is_no_more_than_the_native_scan_keeps(variant):
    kept = {}
    for scan in (fused.scan, native.scan):
        case, sizes = Case(variant, m=3, n=40, steps=6, batch=5, dropout=0.5), []
        with torch.autograd.graph.saved_tensors_hooks(lambda saved, sizes=sizes: sizes.append(saved.nbytes), id):
            case.run(scan)
        kept[scan] = sum(sizes)
    assert kept[fused.scan] <= kept[native.scan]


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (rru.LSTM(3, 4, backend="fused", dtype=torch.bfloat16), "fused scans take float32 and float64 weights"),
        (
            type("Own", (rru.LSTM,), {"cell_class": type("OwnCell", (rru.LSTMCell,), {})})(3, 4, backend="fused"),
            "OwnCell has no fused scan",
        ),
    ],
    ids=["dtype", "cell"],
)
def test_what_it_cannot_run_is_an_error(layer, reason):
    with pytest.raises(RuntimeError, match=f"backend 'fused' cannot run this: {reason}"):
        layer(torch.randn(5, 2, 3, dtype=layer.cells[0].bias.dtype))
