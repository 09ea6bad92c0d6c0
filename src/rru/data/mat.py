"""Cell arrays of numeric matrices from MATLAB 5 files, the form the music sets are given out in.

Written for hostile files: every size is checked against the bytes that are there before anything is made of it, and
what is not a cell array of plain matrices is refused. (scipy's reader trusts the sizes in a file.)
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.streams import reading, whole_file

FILE_LIMIT = 1 << 26  # bytes
CONTENT_LIMIT = 1 << 28  # bytes of all variables, unpacked

_MATRIX, _COMPRESSED = 14, 15
_CELL = 1
_NUMERIC = {6, 7, 8, 9, 10, 11, 12, 13, 14, 15}  # classes of arrays: double, single and the integers
_COMPLEX = 0x0800
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


class _Reader:
    """Takes elements off a run of bytes, one after the other."""

    def __init__(self, data: memoryview, order: str, file: Path, place: str) -> None:
        self.data = data
        self.order = order
        self.file = file
        self.place = place
        self.at = 0

    def error(self, reason: str) -> DataError:
        return DataError(self.file, reason, f"{self.place}offset {self.at}")

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise self.error(f"promises {size} bytes, {len(self.data) - self.at} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def element(self, padded: bool = True) -> tuple[int, memoryview]:
        """Type and bytes of the next element."""
        kind, size = struct.unpack(f"{self.order}II", self.take(8))
        if kind >> 16:  # a small element: size, type and up to four bytes, all within eight
            kind, size = kind & 0xFFFF, kind >> 16
            if size > 4:
                raise self.error(f"small element of {size} bytes, at most 4 fit")
            return kind, self.data[self.at - 4 : self.at - 4 + size]
        payload = self.take(size)
        if padded:
            self.at = min(self.at + -size % 8, len(self.data))
        return kind, payload

    def inside(self, data: memoryview, place: str = "") -> "_Reader":
        return _Reader(data, self.order, self.file, place or f"{self.place}offset {self.at - len(data)} + ")

    def header(self) -> tuple[int, tuple[int, ...], str]:
        """Class, dimensions and name of the matrix that starts here."""
        kind, flags = self.element()
        if kind != 6 or len(flags) != 8:
            raise self.error("a matrix must begin with 8 bytes of flags")
        (word,) = struct.unpack_from(f"{self.order}I", flags)
        if word & _COMPLEX:
            raise self.error("complex numbers are not allowed")
        kind, dims = self.element()
        if kind != 5 or len(dims) not in (8, 12, 16):
            raise self.error("a matrix must have 2 to 4 dimensions")
        shape = struct.unpack(f"{self.order}{len(dims) // 4}i", dims)
        if min(shape) < 0:
            raise self.error(f"dimensions must be 0 or more, got {shape}")
        _, name = self.element()
        return word & 0xFF, shape, bytes(name).decode("latin-1")

    def numbers(self) -> NDArray[np.generic]:
        """The two-dimensional numeric matrix that starts here, a view of the file's bytes."""
        kind, shape, _ = self.header()
        if kind not in _NUMERIC or len(shape) != 2:
            raise self.error(f"must be a matrix of numbers, got class {kind} with dimensions {shape}")
        stored, payload = self.element()
        if stored not in _STORED:
            raise self.error(f"numbers are stored as unknown type {stored}")
        dtype = np.dtype(self.order + _STORED[stored])
        if math.prod(shape) * dtype.itemsize != len(payload):
            raise self.error(f"dimensions {shape} promise {math.prod(shape)} numbers, got {len(payload)} bytes")
        return np.frombuffer(payload, dtype).reshape(shape, order="F")

    def cells(self, shape: tuple[int, ...]) -> Iterator[NDArray[np.generic]]:
        """The matrices in a cell array whose header has been read."""
        if math.prod(shape) > (len(self.data) - self.at) // 8:  # each takes eight bytes at least
            raise self.error(f"promises {math.prod(shape)} cells, {len(self.data) - self.at} bytes are left")
        for index in range(math.prod(shape)):
            kind, payload = self.element()
            if kind != _MATRIX:
                raise self.error(f"cell {index} must be a matrix, got type {kind}")
            yield self.inside(payload).numbers()


def read_mat(path: Path) -> dict[str, list[NDArray[np.generic]]]:
    """The cell arrays in a MATLAB 5 file, each as the list of its matrices."""
    data = whole_file(path, FILE_LIMIT)
    with reading(path):
        order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
        if order is None or data[:6] != b"MATLAB":
            raise DataError(path, f"is not a MATLAB 5 file: it begins with {data[:8]!r}", "offset 0")
        return dict(_variables(_Reader(memoryview(data), order, path, "")))


def _variables(reader: _Reader) -> Iterator[tuple[str, list[NDArray[np.generic]]]]:
    reader.take(128)
    left = CONTENT_LIMIT
    while reader.at < len(reader.data):
        place = f"variable at offset {reader.at}, "
        kind, payload = reader.element(padded=False)
        if kind == _COMPRESSED:
            payload = _unpacked(payload, left, reader)
            left -= len(payload)
            kind, payload = reader.inside(payload, place).element()
        if kind != _MATRIX:
            raise reader.error(f"a variable must be a matrix, got type {kind}")
        matrix = reader.inside(payload, place)
        kind, shape, name = matrix.header()
        if kind != _CELL:
            raise matrix.error(f"variable {name!r} must be a cell array, got class {kind}")
        yield name, list(matrix.cells(shape))


def _unpacked(payload: memoryview, limit: int, reader: _Reader) -> memoryview:
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(payload, limit + 1)
    except zlib.error as error:
        raise reader.error(f"compressed variable is damaged: {error}") from error
    if len(data) > limit:
        raise reader.error(f"holds more than {CONTENT_LIMIT} bytes, unpacked")
    if not unpacker.eof:
        raise reader.error("compressed variable ends too early")
    return memoryview(data)
