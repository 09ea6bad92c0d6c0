"""Reader for MATLAB 5 files with cell arrays of numeric matrices, the format of the music data sets.

Safe for untrusted files: every size is checked against the bytes present before memory is allocated, and anything but
a cell array of numeric matrices is rejected. (SciPy's reader trusts the sizes in a file.)
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.streams import data_errors, read_file

FILE_LIMIT = 1 << 26  # bytes
CONTENT_LIMIT = 1 << 28  # bytes of all variables, decompressed
CELL_LIMIT = 50_000  # cells of a variable; the largest data set has 700 pieces
CHUNK = 16 << 20

_MATRIX, _COMPRESSED = 14, 15
_CELL = 1
_NUMERIC = {6, 7, 8, 9, 10, 11, 12, 13, 14, 15}  # array classes: double, single and the integers
_COMPLEX = 0x0800
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


class _Reader:
    """Reads elements from a buffer, one after the other."""

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
            raise self.error(f"declares {size} bytes, only {len(self.data) - self.at} remain")
        self.at += size
        return self.data[self.at - size : self.at]

    def element(self, padded: bool = True) -> tuple[int, memoryview]:
        """Read the type and bytes of the next element."""
        kind, size = struct.unpack(f"{self.order}II", self.take(8))
        if kind >> 16:  # small element: size, type and up to 4 bytes of data in 8 bytes
            kind, size = kind & 0xFFFF, kind >> 16
            if size > 4:
                raise self.error(f"small element must have at most 4 bytes, got {size}")
            return kind, self.data[self.at - 4 : self.at - 4 + size]
        payload = self.take(size)
        if padded:
            self.at = min(self.at + -size % 8, len(self.data))
        return kind, payload

    def nested(self, data: memoryview, place: str = "") -> "_Reader":
        return _Reader(data, self.order, self.file, place or f"{self.place}offset {self.at - len(data)} + ")

    def header(self) -> tuple[int, tuple[int, ...], str]:
        """Read class, dimensions and name of a matrix."""
        kind, flags = self.element()
        if kind != 6 or len(flags) != 8:
            raise self.error("matrix must begin with 8 bytes of flags")
        (word,) = struct.unpack_from(f"{self.order}I", flags)
        if word & _COMPLEX:
            raise self.error("complex numbers are not supported")
        kind, dims = self.element()
        if kind != 5 or len(dims) not in (8, 12, 16):
            raise self.error("matrix must have 2 to 4 dimensions")
        shape = struct.unpack(f"{self.order}{len(dims) // 4}i", dims)
        if min(shape) < 0:
            raise self.error(f"dimensions must not be negative, got {shape}")
        _, name = self.element()
        return word & 0xFF, shape, bytes(name).decode("latin-1")

    def matrix(self) -> NDArray[np.generic]:
        """Read a two-dimensional numeric matrix, as a view of the buffer."""
        kind, shape, _ = self.header()
        if kind not in _NUMERIC or len(shape) != 2:
            raise self.error(f"must be a numeric matrix, got class {kind} with dimensions {shape}")
        stored, payload = self.element()
        if stored not in _STORED:
            raise self.error(f"unknown number type {stored}")
        dtype = np.dtype(self.order + _STORED[stored])
        if math.prod(shape) * dtype.itemsize != len(payload):
            raise self.error(f"dimensions {shape} need {math.prod(shape)} numbers, got {len(payload)} bytes")
        return np.frombuffer(payload, dtype).reshape(shape, order="F")

    def cells(self, shape: tuple[int, ...]) -> Iterator[NDArray[np.generic]]:
        """Read the matrices of a cell array, after its header."""
        if math.prod(shape) > (len(self.data) - self.at) // 8:  # each takes at least 8 bytes
            raise self.error(f"declares {math.prod(shape)} cells, only {len(self.data) - self.at} bytes remain")
        if math.prod(shape) > CELL_LIMIT:
            raise self.error(f"declares {math.prod(shape)} cells, more than the limit of {CELL_LIMIT}")
        for index in range(math.prod(shape)):
            kind, payload = self.element()
            if kind != _MATRIX:
                raise self.error(f"cell {index} must be a matrix, got type {kind}")
            yield self.nested(payload).matrix()


def read_mat(path: Path) -> dict[str, list[NDArray[np.generic]]]:
    """Read a MATLAB 5 file. Return each cell array as a list of matrices, by variable name."""
    data = read_file(path, FILE_LIMIT)
    with data_errors(path):
        order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
        if order is None or data[:6] != b"MATLAB":
            raise DataError(path, f"is not a MATLAB 5 file: it begins with {data[:8]!r}", "offset 0")
        return dict(_variables(_Reader(memoryview(data), order, path, "")))


def _variables(reader: _Reader) -> Iterator[tuple[str, list[NDArray[np.generic]]]]:
    reader.take(128)
    allowed = CONTENT_LIMIT  # bytes
    while reader.at < len(reader.data):
        place = f"variable at offset {reader.at}, "
        kind, payload = reader.element(padded=False)
        if kind == _COMPRESSED:
            payload = _decompress(payload, allowed, reader)
            allowed -= len(payload)
            kind, payload = reader.nested(payload, place).element()
        if kind != _MATRIX:
            raise reader.error(f"variable must be a matrix, got type {kind}")
        matrix = reader.nested(payload, place)
        kind, shape, name = matrix.header()
        if kind != _CELL:
            raise matrix.error(f"variable {name!r} must be a cell array, got class {kind}")
        yield name, list(matrix.cells(shape))


def _decompress(payload: memoryview, limit: int, reader: _Reader) -> memoryview:
    """Decompress a variable into as much memory as its first 8 bytes declare."""
    decompressor = zlib.decompressobj()
    try:
        start = decompressor.decompress(payload, 8)
        size = 8 + struct.unpack(f"{reader.order}II", start)[1] if len(start) == 8 else 0
        if size > limit:
            raise reader.error(f"has more than {CONTENT_LIMIT} bytes, decompressed")
        data, at = bytearray(size), len(start)
        data[:at] = start
        while not decompressor.eof and (chunk := decompressor.decompress(decompressor.unconsumed_tail, CHUNK)):
            if at + len(chunk) > size:
                raise reader.error(f"compressed variable has more than the {size} bytes it declares")
            data[at : at + len(chunk)] = chunk
            at += len(chunk)
    except zlib.error as error:
        raise reader.error(f"compressed variable is damaged: {error}") from error
    if not decompressor.eof or at < size:
        raise reader.error("compressed variable is truncated")
    return memoryview(data)
