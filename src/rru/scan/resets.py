"""Check masks that say where states are reset. Layers, steppers and streams call it."""

import torch
from torch import Tensor


def check_resets(resets: Tensor, expected: tuple[int, ...], meaning: str) -> None:
    """Raise unless a mask is boolean and of the expected shape. `meaning` names its dimensions for the error."""
    if not isinstance(resets, Tensor):
        raise TypeError(f"resets must be a boolean tensor of shape {meaning}, got {type(resets).__name__}")
    if resets.dtype != torch.bool:
        raise TypeError(f"resets must be boolean, got {resets.dtype}: call .bool(), or compare with a number")
    if resets.shape != expected:
        raise ValueError(f"resets must have shape {expected} = {meaning}, got {tuple(resets.shape)}")


def within_lengths(resets: Tensor, lengths: Tensor | None) -> Tensor:
    """Return a mask (T, B) without the resets after the end of each sequence."""
    if lengths is None:
        return resets
    return resets & (torch.arange(len(resets), device=resets.device).unsqueeze(1) < lengths)
