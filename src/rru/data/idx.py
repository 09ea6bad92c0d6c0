"""Reader for the idx files of MNIST: a header with the shape, then one byte per value."""

import math
import struct

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.folder import Part
from rru.data.streams import LimitedReader, open_part
from rru.data.tar import CHUNK

LIMIT = 1 << 28  # bytes; the largest file of MNIST has 47 million


def read_idx(part: Part, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an idx file of any number of items of the given shape. Return (N, *shape)."""
    with open_part(part, LIMIT) as stream:
        header = stream.read(4 + 4 * (1 + len(shape)))
        magic = bytes((0, 0, 8, 1 + len(shape)))
        if header[:4] != magic:
            raise DataError(part.path, f"magic number must be {magic.hex()}, got {header[:4].hex()!r}", "offset 0")
        if len(header) < 4 + 4 * (1 + len(shape)):
            raise DataError(part.path, f"header ends after {len(header)} bytes", f"offset {len(header)}")
        count, *item = struct.unpack(f">{1 + len(shape)}I", header[4:])
        if tuple(item) != shape:
            raise DataError(part.path, f"items must have shape {shape}, got {tuple(item)}", "offset 8")
        size = count * math.prod(shape)
        if len(header) + size > LIMIT:
            raise DataError(part.path, f"header declares {count} items, {size} bytes: more than {LIMIT}", "offset 4")
        return np.frombuffer(_read_rest(stream, size), np.uint8).reshape(count, *shape)


def _read_rest(stream: LimitedReader, size: int) -> bytearray:
    """Read the rest of the stream, which must have `size` bytes. Memory grows with the bytes actually read."""
    data = bytearray()
    while len(data) <= size and (chunk := stream.read(min(CHUNK, size + 1 - len(data)))):
        data += chunk
    if len(data) != size:
        actual = "more" if len(data) > size else str(len(data))
        raise DataError(stream.file, f"header declares {size} bytes, file has {actual}", f"offset {stream.position}")
    return data
