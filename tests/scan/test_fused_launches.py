"""What the fused scans issue: kernels a step, memory, and nothing that waits for the device."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rru import scan
from rru.scan.arguments import ScanSpec
from rru.scan.fused import devices, operators
from rru.scan.fused.scan import FusedScan
from rru.scan.kernels import KERNELS
from tests.scan.case import Case, every_variant
from tests.variants import VARIANTS


class Counting(TorchDispatchMode):
    """Counts operators that launch a kernel: all but views and those that only allocate."""

    FREE = ("empty", "view", "detach", "alias", "expand", "slice", "select", "unbind", "split", "lift")
    count = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        name = function._schema.name
        is_view = any(r.alias_info and not r.alias_info.is_write for r in function._schema.returns)
        if not is_view and not any(free in name for free in self.FREE):
            self.count += 1
        return function(*arguments, **(keywords or {}))


class NeverWaits(TorchDispatchMode):
    """Raise where a device would have to be waited for: values read by the host, or copied to it."""

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        name = function._schema.name
        assert name not in (
            "aten::_local_scalar_dense",
            "aten::item",
            "aten::nonzero",
            "aten::is_nonzero",
            "aten::equal",
        )
        assert not (name == "aten::_to_copy" and (keywords or {}).get("device") is not None)
        return function(*arguments, **(keywords or {}))


def run(case, mode):
    """Run the loops of a cell, forward and backward, below the operators, which a mode cannot look into."""
    cell, kernel = case.cell, KERNELS[case.cell.kernel]
    weights = [weight.detach() for weight in kernel.weights(cell, cell.weights())]
    state = [part.detach() for part in case.state]
    spec = ScanSpec(cell.kernel, kernel.options.of(cell), cell.dropout, case.reverse)
    fused = FusedScan(spec, case.x.detach(), state, weights, case.lengths, case.seed)
    counts = []
    with torch.no_grad(), mode:
        saved = operators.allocate_saved(fused, True)
        before = getattr(mode, "count", 0)
        outputs, last = kernel.fused.forward(fused, saved)
        counts.append(getattr(mode, "count", 0) - before)
        kernel.fused.backward(fused, saved, [torch.ones_like(part) for part in (outputs, *last)])
        counts.append(getattr(mode, "count", 0) - before - counts[0])
    return counts


def per_step(variant, mode=Counting, **options):
    """Kernels a step, forward and backward: what more steps add."""
    few, many = (
        run(Case(variant, m=3, n=5, steps=steps, batch=2, dropout=0.5, dtype=torch.float32, **options), mode())
        for steps in (16, 36)  # after the loop, some sums are made in eight pieces
    )
    return [(more - less) / 20 for less, more in zip(few, many, strict=True)]


# In torch operations. The reference issues 285 and 34 for the RRU: here masks are made for many steps at once.
IN_TORCH = {"rru": (19, 20), "lstm": (18, 36), "gru": (17, 25), "gru-reset-after": (17, 23)}


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.name in IN_TORCH], ids=str)
@pytest.mark.skipif(devices.interpreted(), reason="Triton's kernels run instead: test_fused_triton.py counts them")
def test_launches_a_step_in_torch_operations(variant):
    for computed, most in zip(per_step(variant), IN_TORCH[variant.name], strict=True):
        assert computed <= most


@every_variant
def test_nothing_waits_for_the_device(variant):
    run(Case(variant, m=3, n=5, batch=2, lengths=torch.tensor([5, 2]), dropout=0.5, dtype=torch.float32), NeverWaits())


def peak_memory(case, backend):
    """The most bytes that torch's allocator has given out at a time during a training step."""

    def run(cell, inputs):
        return scan.run(cell, inputs, backend)

    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        case.run_and_differentiate(run)
    now = peak = 0
    for event in sorted(profile.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


@every_variant
@pytest.mark.parametrize("lengths", [None, torch.tensor([60, 20, 10, 60])], ids=["whole", "ragged"])
def test_the_peak_memory_of_a_training_step_is_no_more_than_the_native_scans(variant, lengths):
    case = Case(variant, m=6, n=40, steps=60, batch=4, lengths=lengths, dtype=torch.float32)
    assert peak_memory(case, "fused") <= peak_memory(case, "native")
