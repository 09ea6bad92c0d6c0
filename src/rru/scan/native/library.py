"""Load the native library, choose the instruction set and call functions by name.

A function takes named numbers, and for each tensor its address and size in bytes. It checks all of them, so a mismatch
between Python and C++ raises an error and never writes outside a tensor (native/arguments.h).
"""

import copy
import ctypes
import functools
import os
import struct
import sys
import warnings
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_SUFFIXES = {torch.float32: "f32", torch.float64: "f64"}
DTYPES = tuple(_SUFFIXES)
"""The dtypes that the library computes in."""
COMPUTED_IN = dict(zip(DTYPES, DTYPES, strict=True)) | {torch.bfloat16: torch.float32, torch.float16: torch.float32}
"""By the dtype of the weights, the one that the library computes in."""
_PARAMETERS = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
_MISMATCH = 2
AVX512_BF16, AMX = 1, 2
"""Instructions that multiply bfloat16, each with those before."""


def _open() -> ctypes.CDLL | None:
    suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    path = Path(__file__).with_name("_native" + suffix)
    if not path.exists():
        return None
    library = ctypes.CDLL(str(path))
    if not hasattr(library, "rru_instruction_sets"):
        raise ImportError(f"{path.name} was built from older sources: reinstall rru to build it again")
    library.rru_instruction_sets.restype = library.rru_error.restype = ctypes.c_char_p
    return library


def _choose_instruction_set(available: Sequence[str]) -> str:
    """Return the instruction set that RRU_ISA names, or else the best one."""
    wanted = os.environ.get("RRU_ISA") or available[-1]
    if wanted not in available:
        raise ValueError(f"RRU_ISA must be one of {', '.join(available)} on this processor, got {wanted!r}")
    return wanted


def _functions_of_openmp() -> list[ctypes.c_void_p]:
    """Return GCC's functions of OpenMP if PyTorch's operations use them, as on Linux, or else null pointers."""
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # builds of PyTorch with other threads
            torch_library = ctypes.CDLL(torch._C.__file__)
            return [ctypes.cast(torch_library[name], ctypes.c_void_p) for name in names]
    return [ctypes.c_void_p()] * len(names)


_library = _open()
_openmp = _functions_of_openmp()
BUILT = _library is not None
"""Whether this build has the native library."""
INSTRUCTION_SETS: tuple[str, ...] = () if _library is None else tuple(_library.rru_instruction_sets().decode().split())
"""The instruction sets that the library was compiled for and this processor supports, best last."""
instruction_set = _choose_instruction_set(INSTRUCTION_SETS) if INSTRUCTION_SETS else ""
"""The instruction set in use. Set the environment variable RRU_ISA to choose another: portable, avx2 or avx512."""
if not BUILT:
    warnings.warn(
        "this install of rru has no native library: on CPUs, layers run on plain PyTorch, several times slower. There "
        "are wheels with it for Linux, Windows and macOS; elsewhere install a C++ compiler (GCC or Clang), then rru "
        "again: in a checkout `make clean`, or `pip install --force-reinstall --no-deps --no-cache-dir .`",
        stacklevel=2,
    )


@contextmanager
def using(chosen: str) -> Iterator[None]:
    """Use another of the `INSTRUCTION_SETS` meanwhile."""
    global instruction_set
    before, instruction_set = instruction_set, chosen
    try:
        yield
    finally:
        instruction_set = before


def has_bfloat16_dots() -> bool:
    """Return whether the instruction set in use has fast dot products of bfloat16: AVX512_BF16 or AMX."""
    return bfloat16_instructions() >= AVX512_BF16


def bfloat16_instructions() -> int:
    """Return what multiplies bfloat16 with the instruction set in use: `AMX`, `AVX512_BF16`, or 0 (nothing special)."""
    return _library.rru_bfloat16() if _library is not None and instruction_set == "avx512" else 0


def use_bfloat16(most: int) -> int:
    """Use at most these instructions for bfloat16, so that tests can see what other processors compute.

    **Returns:** the limit before, to restore it.
    """
    before: int = 0 if _library is None else _library.rru_use_bfloat16(most)
    return before


def use_openmp(used: bool) -> None:
    """Run on the threads of PyTorch's operations, if they use OpenMP as GCC does, or on threads of our own.

    PyTorch's spin for milliseconds after each operation, while threads of our own would have to share their cores.
    """
    if _library is not None:
        _library.rru_use_openmp(*(_openmp if used else [ctypes.c_void_p()] * 3))


