"""The file format of the C engine: `model.rru`, with all numbers, weights and names of a model. See rru.c."""

import struct
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rru.scan.matrices import Product
from rru.scan.native.rounding import rounded, rounded_rows

MAGIC, VERSION = b"RRUM", 2
ALIGNMENT = 16
MAX_BYTES = 2**32 - 1
FIELDS = (
    "kind", "cell", "layers", "inputs", "hidden", "outputs", "option", "normalize", "activate", "tokens", "head",
    "logits", "keys", "reading", "padding", "unknown", "first", "beat", "scaled", "names", "members", "context",
    "horizon", "patch", "season", "past", "known", "series", "around", "below", "chord_hidden", "chord_outputs",
    "bar",
)  # fmt: skip
"""The numbers of a model: `rru_field` in rru.h, in its order."""
ROWS_F32, ROWS_I8, COLUMNS_F32, BLOCKS_I8, WHOLE_U32, ROWS_F64, BYTES = range(7)
_NAME = 16  # bytes of the name of a tensor
_TYPES = {ROWS_F32: "<f4", ROWS_I8: "i1", COLUMNS_F32: "<f4", BLOCKS_I8: "i1", WHOLE_U32: "<u4", ROWS_F64: "<f8"}


class Tensors:
    """The tensors of a model, in the order in which the engine takes them.

    **Arguments:** `int8`: whether large matrices are rounded to int8.
    """

    def __init__(self, *, int8: bool = False) -> None:
        self.int8 = int8
        self.entries: list[tuple[str, int, int, int, bytes]] = []  # name, type, rows, columns, content

    def matrix(self, name: str, product: Product, *, exact: bool = False) -> None:
        """Add a matrix and its bias; as floats if `exact`."""
        weight, bias = (tensor.detach().float() for tensor in product)
        rows, columns = weight.shape
        if not weight.isfinite().all() or not bias.isfinite().all():
            raise ValueError(f"{name} has infinite or NaN weights, which cannot be exported")
        if self.int8 and not exact:
            matrix = rounded(weight, bias)
            self._add(name, BLOCKS_I8, (rows, columns), matrix.codes)
            self._add(f"{name} scales", ROWS_F32, (rows, 1), matrix.scales)
        else:
            by_column = torch.nn.functional.pad(weight.t(), (0, -rows % 4))  # (columns, rows padded to 4)
            self._add(name, COLUMNS_F32, (rows, columns), by_column)
        self._add(f"{name} bias", ROWS_F32, (rows, 1), bias)

    def table(self, name: str, weight: Tensor) -> None:
        """Add a matrix (rows, columns) of which the engine reads single rows."""
        weight = weight.detach().float()
        if self.int8:
            codes, scales = rounded_rows(weight)
            self._add(name, ROWS_I8, (len(weight), weight.shape[1]), codes)
            self._add(f"{name} scales", ROWS_F32, (len(weight), 1), scales)
        else:
            self._add(name, ROWS_F32, (len(weight), weight.shape[1]), weight)

    def floats(self, name: str, values: Tensor) -> None:
        """Add floats, (rows,) or (rows, columns)."""
        columns = values.shape[1] if values.dim() == 2 else 1
        self._add(name, ROWS_F32, (len(values), columns), values.detach().float())

    def doubles(self, name: str, values: Sequence[float] | Sequence[Sequence[float]]) -> None:
        """Add doubles, (rows,) or (rows, columns)."""
        array = np.asarray(values, np.float64)
        self._add(name, ROWS_F64, (len(array), array.shape[1] if array.ndim == 2 else 1), array)

    def whole(self, name: str, values: Sequence[int] | NDArray[np.int64]) -> None:
        """Add whole numbers that are not negative, (rows,)."""
        self._add(name, WHOLE_U32, (len(values), 1), np.asarray(values))

    def names(self, names: Sequence[bytes]) -> None:
        """Add texts."""
        if names:
            self.whole("name starts", np.cumsum([0, *map(len, names)]))
            content = b"".join(names)
            self.entries.append(("names", BYTES, len(content), 1, content))

    def _add(self, name: str, kind: int, shape: tuple[int, int], values: Tensor | NDArray[np.generic]) -> None:
        array = values.numpy() if isinstance(values, Tensor) else values
        self.entries.append((name, kind, *shape, np.ascontiguousarray(array, _TYPES[kind]).tobytes()))


def packed(numbers: Mapping[str, int], tensors: Tensors) -> bytes:
    """Return the blob of a model.

    **Arguments:** `numbers`: those in `FIELDS`; those that are left out are 0.
    """
    if unknown := set(numbers) - set(FIELDS):
        raise ValueError(f"numbers of a model must be among {', '.join(FIELDS)}; got {', '.join(sorted(unknown))}")
    table, contents = [], []
    offset = _aligned(24 + 4 * len(FIELDS) + 32 * len(tensors.entries))
    for name, kind, rows, columns, content in tensors.entries:
        table.append(struct.pack("<16s4I", name.encode()[:_NAME], kind, rows, columns, offset))
        contents.append(content.ljust(_aligned(len(content)), b"\0"))
        offset += len(contents[-1])
        if offset > MAX_BYTES:
            raise ValueError("a model for the C engine must have less than 4 GiB")
    counts = struct.pack("<2I", len(FIELDS), len(tensors.entries))
    values = struct.pack(f"<{len(FIELDS)}i", *(numbers.get(field, 0) for field in FIELDS))
    head = counts + values + b"".join(table)
    body = head.ljust(_aligned(16 + len(head)) - 16, b"\0") + b"".join(contents)
    return MAGIC + struct.pack("<3I", VERSION, 16 + len(body), zlib.crc32(body)) + body


def tensor_types(blob: bytes) -> set[int]:
    """Return the types of the tensors in a blob, such as `COLUMNS_F32`; raise ValueError if it is not a model."""
    try:
        numbers, tensors = struct.unpack_from("<2I", blob, 16)
        entries = [struct.unpack_from("<16s4I", blob, 24 + 4 * numbers + 32 * number) for number in range(tensors)]
    except struct.error:
        raise ValueError("the blob is not a model: its table is cut off") from None
    return {kind for _, kind, *_ in entries}


def _aligned(size: int) -> int:
    return size + -size % ALIGNMENT
