"""exp, sigmoid and tanh of the native scans are right to the last bits, for inputs of any size."""

import math

import pytest
import torch

from rru.scan.native.library import Function, memory_of

pytestmark = pytest.mark.usefixtures("each_instruction_set")
EXACT = {"exp": torch.exp, "sigmoid": torch.sigmoid, "tanh": torch.tanh}
every_function = pytest.mark.parametrize("name", EXACT)
every_type = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def native(name, x):
    y = torch.full_like(x, math.nan)
    Function(name, x.dtype, {"size": len(x)})(memory_of([x, y]))
    return y


def inputs(dtype):
    """Both signs of numbers from the smallest normal one to beyond all that the functions tell apart."""
    smallest = math.log2(torch.finfo(dtype).tiny)
    sizes = 2 ** torch.linspace(smallest, 11, 100_003, dtype=torch.float64)
    evenly = torch.linspace(-100, 100, 50_021, dtype=torch.float64)
    return torch.cat([sizes, -sizes, evenly]).to(dtype)


@every_function
@every_type
def test_relative_error_is_a_few_units_in_the_last_place(name, dtype):
    x, info = inputs(dtype), torch.finfo(dtype)
    computed, wanted = native(name, x).double(), EXACT[name](x.double())
    normal = (wanted.abs() >= info.tiny) & (wanted <= info.max / 4)
    error = (computed[normal] - wanted[normal]).abs() / wanted[normal].abs()
    assert error.max() < 3 * info.eps
    small = wanted.abs() < info.tiny
    assert (computed[small].abs() <= info.tiny).all()


@every_type
def test_tanh_and_sigmoid_have_limits_and_nan_stays_nan(dtype):
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, 1e30, -1e30, math.nan], dtype=dtype)
    torch.testing.assert_close(native("tanh", x), x.tanh(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(native("sigmoid", x), x.sigmoid(), rtol=0, atol=0, equal_nan=True)
    assert native("exp", x)[-1].isnan()


@every_function
@every_type
def test_denormal_inputs_count_as_zero(name, dtype):
    tiny = torch.finfo(dtype).tiny
    x = torch.tensor([tiny / 2, -tiny / 4], dtype=dtype)
    assert torch.equal(native(name, x), EXACT[name](torch.zeros(2, dtype=dtype)))


@every_function
@pytest.mark.parametrize("size", [0, 1, 3, 7, 8, 9, 31])
def test_any_number_of_entries_and_none_beyond(name, size):
    x = torch.randn(size + 1)
    y = torch.full((size + 1,), 7.0)
    Function(name, torch.float32, {"size": size})(memory_of([x[:size], y[:size]]))
    torch.testing.assert_close(y[:size], EXACT[name](x[:size]))
    assert y[size] == 7