def double_bits(value: float) -> int:
    """Return the bits of a double, as the library takes real numbers."""
    bits: int = struct.unpack("q", struct.pack("d", value))[0]
    return bits


@functools.cache
def _find(name: str) -> Any:
    if _library is None:
        raise RuntimeError("the native scans are not part of this build; use backend='auto' or 'reference'")
    function = getattr(_library, name)
    function.argtypes = _PARAMETERS
    return function


class Function:
    """A library function bound to its numbers. It can be called any number of times on different tensors.

    **Arguments:**

    - `name`: the function, such as `"lstm_forward"`.
    - `dtype`: float32 or float64.
    - `numbers`: the numbers by name, in the order in which the function reads them.
    - `single_threaded`: use only the calling thread, regardless of `torch.set_num_threads`.
    """

    __slots__ = ("_function", "_name", "_names", "_numbers", "_single_threaded", "_sizes", "_where")

    def __init__(
        self, name: str, dtype: torch.dtype, numbers: Mapping[str, int], *, single_threaded: bool = False
    ) -> None:
        self._name = f"{name}_{_SUFFIXES[dtype]}_{instruction_set}"
        self._function = _find(self._name)
        self._names = " ".join(numbers).encode()
        self._numbers = array("q", numbers.values())
        self._where = self._numbers.buffer_info()[0]
        self._single_threaded = single_threaded
        self._sizes: array[int] | None = None

    def seeded(self, seed: int, dropout: float) -> "Function":
        """Return this function with another seed of the dropout masks and another dropout rate."""
        other = copy.copy(self)
        other._numbers = self._numbers[:]
        names = self._names.split()
        other._numbers[names.index(b"seed")] = seed
        other._numbers[names.index(b"dropout")] = double_bits(dropout)
        other._where = other._numbers.buffer_info()[0]
        return other

    def memory_of(self, tensors: Sequence[Tensor]) -> "array[int]":
        """Return what `memory_of` returns, faster from the second call on: sizes follow from the numbers.

        The tensors must be contiguous and of the shapes and dtype that the function takes.
        """
        if self._sizes is None:
            memory = memory_of(tensors)
            self._sizes = memory[1::2]
            return memory
        memory = array("Q", bytes(16 * len(tensors)))
        memory[::2] = array("Q", map(Tensor.data_ptr, tensors))
        memory[1::2] = self._sizes
        return memory_of(tensors) if 0 in memory else memory  # which says what is wrong

    def __call__(self, memory: "array[int]") -> None:
        """Call the function. `memory` comes from `memory_of`, with the tensors in the order the function reads them.

        Raise MemoryError if memory or threads run out, and RuntimeError if the arguments do not match.
        """
        where, count = memory.buffer_info()
        threads = 1 if self._single_threaded else torch.get_num_threads()
        failed = self._function(self._names, self._where, where, count // 2, threads)
        if not failed:
            return
        if failed != _MISMATCH:
            raise MemoryError(f"the native function {self._name} could not allocate memory or start threads")
        assert _library is not None
        raise RuntimeError(
            f"the native function {self._name} got wrong arguments ({_library.rru_error().decode()}); "
            "if the library was built from other sources, reinstall rru"
        )


@functools.lru_cache(maxsize=4096)
def cached_function(
    name: str, dtype: torch.dtype, numbers: tuple[tuple[str, int], ...], chosen: str, *, single_threaded: bool = False
) -> Function:
    """Return a function of the instruction set in use, `chosen`. Making one takes longer than a short call."""
    return Function(name, dtype, dict(numbers), single_threaded=single_threaded)


def memory_of(tensors: Sequence[Tensor]) -> "array[int]":
    """Return the address and size in bytes of each tensor, alternating. The tensors must be contiguous."""
    memory = array("Q", bytes(16 * len(tensors)))
    memory[::2] = array("Q", map(Tensor.data_ptr, tensors))
    memory[1::2] = array("Q", [tensor.nbytes for tensor in tensors])
    if not all(map(Tensor.is_contiguous, tensors)):
        strides = next(tensor.stride() for tensor in tensors if not tensor.is_contiguous())
        raise ValueError(f"native scans need contiguous tensors, got strides {strides}")
    if 0 in memory:
        for tensor in tensors:
            if not tensor.data_ptr() and tensor.numel():
                raise ValueError(f"native scans need tensors with storage, got a {type(tensor).__name__} without")
    return memory


use_openmp(True)
