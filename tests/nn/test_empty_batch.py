"""An empty batch goes through every layer, forward and backward, as it does in torch."""

import pytest
import torch

from tests.variants import FUSED, NATIVE, VARIANTS, state_parts


@pytest.mark.parametrize("variant", VARIANTS + NATIVE + FUSED, ids=str)
def test_an_empty_batch_has_empty_outputs_and_zero_gradients(variant):
    layer = variant.build(dropout=0.3)
    x = torch.zeros(5, 0, 3, dtype=torch.float64, requires_grad=True)
    for lengths in (None, torch.zeros(0, dtype=torch.int64)):
        layer.zero_grad()
        output, state = layer(x, lengths=lengths)
        assert output.shape == (5, 0, layer.output_size)
        assert all(part.shape == (1, 0, 4) for part in state_parts(state))
        (output.sum() + sum(part.sum() for part in state_parts(state))).backward()
        assert x.grad.shape == x.shape
        for parameter in layer.parameters():
            assert parameter.grad is not None
            assert not parameter.grad.any()


@pytest.mark.parametrize("variant", NATIVE, ids=str)
def test_a_cell_steps_an_empty_batch(variant):
    cell = variant.build().cells[0].eval()
    with torch.no_grad():
        for _ in range(2):  # the second may take a shorter way
            output, state = cell(torch.zeros(0, 3, dtype=torch.float64))
            assert output.shape == (0, cell.output_size)
            assert all(part.shape == (0, 4) for part in state_parts(state))
