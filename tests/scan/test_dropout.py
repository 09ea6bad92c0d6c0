"""Masks from a counter: right numbers, right share, independent of everything but the seed."""

import pytest
import torch

from rru.scan.dropout import dropout_mask, philox

KNOWN_ANSWERS = [  # Random123's own test vectors for philox4x32, 10 rounds
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, -1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0x299F31D0A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "seed", "wanted"), KNOWN_ANSWERS)
def test_philox_gives_the_published_numbers(counter, seed, wanted):
    words = philox(tuple(map(torch.tensor, counter)), torch.tensor(seed))
    assert tuple(words.tolist()) == wanted


def mask(seed=3, step=0, batch=64, features=1024, rate=0.3):
    return dropout_mask(torch.tensor(seed), step, batch, features, rate, torch.float64)


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.7, 0.95])
def test_the_share_dropped_is_the_rate_and_the_mean_is_one(rate):
    values = mask(rate=rate)
    assert set(values.unique().tolist()) == {0.0, 1 / (1 - rate)}
    deviation = (rate * (1 - rate) / values.numel()) ** 0.5
    assert abs((values == 0).double().mean().item() - rate) < 4 * deviation


def test_rows_columns_steps_and_seeds_are_uncorrelated():
    first = mask()
    others = [mask(step=1), mask(seed=4), mask(seed=3 + 2**32), first.roll(1, dims=0), first.roll(1, dims=1)]
    for other in others:
        correlation = torch.corrcoef(torch.stack([first.flatten(), other.flatten()]))[0, 1]
        assert abs(correlation) < 4 / first.numel() ** 0.5


def test_a_part_of_a_batch_has_its_part_of_the_mask():
    whole = mask()
    assert torch.equal(mask(batch=5, features=13), whole[:5, :13])
