"""Resets inside a sequence: every back end computes what a loop over the parts between resets computes."""

import pytest
import torch

import rru
from rru.scan import Resets, reference, thresholds
from rru.scan.fused import run as fused
from rru.scan.native import quantized
from rru.scan.native import run as native
from rru.scan.native.library import INSTRUCTION_SETS
from tests.scan.case import RAGGED, Case, assert_near, every_cell, every_variant, using, whole_or_ragged
from tests.variants import CELLS

STEPS, BATCH = 5, 7
MASKS = {
    "some": torch.tensor([[t % (2 + b % 3) == b % 2 for b in range(BATCH)] for t in range(STEPS)]),
    "first": torch.arange(STEPS * BATCH).view(STEPS, BATCH) < 3,
    "all": torch.ones(STEPS, BATCH, dtype=torch.bool),
    "none": torch.zeros(STEPS, BATCH, dtype=torch.bool),
}
each_mask = pytest.mark.parametrize("where", MASKS)
RRU = CELLS[0]


class ResetCase(Case):
    """A case of a scan with resets to a state of its own."""

    def __init__(self, variant, where="some", **arguments):
        super().__init__(variant, **arguments)
        mask = MASKS[where]
        if self.lengths is not None:
            mask = mask & (torch.arange(STEPS).unsqueeze(1) < self.lengths)
        self.reset_to = tuple(torch.randn_like(part, requires_grad=True) for part in self.state)
        self.resets = Resets(mask, self.reset_to)

    @property
    def inputs(self):
        return super().inputs._replace(resets=self.resets)

    def run_and_differentiate(self, scan):
        outputs, *last = self.run(scan)
        total = (outputs * self.weighed).sum() + sum((part * part).sum() for part in last)
        tensors = [self.x, *self.state, *self.reset_to, *self.cell.parameters()]
        gradients = torch.autograd.grad(total, tensors, materialize_grads=True)
        return [result.detach() for result in (outputs, *last, *gradients)]


def by_parts(cell, inputs):
    """Run each sequence on its own, in parts that start at its resets; dropout is off."""
    x, state, lengths, _, _, (mask, reset_to) = inputs
    outputs, lasts = [], []
    for b in range(x.shape[1]):
        end = len(x) if lengths is None else int(lengths[b])
        starts = sorted({0, *mask[:end, b].nonzero().flatten().tolist()})
        parts, now = [], tuple(part[b : b + 1] for part in state)
        for start, stop in zip(starts, [*starts[1:], end], strict=True):
            if mask[start, b]:
                now = tuple(part[b : b + 1] for part in reset_to)
            output, now = reference.scan(cell, reference.ScanInputs(x[start:stop, b : b + 1], now))
            parts.append(output)
        padding = x.new_zeros(len(x) - end, 1, cell.output_size)
        outputs.append(torch.cat([*parts, padding]))
        lasts.append(now)
    return torch.cat(outputs, 1), tuple(torch.cat(parts) for parts in zip(*lasts, strict=True))


@every_variant
@whole_or_ragged
@each_mask
def test_the_reference_computes_each_part_from_the_state_of_a_reset(variant, lengths, where):
    case = ResetCase(variant, where, lengths=lengths)
    assert_near(case.run_and_differentiate(reference.scan), case.run_and_differentiate(by_parts), 1e-12)


def assert_native_right(case, tolerance=1e-9):
    wanted = case.run_and_differentiate(reference.scan)
    for instruction_set in INSTRUCTION_SETS:
        with using(instruction_set):
            computed = case.run_and_differentiate(native.scan)
            assert_near(computed, wanted, tolerance)
            with torch.no_grad():
                assert_near(case.run(native.scan), computed[: 1 + len(case.state)], 0)


@every_variant
@whole_or_ragged
@each_mask
def test_native_scans_match_the_reference(variant, lengths, where):
    assert_native_right(ResetCase(variant, where, lengths=lengths))


@every_variant
@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.9])
def test_native_scans_of_large_layers_match_the_reference(variant, dropout, monkeypatch):
    monkeypatch.setattr(thresholds, "MIN_PARALLEL_WORK", 0)
    assert_native_right(ResetCase(variant, lengths=torch.tensor(RAGGED), dropout=dropout))


