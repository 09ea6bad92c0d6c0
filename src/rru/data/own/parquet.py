"""Reads Parquet files with pyarrow, if it is installed."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError

MAGIC = b"PAR1"


def read(path: Path, most_columns: int, most_cells: int) -> tuple[list[str], list[NDArray[Any]]]:
    """Returns the names of the columns and their cells: floats, datetimes or strings.

    **Arguments:** `most_columns`, `most_cells`: checked before and while reading; raises DataError beyond.
    """
    try:
        import pyarrow as pa
        from pyarrow import compute, parquet
    except ModuleNotFoundError:
        raise DataError(
            path, "is a Parquet file, which needs pyarrow (pip install pyarrow); or save it as CSV"
        ) from None
    file = parquet.ParquetFile(path, memory_map=True)
    names = list(map(str, file.schema_arrow.names))
    if not 0 < len(names) <= most_columns or len(set(names)) < len(names):
        raise DataError(path, f"must have from 1 to {most_columns:,} columns of different names, got {len(names):,}")
    chunks: list[list[NDArray[Any]]] = [[] for _ in names]
    rows = 0
    for batch in file.iter_batches(batch_size=20_000):
        rows += batch.num_rows
        if rows * len(names) > most_cells:
            raise DataError(path, f"has more than {most_cells:,} cells; use a part of it")
        for chunk, name, cells in zip(chunks, names, batch.columns, strict=True):
            if pa.types.is_dictionary(cells.type):
                cells = cells.dictionary_decode()
            if pa.types.is_timestamp(cells.type) or pa.types.is_date(cells.type):
                chunk.append(cells.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).astype("datetime64[us]"))
            elif pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type) or pa.types.is_decimal(cells.type):
                chunk.append(cells.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64))
            elif (
                pa.types.is_string(cells.type)
                or pa.types.is_large_string(cells.type)
                or pa.types.is_boolean(cells.type)
            ):
                texts = compute.fill_null(cells.cast(pa.string()), "").to_pylist()
                chunk.append(np.array([text.strip() for text in texts], np.dtypes.StringDType()))
            else:
                raise DataError(path, f"column {name!r} must have numbers, times or texts, has {cells.type}")
    return names, [np.concatenate(chunk) if chunk else np.empty(0) for chunk in chunks]
