"""The native scans compute what the reference computes: any sizes, any threads, every instruction set."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings

from rru.scan import reference, thresholds
from rru.scan.native import run as native
from rru.scan.native.library import INSTRUCTION_SETS
from tests.scan.case import (
    RAGGED,
    Case,
    assert_equal,
    assert_near,
    cases,
    every_cell,
    every_variant,
    using,
    whole_or_ragged,
)
from tests.timeouts import TIMEOUT


def assert_right(case, tolerance):
    wanted = case.run_and_differentiate(reference.scan)
    for instruction_set in INSTRUCTION_SETS:
        with using(instruction_set):
            computed = case.run_and_differentiate(native.scan)
            assert_near(computed, wanted, tolerance)
            with torch.no_grad():  # nothing is saved for the backward pass
                assert_equal(case.run(native.scan), computed[: 1 + len(case.state)])


@every_variant
@given(case=cases())
def test_outputs_states_and_all_gradients_match_reference(variant, case):
    assert_right(Case(variant, **case), 1e-9)


@every_variant
@settings(max_examples=10)
@given(case=cases(torch.float32, largest=(20, 20, 16, 4)))  # small: where ReLU bends, rounding decides on the gradient
def test_outputs_states_and_all_gradients_match_reference_in_float32(variant, case):
    assert_right(Case(variant, **case), 1e-4)


@every_variant
@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [2, 6])  # of three sequences: too few to pack the weights for, and enough
def test_wide_layers_match_reference(variant, dropout, steps):  # wider than any block of a product
    assert_right(Case(variant, m=30, n=300, steps=steps, batch=3, dropout=dropout, spread=0.1), 1e-9)


@pytest.fixture
def _nothing_is_small(monkeypatch):
    monkeypatch.setattr(thresholds, "MIN_PARALLEL_WORK", 0)


@pytest.mark.usefixtures("_nothing_is_small")
@every_variant
@whole_or_ragged
@pytest.mark.parametrize("dropout", [0.0, 0.9])
def test_gradients_of_large_layers_match_reference(variant, lengths, dropout):
    assert_right(Case(variant, lengths=lengths, dropout=dropout), 1e-9)


@pytest.mark.usefixtures("_nothing_is_small")
@every_variant
@pytest.mark.parametrize("dropout", [0.0, 0.9])
def test_gradients_of_large_layers_do_not_depend_on_whether_x_needs_one(variant, dropout):
    case, results = Case(variant, dropout=dropout), []
    for x in (case.x, case.x.detach()):
        outputs, _ = native.scan(case.cell, case.inputs._replace(x=x))
        total = (outputs * case.weighed).sum()
        results.append(torch.autograd.grad(total, list(case.cell.parameters()), materialize_grads=True))
    assert_near(*results, 1e-12)


@every_cell
@pytest.mark.parametrize("batch", [1, 2, 7, 13])  # panels in pairs, a tile of rows, several
def test_products_with_more_weights_than_a_cache_holds_match_reference(variant, batch):
    assert_right(Case(variant, m=50, n=310, steps=6, batch=batch, spread=0.1), 1e-9)


def assert_threads_do_not_matter(case, threads):
    results = []
    for number in threads:
        torch.set_num_threads(number)
        results.append(case.run_and_differentiate(native.scan))
    for other in results[1:]:  # but for the order of sums: each team of threads decides whether to skip zeros
        assert_near(other, results[0], 1e-12)


@pytest.mark.usefixtures("_nothing_is_small")
@every_variant
@whole_or_ragged
@pytest.mark.parametrize(
    "dropout", [0.0, 0.3, 0.9]
)  # 0.3: the RRU's threads differ in whether zeros are worth skipping
def test_numbers_do_not_depend_on_the_number_of_threads(variant, lengths, dropout):
    assert_threads_do_not_matter(Case(variant, lengths=lengths, dropout=dropout), (1, 2, 9))  # 9: more than sequences


@pytest.mark.usefixtures("_nothing_is_small", "each_instruction_set")
@every_variant
@pytest.mark.parametrize("dropout", [0.0, 0.9])
def test_numbers_do_not_depend_on_how_many_threads_share_the_weights(variant, dropout):  # of a wide layer, a few rows
    case = Case(variant, m=30, n=300, lengths=torch.tensor(RAGGED), dropout=dropout, spread=0.1)
    assert_threads_do_not_matter(case, (1, 2, 3))


THREADS_FAIL = """
import resource, torch, rru
from rru.scan import thresholds
thresholds.MIN_PARALLEL_WORK = 0  # else it would use one thread
layer = rru.LSTM(3, 5, backend="native")
x = torch.randn(64, 64, 3)
layer(x)  # allocates what the first call needs
torch.set_num_threads(64)  # one sequence each, and a stack of megabytes for each thread
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, resource.RLIM_INFINITY))
for attempt in range(3):
    try:
        with torch.no_grad():
            layer(x)
    except MemoryError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
torch.set_num_threads(1)
print(layer(x)[0].isfinite().all())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be told to run out of memory")
def test_threads_that_cannot_be_started_are_an_error_and_harm_nothing():
    ran = subprocess.run([sys.executable, "-c", THREADS_FAIL], capture_output=True, text=True, timeout=TIMEOUT)
    assert ran.returncode == 0, ran.stderr
    *errors, after = ran.stdout.splitlines()
    assert len(errors) == 3
    assert all("could not allocate memory or start threads" in error for error in errors)
    assert after == "tensor(True)"
