"""A few cases of `make fuzz` for each reader and for the native scans."""

import pytest
import torch

from rru.scan.kernels import KERNELS
from rru.scan.native import library
from rru.scan.native.call import Loop, scan_numbers
from rru.scan.native.library import Function, memory_of
from tests.attacks.fuzz import FUZZERS, fuzz


@pytest.mark.parametrize("name", FUZZERS)
def test_random_cases_are_read_or_refused(name):
    if name in ("layer", "library") and not library.BUILT:
        pytest.skip("the native library is not built")
    assert fuzz(name, seed=0, cases=10).total() == 10


@pytest.mark.skipif(not library.BUILT, reason="the native library is not built")
@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"steps": 2**20, "batch": 2**12}, r"steps times sequences must be at most 2\*\*30"),
        ({"hidden_size": 2**29}, "hidden_size must be from 1 to 268435456"),
        ({"input_size": 2**31 - 1}, "input_size must be from 1 to 268435456"),
    ],
)
def test_sizes_that_an_int_does_not_hold_are_refused(numbers, message):
    loop = Loop("forward", KERNELS["lstm"].native, (), torch.float32, (1, 1, 1), 1, True, library.instruction_set)
    given = scan_numbers(loop) | numbers
    with pytest.raises(RuntimeError, match=message):
        Function("lstm_forward", torch.float32, given)(memory_of([torch.zeros(1)]))
