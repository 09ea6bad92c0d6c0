"""Dropout masks from a counter: `dropout_mask(seed, step, ...)` is a pure function, so nothing needs storing.

Every entry's random number is Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011) of the
counter (feature // 4, batch row, step, 0) under the 64-bit seed as its key. Forward pass, backward pass, any back end
and any number of threads can therefore make the same mask again, in any order.
"""

import torch
from torch import Tensor

_WORD = 0xFFFFFFFF  # tensors are int64, each entry holding one unsigned 32-bit word
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def dropout_seed(device: torch.device) -> Tensor:
    """Draws a seed from torch's generator of `device`: int64, shape ()."""
    return torch.randint(2**63 - 1, (), device=device)


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], seed: Tensor) -> Tensor:
    """Philox4x32-10 of four broadcastable int64 counter words: int64 in [0, 2**32), one more dimension of size 4."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & _WORD, (seed >> 32) & _WORD
    for _ in range(_ROUNDS):
        high0, low0 = _product(c0, _MULTIPLIERS[0])
        high1, low1 = _product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _KEY_INCREMENTS[0] & _WORD, k1 + _KEY_INCREMENTS[1] & _WORD
    return torch.stack((c0, c1, c2, c3), dim=-1)  # by now every word depends on, and has the shape of, all four


def _product(words: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """The high and the low 32 bits of a product, in two halves: compilers need not let a signed overflow wrap."""
    low, high = words * (multiplier & 0xFFFF), words * (multiplier >> 16)
    return high + (low >> 16) >> 16, low + ((high & 0xFFFF) << 16) & _WORD


def dropout_mask(seed: Tensor, step: int, batch: int, features: int, rate: float, dtype: torch.dtype) -> Tensor:
    """The mask of one step, (batch, features): 0 with probability `rate`, else 1 / (1 - rate) (inverted dropout)."""
    blocks = torch.arange((features + 3) // 4, device=seed.device)
    rows = torch.arange(batch, device=seed.device).unsqueeze(1)
    counter = (blocks, rows, torch.full_like(blocks, step), torch.zeros_like(blocks))
    words = philox(counter, seed).reshape(batch, 4 * len(blocks))[:, :features]  # (B, features)
    return (words >= round(rate * 2**32)).to(dtype) / (1 - rate)
