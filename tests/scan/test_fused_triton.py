"""The Triton kernels of the fused scans, run by Triton's interpreter on the CPU: `make test-gpu`."""

import pytest
import torch

from rru.scan import reference
from rru.scan.arguments import ScanArguments, ScanSpec
from rru.scan.dropout import dropout_mask
from rru.scan.fused import devices, pointwise
from rru.scan.fused import run as fused
from rru.scan.fused.rows import Normalized
from tests.scan.case import Case, assert_near, every_cell, every_variant
from tests.scan.test_fused_launches import Counting, per_step
from tests.variants import VARIANTS

if not devices.runs_triton(torch.device("cpu"), torch.float32):
    pytest.skip("needs Triton and TRITON_INTERPRET=1: make test-gpu", allow_module_level=True)

from rru.scan.fused.triton import pointwise as triton_pointwise
from rru.scan.fused.triton import whole

SMALL = {"m": 5, "n": 9, "steps": 3, "batch": 3, "dtype": torch.float32}
LENGTHS = torch.tensor([3, 1, 2])
ways = pytest.mark.parametrize(
    "way",
    [{}, {"dropout": 0.5, "lengths": LENGTHS}, {"dropout": 0.5, "lengths": LENGTHS, "reverse": True}],
    ids=["plain", "ragged-dropout", "ragged-dropout-reverse"],
)


@pytest.fixture
def step_by_step(monkeypatch):
    """No layer is small enough to run in one kernel."""
    monkeypatch.setattr(whole, "MAX_WHOLE_STATE", 0)


def assert_right(case, tolerance=1e-5):
    computed = case.run_and_differentiate(fused.scan)
    assert_near(computed, case.run_and_differentiate(reference.scan), tolerance)
    with torch.no_grad():  # nothing is saved for the backward pass
        assert_near(case.run(fused.scan), computed[: 1 + len(case.state)], tolerance)


@every_variant
@ways
@pytest.mark.usefixtures("step_by_step")
def test_outputs_states_and_all_gradients_match_reference(variant, way):
    assert_right(Case(variant, **SMALL, **way))


IN_ONE_KERNEL = [
    v for v in VARIANTS if v.name.startswith("rru") and not {"relu_layers", "activate_outputs"} & {*v.options}
]


@pytest.mark.parametrize("variant", IN_ONE_KERNEL, ids=str)
@ways
def test_the_whole_loop_in_one_kernel_matches_reference(variant, way, monkeypatch):
    ran = []
    launch = triton_pointwise.launch
    monkeypatch.setattr(
        triton_pointwise, "launch", lambda kernel, *rest, **more: ran.append(kernel) or launch(kernel, *rest, **more)
    )
    assert_right(Case(variant, **SMALL, **way))
    assert {*ran} == {whole.forward_loop, whole.backward_loop}


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_whole_loop_runs_several_tiles_of_the_batch_and_blocks_of_units(dropout):
    lengths = torch.arange(18) % 3 + 1
    assert_right(Case(VARIANTS[0], m=5, n=20, steps=3, batch=18, lengths=lengths, dropout=dropout, dtype=torch.float32))


@every_cell
@pytest.mark.usefixtures("step_by_step")
def test_rows_wider_than_a_block(variant):
    assert_right(Case(variant, m=3, n=530, steps=1, batch=2, dropout=0.5, dtype=torch.float32), 1e-4)


@pytest.mark.parametrize("seed", [0, -1, 2**62 + 12345])
@pytest.mark.parametrize("rate", [0.5, 0.999, 1e-3])
def test_masks_match_reference_bit_for_bit(seed, rate):
    seed, step, batch, features = torch.tensor(seed), 2**20 + 3, 3, 37
    scan = ScanArguments(ScanSpec("rru", (), rate, False), torch.empty(1, batch, 1), [], [], None, seed)
    mask = triton_pointwise.masks(scan, features, range(1)).at(step)
    d, scale, ones = torch.empty(batch, features), torch.empty(batch), torch.ones(batch, features)
    triton_pointwise.normalized(Normalized(d, None, scale, ones, 0 * ones), mask, normalize=False, drop=True)
    wanted = dropout_mask(seed, step, batch, features, rate, torch.float32)
    assert torch.equal(d != 0, wanted != 0)
    torch.testing.assert_close(d, wanted, rtol=1e-6, atol=0)


@every_cell
@pytest.mark.parametrize("size", [0, 128], ids=["step-by-step", "in-one-kernel"])
def test_autocast_computes_what_torch_operations_compute(variant, size, monkeypatch):
    monkeypatch.setattr(whole, "MAX_WHOLE_STATE", size)
    case = Case(variant, **SMALL, dropout=0.5, lengths=LENGTHS)
    with torch.autocast("cpu", dtype=torch.float16):  # the interpreter multiplies bfloat16 as if its bits were numbers
        computed = case.run_and_differentiate(fused.scan)
        monkeypatch.setattr(devices, "pointwise", lambda device, dtype: pointwise)
        monkeypatch.setattr(devices, "runs_triton", lambda device, dtype: False)
        wanted = case.run_and_differentiate(fused.scan)
    for one, other in zip(computed, wanted, strict=True):
        assert one.dtype == other.dtype
        assert (one.float() - other.float()).norm() <= 0.02 * other.float().norm()


# Products and Triton's kernels a step, forward and backward, with dropout and lengths
MOST = {"rru": (4, 4), "rru-three-relu-layers": (8, 8), "lstm": (3, 3), "gru": (3, 3), "gru-reset-after": (3, 3)}


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.name in MOST], ids=str)
@pytest.mark.usefixtures("step_by_step")
def test_launches_a_step(variant, monkeypatch):
    for computed, most in zip(
        per_step(variant, mode(monkeypatch), lengths=torch.tensor([3, 4])), MOST[variant.name], strict=True
    ):
        assert computed <= most


def test_launches_of_a_sequence_in_one_kernel_do_not_grow_with_it(monkeypatch):
    assert per_step(VARIANTS[0], mode(monkeypatch)) == [0, 0]


def mode(monkeypatch):
    """Counts operators, and a launch of Triton as one. The kernels do not run: their interpreter uses operators."""

    def build():
        counting = Counting()

        def launch(kernel, grid, *arguments, **constants):
            counting.count += 1

        monkeypatch.setattr(triton_pointwise, "launch", launch)
        return counting

    return build
