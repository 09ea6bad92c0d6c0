"""Every cell and variant matches the oracle, an independent implementation of the paper's equations."""

import numpy as np
import pytest
import torch

import rru
from tests import oracle
from tests.variants import CELLS, FUSED, NATIVE, VARIANTS, assert_same, expected, random_state

every_variant = pytest.mark.parametrize("variant", [*VARIANTS, *NATIVE, *FUSED], ids=str)


@every_variant
def test_one_layer_from_its_default_state(variant):
    layer = variant.build()
    x = torch.randn(6, 3, 3).double()
    outputs, state = layer(x)
    wanted_outputs, wanted_state = expected(layer, x)
    assert_same(outputs, wanted_outputs)
    assert_same(state, wanted_state)


@every_variant
def test_two_layers_in_both_directions_with_lengths_from_a_given_state(variant):
    layer = variant.build(num_layers=2, bidirectional=True)
    x, lengths, state = torch.randn(6, 4, 3).double(), torch.tensor([6, 1, 4, 2]), random_state(layer, 4)
    outputs, last = layer(x, state, lengths=lengths)
    wanted_outputs, wanted_last = expected(layer, x, state, lengths)
    assert_same(outputs, wanted_outputs)
    assert_same(last, wanted_last)


@every_variant
def test_dropout_masks_match_philox(variant):
    rate, steps, batch = 0.4, 3, 2
    layer = variant.build(num_layers=2, bidirectional=True, dropout=rate)
    x = torch.randn(steps, batch, 3).double()
    torch.manual_seed(5)
    outputs, state = layer(x)

    torch.manual_seed(5)
    masks = []
    for cell in layer.cells:
        seed = int(torch.randint(2**63 - 1, ()))
        key = (seed % 2**32, seed // 2**32)
        mask = np.zeros((steps, batch, cell.mask_size))
        for t, b, f in np.ndindex(mask.shape):
            word = oracle.philox4x32_10((f // 4, b, t, 0), key)[f % 4]
            mask[t, b, f] = (word / 2**32 >= rate) / (1 - rate)
        masks.append(mask)
    wanted_outputs, wanted_state = expected(layer, x, masks=masks)
    assert_same(outputs, wanted_outputs)
    assert_same(state, wanted_state)


@pytest.mark.parametrize("variant", CELLS, ids=str)
def test_float32_is_within_rounding_of_float64(variant):
    layer = variant.build(num_layers=2)
    x = torch.randn(20, 3, 3).double()
    outputs, _ = expected(layer, x)
    assert_same(layer.float()(x.float())[0], outputs.float(), tolerance=1e-4)


def test_expanded_size_is_q_times_input_and_hidden_size_rounded():
    assert rru.RRUCell(88, 100, expansion=1.76958).expanded_size == 333  # 1.76958 * 188 = 332.68
    assert rru.RRUCell(3, 4, expansion=0.1).expanded_size == 1  # 0.7
