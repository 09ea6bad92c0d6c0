"""Arrays of bytes in the idx format of MNIST: a header of sizes, then the bytes."""

import math
import struct

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.folder import Part
from rru.data.streams import Bounded, opened
from rru.data.tar import CHUNK

LIMIT = 1 << 28  # bytes; the largest file of MNIST has 47 million


def read_idx(part: Part, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The array in an idx file: any number of items of this shape, (N, *shape)."""
    with opened(part, LIMIT) as stream:
        header = stream.read(4 + 4 * (1 + len(shape)))
        magic = bytes((0, 0, 8, 1 + len(shape)))
        if header[:4] != magic:
            raise DataError(part.path, f"magic number must be {magic.hex()}, got {header[:4].hex()!r}", "offset 0")
        if len(header) < 4 + 4 * (1 + len(shape)):
            raise DataError(part.path, f"header ends after {len(header)} bytes", f"offset {len(header)}")
        count, *item = struct.unpack(f">{1 + len(shape)}I", header[4:])
        if tuple(item) != shape:
            raise DataError(part.path, f"items must have shape {shape}, got {tuple(item)}", "offset 8")
        promised = count * math.prod(shape)
        if len(header) + promised > LIMIT:
            raise DataError(part.path, f"promises {count} items, {promised} bytes: more than {LIMIT}", "offset 4")
        return np.frombuffer(_exactly(stream, promised), np.uint8).reshape(count, *shape)


def _exactly(stream: Bounded, size: int) -> bytearray:
    """The rest of the stream, which must have this size; memory grows with what is there, not with the promise."""
    data = bytearray()
    while len(data) <= size and (chunk := stream.read(min(CHUNK, size + 1 - len(data)))):
        data += chunk
    if len(data) != size:
        have = "more" if len(data) > size else str(len(data))
        raise DataError(stream.file, f"header promises {size} bytes, the file has {have}", f"offset {stream.position}")
    return data