@pytest.mark.parametrize("dropout", [0.5, 0.8])
@whole_or_ragged
def test_the_wide_form_matches_the_reference(dropout, lengths, monkeypatch, loops):
    for name, value in {"MIN_WIDE_WIDTH": 0, "MAX_WIDE_EXTRA": 1e9, "MAX_WIDE_EXTRA_SELECTED": 1e9}.items():
        monkeypatch.setattr(thresholds, name, value)
    assert_native_right(ResetCase(RRU, lengths=lengths, dropout=dropout))
    assert set(loops) == {"rru_wide_forward", "rru_wide_backward"}


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@whole_or_ragged
def test_the_narrow_form_matches_the_reference(dropout, lengths, monkeypatch, loops):
    monkeypatch.setattr(thresholds, "MIN_PARALLEL_WORK", 0)
    monkeypatch.setattr(thresholds, "MIN_TEAM_ROWS", 1)
    assert_native_right(ResetCase(RRU, lengths=lengths, dropout=dropout))
    assert "rru_narrow_backward" in loops


@every_cell
def test_products_in_bfloat16_match_the_reference_as_well_as_without_resets(variant):
    """Both round, in another order; a reset that was missed would be far off."""
    results = []
    for where in ("none", "some"):
        torch.manual_seed(1)
        case = ResetCase(variant, where, dtype=torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            pairs = zip(*(case.run_and_differentiate(scan) for scan in (native.scan, reference.scan)), strict=True)
            results.append(max(((a - b).norm() / b.norm().clamp_min(1)).item() for a, b in pairs))
    assert results[1] < max(2 * results[0], 0.02)


@every_cell
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_that_share_the_weights_reset_their_own_rows(variant, threads, monkeypatch):
    monkeypatch.setattr(thresholds, "MIN_PARALLEL_WORK", 0)
    monkeypatch.setattr(thresholds, "MAX_CACHED_WEIGHTS", 0)
    case = ResetCase(variant, lengths=torch.tensor(RAGGED))
    wanted = case.run_and_differentiate(reference.scan)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_near(case.run_and_differentiate(native.scan), wanted, 1e-9)
    finally:
        torch.set_num_threads(before)


@every_variant
@whole_or_ragged
@each_mask
def test_fused_scans_match_the_reference(variant, lengths, where):
    case = ResetCase(variant, where, lengths=lengths, dropout=0.5)
    computed = case.run_and_differentiate(fused.scan)
    assert_near(computed, case.run_and_differentiate(reference.scan), 1e-9)
    with torch.no_grad():
        assert_near(case.run(fused.scan), computed[: 1 + len(case.state)], 1e-12)


@every_cell
@pytest.mark.parametrize("scan", [native.scan, fused.scan], ids=["native", "fused"])
def test_gradients_pass_gradcheck_also_twice(variant, scan):
    case = ResetCase(variant, m=2, n=2, steps=3, batch=2)
    mask = MASKS["some"][:3, :2]
    parts = len(case.state)

    def run(x, *states):
        inputs = case.inputs._replace(x=x, state=states[:parts], resets=Resets(mask, states[parts:]))
        outputs, last = scan(case.cell, inputs)
        return outputs, *last

    tensors = case.x, *case.state, *case.reset_to
    assert torch.autograd.gradcheck(run, tensors)
    if scan is native.scan:
        assert torch.autograd.gradgradcheck(run, tensors)


@pytest.mark.parametrize("cell", [rru.RRUCell, rru.GRUCell, rru.LSTMCell])
@whole_or_ragged
def test_int8_weights_match_their_steps(cell, lengths):
    torch.manual_seed(0)
    small = rru.quantize(cell(3, 8))
    case = ResetCase(RRU, m=3, n=8, lengths=lengths, dtype=torch.float32)
    x, mask = case.x.detach(), case.resets.mask
    state, reset_to = (tuple(torch.randn(BATCH, 8) for _ in small.state_names) for _ in range(2))
    computed, last = quantized.scan(small, reference.ScanInputs(x, state, lengths, resets=Resets(mask, reset_to)))
    for t in range(STEPS):
        running = torch.ones(BATCH, 1).bool() if lengths is None else (t < lengths).unsqueeze(1)
        output, new = small.native_step(small, x[t], reference.reset(state, mask[t], reset_to))
        state = tuple(torch.where(running, now, old) for now, old in zip(new, state, strict=True))
        assert_near([computed[t]], [output * running], 1e-6)
    assert_near(last, state, 1e-6)
