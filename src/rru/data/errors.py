"""Errors of data sets: files that are missing or cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rru.data.spelling import option

if TYPE_CHECKING:
    from rru.data.catalogue import DataSet


class DataError(Exception):
    """A file cannot be used.

    **Arguments:**

    - `file`: the file.
    - `reason`: what is wrong, and what is expected.
    - `place`: where in the file: an offset, a member of an archive, a line.
    """

    def __init__(self, file: str | Path, reason: str, place: str = "") -> None:
        self.file = str(file)
        self.reason = reason
        self.place = place
        super().__init__(f"{file}, {place}: {reason}" if place else f"{file}: {reason}")

    def __reduce__(self) -> tuple[type[Exception], tuple[str, ...]]:  # so that it can be pickled
        return DataError, (self.file, self.reason, self.place)


class MissingData(DataError):  # noqa: N818 (the name says what is wrong)
    """A data set is not in the data folder. The message lists the files, their URLs and where to put them.

    **Arguments:**

    - `data_set`: the data set, from the catalogue.
    - `folder`: the data folder that was searched.
    """

    def __init__(self, data_set: DataSet, folder: Path) -> None:
        wanted = "\n".join(f"  {file.url}\n    -> {folder / file.path}" for file in data_set.files)
        super().__init__(
            folder,
            f"the data set {data_set.name!r} ({data_set.title}) is not in this folder.\n"
            f"Download it:  rru data fetch {data_set.name}\n"
            f"or put the files there yourself (set the folder with {option('data_dir')} or RRU_DATA_DIR):\n{wanted}",
        )
