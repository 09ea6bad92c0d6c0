"""Flush denormal numbers to zero in training: computing with them takes a hundred times as long."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Flush denormal numbers to zero inside the `with` block, then restore the previous setting.

    Torch's threads copy the setting once, from the thread that starts them, so enter this before computing anything.
    """
    flushed_before = sys.float_info.min / 2 == 0.0  # half of the smallest normal number; torch has no getter
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed_before)
