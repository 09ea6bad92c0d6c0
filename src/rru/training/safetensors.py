"""Reads and writes safetensors files: a header in JSON, then the bytes of the tensors.

The safetensors library does the same, but ends the process if it gets no memory. Here that is a MemoryError.
"""

import json
import math
import os
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rru.files import Damaged, open_file

HEADER_LIMIT = 16 << 20  # bytes of the header
_DTYPES = {  # in the order in which the library writes tensors, from the last to the first
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "C64": torch.complex64,
    "F64": torch.float64,
    "I64": torch.int64,
    "U64": torch.uint64,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_ORDER = {dtype: number for number, dtype in enumerate(_DTYPES.values())}
_MALFORMED = (struct.error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


class _Entry(NamedTuple):
    """A tensor in the header; `begin` and `end` are bytes after the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Returns the content of a file with these tensors. Tensors that share memory are stored separately."""
    names = sorted(tensors, key=lambda name: (-_ORDER[tensors[name].dtype], name))
    header: dict[str, Any] = {}
    end = 0
    for name in names:
        begin, end = end, end + tensors[name].nbytes
        header[name] = {
            "dtype": _NAMES[tensors[name].dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *(_bytes_of(tensors[name]).data for name in names)])


def unpack(content: bytes, path: Path) -> dict[str, Tensor]:
    """Returns the tensors in the content of a file; raises `Damaged`, naming `path`, if it is invalid.

    Each tensor is in memory allocated by torch, because alignment can change the last bit of a product.
    """
    try:
        (length,) = struct.unpack("<Q", content[:8])
        entries = _entries(content[8 : 8 + length], length, len(content))
        found = {}
        for name, entry in entries.items():
            found[name] = torch.empty(entry.shape, dtype=_DTYPES[entry.dtype])
            start, size = 8 + length + entry.begin, entry.end - entry.begin
            _bytes_of(found[name])[:] = np.frombuffer(content, np.uint8, size, start)
        return found
    except _MALFORMED as error:
        raise Damaged(f"{path}: is not a safetensors file ({error})") from error


def declared(file: Path) -> dict[str, str]:
    """Reads the header of a file, not its tensors; raises `Damaged` if its sizes are not the file's.

    **Returns:** shape and type of each tensor by name, as in `(2, 3) of float32`.
    """
    try:
        with open_file(file, sys.maxsize) as content:
            (length,) = struct.unpack("<Q", content.read(8))
            text = content.read(length) if length <= HEADER_LIMIT else b""
            entries = _entries(text, length, os.fstat(content.fileno()).st_size)
        return {
            name: f"{entry.shape} of {str(_DTYPES[entry.dtype]).removeprefix('torch.')}"
            for name, entry in entries.items()
        }
    except OSError as error:
        raise Damaged(f"{file}: cannot be read ({error.strerror or error})") from error
    except _MALFORMED as error:
        raise Damaged(f"{file}: is not a safetensors file ({error})") from error


def _entries(text: bytes, length: int, size: int) -> dict[str, _Entry]:
    """Returns the entries of a header of `length` bytes in a file of `size`; raises ValueError or the like if invalid.

    Together the tensors fill the file: none overlap, and no byte is left.
    """
    if length > HEADER_LIMIT:
        raise ValueError(f"its header has {length} bytes; at most {HEADER_LIMIT} are allowed")
    header = json.loads(text)
    header.pop("__metadata__", None)
    entries = {str(name): _entry(fields) for name, fields in header.items()}
    position = 0
    for name, entry in sorted(entries.items(), key=lambda each: each[1][2:]):
        if entry.begin != position:
            raise ValueError(f"{name!r} begins at byte {entry.begin}, not at {position}")
        if entry.end - entry.begin != math.prod(entry.shape) * _DTYPES[entry.dtype].itemsize:
            raise ValueError(
                f"{name!r} of shape {entry.shape} and type {entry.dtype} has {entry.end - entry.begin} bytes"
            )
        position = entry.end
    if size != 8 + length + position:
        raise ValueError(f"it has {size} bytes, but its header needs {8 + length + position}")
    return entries


def _entry(fields: Any) -> _Entry:
    begin, end = map(_count, fields["data_offsets"])
    if fields["dtype"] not in _DTYPES:
        raise ValueError(f"its type must be one of {', '.join(_DTYPES)}, got {fields['dtype']!r}")
    return _Entry(fields["dtype"], tuple(map(_count, fields["shape"])), begin, end)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"a size must be a whole number from 0, below 2**63; got {value!r}")
    return value


def _bytes_of(tensor: Tensor) -> NDArray[np.uint8]:
    """Returns the bytes of a tensor: its own memory if it is contiguous and on the CPU, else those of a copy."""
    plain: NDArray[np.uint8] = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return plain
