"""Gradients, and gradients of gradients, against finite differences in float64.

`fast_mode` compares a random projection of the Jacobian instead of each of its entries: every input still counts.
"""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from tests.variants import FUSED, NATIVE, VARIANTS, random_state, state_parts

# Of other back ends only the cells with their defaults: tests/scan compares all their gradients with the reference's.
CELLS_ELSEWHERE = [variant for variant in NATIVE + FUSED if variant.name.count("-") == 1]
every_variant = pytest.mark.parametrize("variant", [*VARIANTS, *CELLS_ELSEWHERE], ids=str)


def as_function(layer, lengths, seed=0):
    """The layer as a function of input, states and all parameters."""
    names = [name for name, _ in layer.named_parameters()]
    count = len(layer.cells[0].state_names)

    def run(x, *tensors):
        torch.manual_seed(seed)  # the same dropout every time
        state = layer.cells[0].public_state(tensors[:count])
        parameters = dict(zip(names, tensors[count:], strict=True))
        outputs, last = functional_call(layer, parameters, (x, state), {"lengths": lengths})
        return outputs, *state_parts(last)

    return run


def arguments(layer, x):
    tensors = [x, *state_parts(random_state(layer, x.shape[1])), *layer.parameters()]
    return tuple(tensor.detach().clone().requires_grad_() for tensor in tensors)


@every_variant
def test_gradients_with_lengths_layers_and_directions(variant):
    layer = variant.build(input_size=2, hidden_size=2, num_layers=2, bidirectional=True)
    x = torch.randn(3, 3, 2).double()
    run = as_function(layer, lengths=torch.tensor([3, 1, 2]))
    assert gradcheck(run, arguments(layer, x), fast_mode=True)


@every_variant
def test_gradients_with_dropout(variant):
    layer = variant.build(input_size=2, hidden_size=3, dropout=0.5)
    x = torch.randn(4, 2, 2).double()
    assert gradcheck(as_function(layer, lengths=None), arguments(layer, x), fast_mode=True)


@every_variant
def test_gradients_of_gradients(variant):
    layer = variant.build(input_size=2, hidden_size=2, bidirectional=True)
    run = as_function(layer, lengths=torch.tensor([2, 1]))
    assert gradgradcheck(run, arguments(layer, torch.randn(2, 2, 2).double()), fast_mode=True)


@pytest.mark.parametrize("variant", CELLS_ELSEWHERE, ids=str)
def test_differentiable_gradients_if_the_state_comes_from_the_same_layer(variant):
    layer = variant.build()
    x = torch.randn(4, 2, 3).double().requires_grad_()

    def gradients(**options):
        _, state = layer(x[:2])
        outputs, _ = layer(x[2:], state)
        return torch.autograd.grad(outputs.pow(2).sum(), [x, *layer.parameters()], **options)

    for differentiable, plain in zip(gradients(create_graph=True), gradients(), strict=True):
        torch.testing.assert_close(differentiable, plain)
