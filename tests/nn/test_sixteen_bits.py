"""bfloat16 and float16 weights: the native scans run, sum in float32 and return the results rounded."""

import copy

import pytest
import torch

from tests.variants import NATIVE, randomize, state_parts

every_variant = pytest.mark.parametrize("variant", NATIVE, ids=str)


def run(layer, x, weighed):
    layer.zero_grad()
    outputs, state = layer(x, lengths=torch.tensor([5, 3]))
    outputs.backward(weighed.to(outputs.dtype))
    return [outputs, *state_parts(state), *(parameter.grad for parameter in layer.parameters())]


@every_variant
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_outputs_and_gradients_match_rounded_float32(variant, dtype):
    torch.manual_seed(1)  # no value so near to the kink of a ReLU that rounding moves it across
    layer = randomize(variant.layer(3, 4, dtype=torch.float32, **variant.options)).to(dtype)
    whole = copy.deepcopy(layer).float()  # the same weights
    tolerance = (4 if dtype == torch.bfloat16 else 1) * torch.finfo(dtype).eps  # with bfloat16, products round too
    x, weighed = torch.randn(5, 2, 3).to(dtype), torch.randn(5, 2, layer.output_size).to(dtype)
    for found, wanted in zip(run(layer, x, weighed), run(whole, x.float(), weighed), strict=True):
        assert found.dtype == dtype
        assert (found.float() - wanted).norm() <= tolerance * wanted.norm()
    with torch.no_grad():
        step, _ = layer.cells[0](x[0])
    assert step.dtype == dtype
