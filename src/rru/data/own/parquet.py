"""Read Parquet files with pyarrow, if it is installed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError

if TYPE_CHECKING:
    import pyarrow

MAGIC = b"PAR1"
BATCH = 20_000  # rows
INLINE = 16  # bytes of a short text, which every cell takes
FREE, EXPANSION = 64 << 20, 64  # bytes of long texts: these, and so many times the bytes of the file
Cells = NDArray[Any]  # floats, datetimes or strings
STRINGS = np.dtypes.StringDType()  # 16 bytes for a short text
MAX_BYTES = 2 << 30  # bytes of the columns, as the file declares them


def read(path: Path, most_columns: int, most_cells: int) -> tuple[list[str], list[Cells]]:
    """Return the names of the columns and their cells: floats, datetimes or strings.

    A small file can hold one text a million times, so texts are counted before they are taken apart.

    **Arguments:** `most_columns`, `most_cells`: checked before and while reading; raises DataError beyond.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ModuleNotFoundError:
        advice = "pip install pyarrow, or save it as CSV"
        raise DataError(path, f"is a Parquet file, which needs pyarrow; {advice}") from None
    with parquet.ParquetFile(path, memory_map=True) as file:
        names = list(map(str, file.schema_arrow.names))
        if not 0 < len(names) <= most_columns or len(set(names)) < len(names):
            reason = f"must have from 1 to {most_columns:,} columns of different names, got {len(names):,}"
            raise DataError(path, reason)
        _check_declared(path, file.metadata, len(names), most_cells)
        texts = [name for name, kind in zip(names, file.schema_arrow.types, strict=True) if _is_text(pa, kind)]
    chunks: list[list[Cells]] = [[] for _ in names]
    rows, long, most = 0, 0, FREE + EXPANSION * path.stat().st_size
    with parquet.ParquetFile(path, memory_map=True, read_dictionary=texts) as file:
        for batch in file.iter_batches(batch_size=BATCH):
            rows += batch.num_rows
            if rows * len(names) > most_cells:  # the file need not have as many rows as it declares
                raise DataError(path, f"has more than {most_cells:,} cells; use a part of it")
            long += sum(_long_texts(pa, cells) for cells in batch.columns)
            if long > most:
                raise DataError(path, f"has more than {most:,} bytes of text, too many for a file of its size")
            for chunk, name, cells in zip(chunks, names, batch.columns, strict=True):
                chunk.append(_array(path, name, cells))
    return names, [np.concatenate(chunk) if chunk else np.empty(0) for chunk in chunks]


def _check_declared(path: Path, about: pyarrow.parquet.FileMetaData, columns: int, most_cells: int) -> None:
    if about.num_rows * columns > most_cells:
        raise DataError(path, f"has more than {most_cells:,} cells; use a part of it")
    if about.num_row_groups > most_cells // 100:
        raise DataError(path, f"has {about.num_row_groups:,} groups of rows, too many to read")
    size = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    if size > MAX_BYTES:
        reason = f"declares {size:,} bytes of columns; at most {MAX_BYTES:,} can be read; use a part of it"
        raise DataError(path, reason)


def _is_text(pa: ModuleType, kind: pyarrow.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _long_texts(pa: ModuleType, cells: pyarrow.Array) -> int:
    """Return the bytes of the texts of a column that are not short."""
    from pyarrow import compute

    if not pa.types.is_dictionary(cells.type) or not _is_text(pa, cells.type.value_type):
        return 0
    sizes = compute.fill_null(compute.binary_length(cells.dictionary), 0).to_numpy(zero_copy_only=False)
    numbers = compute.drop_null(cells.indices).to_numpy(zero_copy_only=False)
    return int(np.maximum(sizes.astype(np.int64) - INLINE, 0)[numbers].sum())


def _array(path: Path, name: str, cells: pyarrow.Array) -> Cells:
    """Return a column as floats, datetimes or strings; raise DataError if it is something else."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_dictionary(cells.type):
        if _is_text(pa, cells.type.value_type):  # each text is made once
            known = np.array([*(str(text or "").strip() for text in cells.dictionary.to_pylist()), ""], STRINGS)
            return np.asarray(known[compute.fill_null(cells.indices, len(known) - 1).to_numpy(zero_copy_only=False)])
        cells = cells.dictionary_decode()
    if pa.types.is_timestamp(cells.type) or pa.types.is_date(cells.type):
        finer = pa.types.is_timestamp(cells.type) and cells.type.unit == "ns"
        moments = cells.cast(pa.timestamp("us"), safe=not finer)  # nanoseconds are cut, as pandas writes them
        return np.asarray(moments.to_numpy(zero_copy_only=False).astype("datetime64[us]"))
    if pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type) or pa.types.is_decimal(cells.type):
        return np.asarray(cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
    if pa.types.is_boolean(cells.type):
        return np.array(compute.fill_null(cells.cast(pa.string()), "").to_pylist(), STRINGS)
    raise DataError(path, f"column {name!r} must have numbers, times or texts, has {cells.type}")
