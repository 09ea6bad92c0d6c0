"""The gradient of a matrix from the rows of all steps, which large layers leave to the library."""

import os

import pytest
import torch

from rru.scan.native import library
from rru.scan.native.weight_gradients import by_input_and_state, over_steps

pytestmark = pytest.mark.skipif(not library.BUILT, reason="this build has no native library")

SIZES = [(1, 1, 1, 1), (3, 2, 7, 33), (5, 60, 13, 40), (2, 128, 400, 9)]  # steps, batch, rows and columns of the matrix


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("steps", "batch", "out", "size"), SIZES)
def test_it_is_the_product_over_all_steps(steps, batch, out, size, threads):
    grads, values = (torch.randn(steps, batch, width, dtype=torch.float64) for width in (out, size))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        computed = over_steps(grads, values, False)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(computed, torch.einsum("tbo,tbi->oi", grads, values), rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("each_instruction_set")
def test_rows_may_be_parts_of_wider_rows():
    wide, values = torch.randn(4, 5, 11), torch.randn(4, 5, 50)
    for one, two in ((wide[..., :3], values[..., 20:]), (wide[..., 3:], values), (wide, values[..., :1])):
        expected = torch.einsum("tbo,tbi->oi", one.double(), two.double()).float()
        torch.testing.assert_close(over_steps(one, two, False), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize(("steps", "batch", "out", "size"), SIZES)
def test_values_may_go_through_a_relu(steps, batch, out, size, bfloat16):
    grads, values = torch.randn(steps, batch, out), torch.randn(steps, batch, size)
    computed = over_steps(grads, values, bfloat16, relu=True)
    assert torch.equal(computed, over_steps(grads, values.relu(), bfloat16))


@pytest.mark.usefixtures("each_instruction_set")
def test_nan_goes_through_the_relu():
    values = torch.tensor([[[-1.0, torch.nan, 2.0]]])
    computed = over_steps(torch.ones(1, 1, 1), values, False, relu=True)
    torch.testing.assert_close(computed, torch.tensor([[0.0, torch.nan, 2.0]]), equal_nan=True)


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("m", [1, 7, 40])
def test_the_gradients_of_input_and_state_are_those_of_each(m):
    grads, xh = torch.randn(3, 50, 20), torch.randn(3, 50, 41)
    for bfloat16 in (False, True):
        of_x, of_h = by_input_and_state(grads, xh, m, bfloat16)
        torch.testing.assert_close(of_x, over_steps(grads, xh[..., :m], bfloat16))
        torch.testing.assert_close(of_h, over_steps(grads, xh[..., m:], bfloat16))


@pytest.mark.skipif("RRU_LARGE" not in os.environ, reason="takes 20 GB of memory; RRU_LARGE=1 runs it")
def test_a_tensor_of_more_elements_than_an_int_counts():
    values = torch.zeros(256, 1, 2**23 + 64)
    values[0, 0, -1], values[-1, 0, -1] = 3, 4
    computed = over_steps(torch.ones(256, 1, 1), values, False)
    assert computed[0, -1] == 7
    assert computed.sum() == 7


def test_without_steps_it_is_zero():
    assert torch.equal(over_steps(torch.ones(0, 3, 2), torch.ones(0, 3, 4), False), torch.zeros(2, 4))


@pytest.mark.usefixtures("each_instruction_set")
def test_an_infinite_gradient_reaches_its_row_alone():
    grads, values = torch.ones(2, 3, 8), torch.ones(2, 3, 5)
    grads[0, 0, 6] = torch.inf
    expected = torch.full((8, 5), 6.0)
    expected[6] = torch.inf
    assert torch.equal(over_steps(grads, values, False), expected)


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("size", [1, 7, 40, 131])
def test_a_symmetric_product_is_computed_by_half(size, threads):
    values, weights = torch.randn(5, 60, size, dtype=torch.float64), torch.rand(5, 60, 1, dtype=torch.float64)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        computed = over_steps(values * weights, values, False, symmetric=True)
    finally:
        torch.set_num_threads(before)
    wanted = torch.einsum("tbo,tbi->oi", values * weights, values)
    torch.testing.assert_close(computed, wanted, rtol=1e-12, atol=1e-12)
    assert torch.equal(computed, computed.T)
