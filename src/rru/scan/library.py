"""The native library: opened where it was built, and how to call it."""

import ctypes
import functools
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float64)
_FUNCTIONS = [f"{cell}_{way}" for cell in ("rru", "lstm", "gru", "mogrifier") for way in ("forward", "backward")]


def _open() -> ctypes.CDLL | None:
    found = [path for path in Path(__file__).parent.glob("_native*") if path.suffix in (".so", ".pyd")]
    return ctypes.CDLL(str(found[0])) if found else None


_library = _open()
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


def call(function: str, dtype: torch.dtype, numbers: Sequence[int], tensors: Sequence[Tensor | None]) -> None:
    """Calls a function of the library on `numbers` and the memory of `tensors`, in the order in which it reads them."""
    if _library is None:
        raise RuntimeError("the native scans are not part of this build; use backend='auto' or 'reference'")
    if not all(tensor is None or tensor.is_contiguous() for tensor in tensors):
        raise ValueError(f"{function} takes the memory of its tensors to be contiguous")
    failed = _library.rru_run(
        _library.rru_best_isa(),
        _FUNCTIONS.index(function),
        dtype == torch.float64,
        (ctypes.c_int64 * len(numbers))(*numbers),
        (ctypes.c_void_p * len(tensors))(*(None if tensor is None else tensor.data_ptr() for tensor in tensors)),
        torch.get_num_threads(),
    )
    if failed:
        raise MemoryError(f"the native scan {function} could not get the memory or the threads it needs")
