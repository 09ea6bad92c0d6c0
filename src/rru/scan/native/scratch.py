"""Memory of large tensors that scans use one after the other.

The system gives out fresh memory page by page, each cleared. For what a training step saves and for the buffers of its
backward pass this can take a tenth of its time, and more in a virtual machine. So their memory is kept for later steps.

A tensor's memory comes back when the last reference to its storage is gone, whoever holds it, and only then.
"""

import ctypes
import functools
import math
import os
import threading
from typing import Any

import torch
from torch import Tensor

from rru.scan import thresholds

# Collecting garbage may free a tensor and give memory back at any time: hence a reentrant lock, and loops over copies.
_lock = threading.RLock()
_free: dict[int, Tensor] = {}  # bytes, by their address; what came back last is at the end
if hasattr(os, "register_at_fork"):  # else a fork while another thread has the lock would wait for it forever
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def is_large(shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Return whether keeping the memory of a tensor is worthwhile."""
    return _size(shape, dtype) >= thresholds.MIN_KEPT_TENSOR


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return an uninitialised tensor. If it is large, in kept memory."""
    if not is_large(shape, dtype):
        return torch.empty(shape, dtype=dtype, device="cpu")
    size = _size(shape, dtype)
    lease = _lease_of(size).from_address((memory := _take(size)).data_ptr())
    lease.memory = memory
    return torch.frombuffer(lease, dtype=dtype).view(shape)


def clear() -> None:
    """Free all memory that is kept."""
    with _lock:
        _free.clear()


def _size(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return math.prod(shape) * dtype.itemsize


def _take(size: int) -> Tensor:
    """Return memory of at least `size` bytes, rounded up to three binary digits: sequences have many lengths."""
    unit = 1 << max(size.bit_length() - 3, 0)
    capacity = -(-size // unit) * unit
    with _lock:
        for address, memory in reversed(list(_free.items())):
            if memory.nbytes == capacity and _free.pop(address, None) is not None:
                return memory
    return torch.empty(capacity, dtype=torch.uint8, device="cpu")


def _give_back(memory: Tensor) -> None:
    with _lock:
        _free[memory.data_ptr()] = memory
        while sum([kept.nbytes for kept in list(_free.values())]) > thresholds.MAX_KEPT_BYTES:
            _free.pop(next(iter(_free)))


@functools.lru_cache(maxsize=256)
def _lease_of(size: int) -> Any:
    """Return the class of an object that a storage of `size` bytes refers to, as long as it exists."""

    class Lease(ctypes.c_char * size):  # type: ignore[misc]
        memory: Tensor

        def __del__(self) -> None:
            _give_back(self.memory)

    return Lease
