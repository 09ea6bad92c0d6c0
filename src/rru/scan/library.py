"""The native library: opened where it was built, and how to call it."""

import ctypes
import functools
import warnings
from array import array
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float64)
_FUNCTIONS = {  # the numbers native/isa.cpp knows them by
    name: number
    for number, name in enumerate(
        f"{cell}_{way}" for cell in ("rru", "lstm", "gru", "mogrifier") for way in ("forward", "backward")
    )
}


def _open() -> ctypes.CDLL | None:
    found = [path for path in Path(__file__).parent.glob("_native*") if path.suffix in (".so", ".pyd")]
    return ctypes.CDLL(str(found[0])) if found else None


_library = _open()
if _library is not None:
    _library.rru_run.argtypes = [*[ctypes.c_int] * 3, *[ctypes.c_void_p] * 2, *[ctypes.c_int] * 2]
_isa = 0 if _library is None else _library.rru_best_isa()
BUILT = _library is not None
"""Whether there is a library."""


@functools.cache
def warn_once() -> None:
    """Says, once, that there is none."""
    warnings.warn(
        "rru was installed without its native scans, for want of a C++ compiler: layers run on plain PyTorch, several "
        "times slower. Install a compiler (GCC or Clang) and reinstall rru to have them",
        stacklevel=2,
    )


class Function:
    """A function of the library on `numbers`, to be called with the memory of tensors, as often as one likes.

    `alone`: on the caller's thread, whatever `torch.set_num_threads` says.
    """

    __slots__ = ("_alone", "_double", "_name", "_number", "_numbers", "_where")

    def __init__(self, name: str, dtype: torch.dtype, numbers: Sequence[int], *, alone: bool = False) -> None:
        if _library is None:
            raise RuntimeError("the native scans are not part of this build; use backend='auto' or 'reference'")
        self._name, self._number = name, _FUNCTIONS[name]
        self._double, self._alone = dtype == torch.float64, alone
        self._numbers = array("q", numbers)
        self._where = self._numbers.buffer_info()[0]

    def __call__(self, addresses: "array[int]") -> None:
        """Calls it on what is at `addresses`, in the order in which it reads them."""
        where, count = addresses.buffer_info()
        threads = 1 if self._alone else torch.get_num_threads()
        assert _library is not None
        if _library.rru_run(_isa, self._number, self._double, self._where, where, count, threads):
            raise MemoryError(f"the native scan {self._name} could not get the memory or the threads it needs")


def addresses_of(tensors: Sequence[Tensor | None]) -> "array[int]":
    """Where the values of the tensors are, 0 for one there is not."""
    addresses = array("Q")
    for tensor in tensors:
        if tensor is None:
            addresses.append(0)
            continue
        if not tensor.is_contiguous():
            raise ValueError("the native scans take the memory of their tensors to be contiguous")
        addresses.append(tensor.data_ptr())
        if not addresses[-1] and tensor.numel():
            raise ValueError(f"the native scans take tensors with memory, got a {type(tensor).__name__} without")
    return addresses
