"""Counter-based dropout masks: `dropout_mask(seed, step, ...)` is a pure function, so no mask needs to be stored.

The random numbers are Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011) of the counter
(feature // 4, batch row, step, 0), with the 64-bit seed as key. The forward pass, the backward pass, every back end and
any number of threads can therefore compute the same mask, in any order.
"""

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF  # each int64 entry holds one unsigned 32-bit word
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def dropout_seed(device: torch.device) -> Tensor:
    """Draw a seed, an int64 tensor of shape (), from torch's generator for `device`."""
    return torch.randint(2**63 - 1, (), device=device)


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], seed: Tensor) -> Tensor:
    """Return Philox4x32-10 of four broadcastable int64 counter words: int64 in [0, 2**32), with a last dim of 4."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & _WORD, (seed >> 32) & _WORD
    for _ in range(_ROUNDS):
        high0, low0 = _product(c0, _MULTIPLIERS[0])
        high1, low1 = _product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _KEY_INCREMENTS[0] & _WORD, k1 + _KEY_INCREMENTS[1] & _WORD
    return torch.stack((c0, c1, c2, c3), dim=-1)  # after the rounds all four have the broadcast shape


def _product(words: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """Return the high and low 32 bits of a product, computed in halves to avoid undefined signed overflow."""
    low, high = words * (multiplier & 0xFFFF), words * (multiplier >> 16)
    return high + (low >> 16) >> 16, low + ((high & 0xFFFF) << 16) & _WORD


def dropout_mask(seed: Tensor, step: int, batch: int, features: int, rate: float, dtype: torch.dtype) -> Tensor:
    """Return the mask for one step, (batch, features): 0 with probability `rate`, else 1 / (1 - rate)."""
    return dropout_masks(seed, range(step, step + 1), batch, features, rate, dtype)[0]


def dropout_masks(seed: Tensor, steps: range, batch: int, features: int, rate: float, dtype: torch.dtype) -> Tensor:
    """Return the masks for several steps at once, (steps, batch, features)."""
    times = torch.arange(steps.start, steps.stop, steps.step, device=seed.device).view(-1, 1, 1)
    rows = torch.arange(batch, device=seed.device).unsqueeze(1)
    blocks = torch.arange((features + 3) // 4, device=seed.device)
    words = philox((blocks, rows, times, torch.zeros_like(blocks)), seed)  # (steps, batch, blocks, 4)
    return (words.flatten(2)[..., :features] >= round(rate * 2**32)).to(dtype) / (1 - rate)
