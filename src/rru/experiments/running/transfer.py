"""Send the changes in a run folder from the node that trains to the node that keeps the run.

A folder is read only while no process writes to it, so the files sent are always a state the run can resume from. The
receiver writes them in an order that keeps its folder resumable at every moment: the best weights, then metrics.jsonl,
then the checkpoint, the result last; the same of the training on all data, in the folder `refit`, if there is one;
after that it removes old files.
"""

import re
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rru.files import MANIFEST, own_folder, read_file, walk, write_file, write_folder
from rru.training import RunError
from rru.training.refit import REFIT
from rru.training.run_files import (
    ABOUT_DATA,
    CELL,
    CONFIG,
    DETAILS,
    ENVIRONMENT,
    ERROR,
    KIND,
    METRICS,
    RESULT,
    VOCABULARY,
)

# config.toml and lock of a run are never sent: each folder has its own. What users put beside these files stays.
_FILES = (ENVIRONMENT, METRICS, RESULT, DETAILS, VOCABULARY, ABOUT_DATA, CELL, KIND, ERROR)
_FOLDERS = ("best", "checkpoint")
_WITHIN = f"{REFIT}/"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*){0,2}")
MAX_FILE_SIZE = 8 << 30  # bytes of a file: weights that fit a machine
_ORDER = ("best", METRICS, "checkpoint")  # then all other files, then the result


@dataclass(frozen=True)
class Changes:
    """The changes in a folder.

    **Arguments:**

    - `files`: contents of new and changed files by name, such as `checkpoint/000012/state.json`.
    - `names`: the names of all files in the folder.
    """

    files: Mapping[str, bytes]
    names: frozenset[str]


class Sender:
    """Find the files that changed in a folder since the last call.

    **Arguments:** `folder`: the run folder; files already in it count as sent.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known = self._marks()

    def changes(self) -> Changes:
        """Return the changes since the last call. Call only while no process writes to the folder."""
        marks = self._marks()
        new = [name for name, mark in marks.items() if self.known.get(name) != mark]
        self.known = marks
        return Changes({name: read_file(self.folder / name, MAX_FILE_SIZE) for name in new}, frozenset(marks))

    def _marks(self) -> dict[str, tuple[int, ...]]:
        """Return inode, size and modification time of each file, to detect changes."""
        statuses = {name: (self.folder / name).stat() for name in names_in(self.folder)}
        return {name: (status.st_ino, status.st_size, status.st_mtime_ns) for name, status in statuses.items()}


def names_in(folder: Path) -> list[str]:
    """Return the names of the files in a run folder that may be sent, sorted; without links."""
    paths = [place / name for place, names in walk(folder) for name in names]
    files = [path.relative_to(folder).as_posix() for path in paths if stat.S_ISREG(path.lstat().st_mode)]
    return sorted(filter(_belongs, files))


def _belongs(name: str) -> bool:
    """Return whether a run writes a file of this name, and it can be sent."""
    own = name.removeprefix(_WITHIN)
    inside = own.partition("/")[0] in _FOLDERS and "/" in own
    return (inside or own in _FILES or name == f"{_WITHIN}{CONFIG}") and _NAME.fullmatch(own) is not None


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files needed to resume a run on another node, by name."""
    return {name: read_file(folder / name, MAX_FILE_SIZE) for name in names_in(folder)}


def write(folder: Path, changes: Changes) -> None:
    """Apply changes to a folder; raise RunError for a file name that could point outside it.

    **Arguments:**

    - `folder`: the run folder, locked by this process.
    - `changes`: the changes, from `Sender.changes`.
    """
    for name in (*changes.files, *changes.names):
        if not _belongs(name):
            raise RunError(f"{folder}: received a file named {name!r}, which does not belong to a run")
    for part in (*_FOLDERS, REFIT, *(f"{_WITHIN}{part}" for part in _FOLDERS)):
        own_folder(folder / part)
    for part in _in_order({_part(name) for name in changes.files}):
        inside = {name: content for name, content in changes.files.items() if _part(name) == part}
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        if part in inside:
            write_file(folder / part, inside[part])
        else:  # write_folder recreates the same manifest
            files = {PurePosixPath(name).name: content for name, content in inside.items()}
            write_folder(folder / part, {name: content for name, content in files.items() if name != MANIFEST})
    wanted = {_part(name) for name in changes.names}
    for part in {_part(name) for name in names_in(folder)} - wanted:
        shutil.rmtree(folder / part) if (folder / part).is_dir() else (folder / part).unlink()


def _part(name: str) -> str:
    """Return the unit a file is written with: itself, or the folder of its checkpoint or best weights."""
    before = _WITHIN if name.startswith(_WITHIN) else ""
    return before + "/".join(PurePosixPath(name.removeprefix(_WITHIN)).parts[:2])


def _in_order(parts: Iterable[str]) -> list[str]:
    """Sort parts into writing order. The newest checkpoint goes first: an older one's best weights may be gone."""

    def place(part: str) -> tuple[bool, int]:
        top = PurePosixPath(part.removeprefix(_WITHIN)).parts[0]
        return part.startswith(_WITHIN), _ORDER.index(top) if top in _ORDER else len(_ORDER) + (top == RESULT)

    return sorted(sorted(parts, reverse=True), key=place)
