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
    before = _are_flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _are_flushed() -> bool:
    """Return whether this thread flushes denormals. Torch has no getter, so it halves the smallest normal number."""
    return sys.float_info.min / 2 == 0.0
