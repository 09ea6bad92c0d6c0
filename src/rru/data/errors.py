"""What can go wrong with a data set: its files are missing, or not what they should be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rru.data.catalogue import Entry


class DataError(Exception):
    """A file that cannot be used: which one, where in it, and why.

    **Arguments:**

    - `file`: the file.
    - `reason`: what is wrong, and what would be right.
    - `place`: where in the file: an offset, a member of an archive, a line.
    """

    def __init__(self, file: str | Path, reason: str, place: str = "") -> None:
        self.file = str(file)
        self.reason = reason
        self.place = place
        super().__init__(f"{file}, {place}: {reason}" if place else f"{file}: {reason}")

    def __reduce__(self) -> tuple[type[Exception], tuple[str, ...]]:  # errors cross process borders by their arguments
        return DataError, (self.file, self.reason, self.place)


class MissingData(DataError):  # noqa: N818 (it says what is the matter)
    """A set that is not in the data folder: which files it needs, from where, and where to put them.

    **Arguments:**

    - `entry`: the set, from the catalogue.
    - `folder`: the data folder that was searched.
    """

    def __init__(self, entry: Entry, folder: Path) -> None:
        wanted = "\n".join(f"  {file.url}\n    -> {folder / file.path}" for file in entry.files)
        super().__init__(
            folder,
            f"the data set {entry.name!r} ({entry.title}) is not here.\n"
            f"Fetch it with:  rru data fetch {entry.name}\n"
            f"or put these files there by hand (the data folder is --data-dir, else RRU_DATA_DIR):\n{wanted}",
        )
