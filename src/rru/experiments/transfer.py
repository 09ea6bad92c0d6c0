"""A run's folder as bytes: what has changed in it since last time, sent from where it trains to where it is kept.

A folder is looked at only while nobody writes to it, so what is sent is a state the run can go on from. It is written
in an order that leaves such a state at every moment: the best weights before the lines that speak of them, these before
the checkpoint, the result last, and what is no longer needed removed after that.
"""

import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rru.training import RunError
from rru.training.files import MANIFEST, write_file, write_folder

KEPT = ("config.toml", "lock")  # never sent: they belong to the folder, not to what happens in it
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*){0,2}")
_ORDER = ("best", "metrics.jsonl", "checkpoint")  # then all other files, then the result
_LAST = "result.json"


@dataclass(frozen=True)
class Changes:
    """What has changed in a folder.

    **Arguments:**

    - `files`: contents by name, such as `checkpoint/000012/state.json`, of those that are new.
    - `names`: all files there are.
    """

    files: Mapping[str, bytes]
    names: frozenset[str]


class Sender:
    """Finds what has changed in a folder since last time.

    **Arguments:** `folder`: the run's; what is in it now counts as known.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known = self._marks()

    def changes(self) -> Changes:
        """What is new since last time. For when nobody writes there."""
        marks = self._marks()
        new = [name for name, mark in marks.items() if self.known.get(name) != mark]
        self.known = marks
        return Changes({name: (self.folder / name).read_bytes() for name in new}, frozenset(marks))

    def _marks(self) -> dict[str, tuple[int, ...]]:
        """By file, what differs once it was written again."""
        stats = {name: (self.folder / name).stat() for name in names_in(self.folder)}
        return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


def names_in(folder: Path) -> list[str]:
    """The files of a run's folder that may be sent."""
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return sorted(name for name in paths if _NAME.fullmatch(name) and name not in KEPT)


def contents(folder: Path) -> dict[str, bytes]:
    """All that must be sent for a run to go on elsewhere."""
    return {name: (folder / name).read_bytes() for name in names_in(folder)}


def write(folder: Path, changes: Changes) -> None:
    """Has a folder hold what another holds. No name can lead out of it.

    **Arguments:**

    - `folder`: the run's, locked by this process.
    - `changes`: as `Sender.changes` gives them.
    """
    for name in (*changes.files, *changes.names):
        if not _NAME.fullmatch(name) or name in KEPT:
            raise RunError(f"{folder}: was sent a file named {name!r}, which is none of a run's")
    for part in _in_order({_part(name) for name in changes.files}):
        inside = {name: content for name, content in changes.files.items() if _part(name) == part}
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        if part in inside:
            write_file(folder / part, inside[part])
        else:  # its manifest is made anew, with the same content
            files = {PurePosixPath(name).name: content for name, content in inside.items()}
            write_folder(folder / part, {name: content for name, content in files.items() if name != MANIFEST})
    kept = {_part(name) for name in changes.names}
    for part in {_part(name) for name in names_in(folder)} - kept:
        shutil.rmtree(folder / part) if (folder / part).is_dir() else (folder / part).unlink()


def _part(name: str) -> str:
    """What is written at once: a file, or the folder of a checkpoint or of the best weights."""
    return "/".join(PurePosixPath(name).parts[:2])


def _in_order(parts: Iterable[str]) -> list[str]:
    """The newest checkpoint before the one before it, whose best weights may be gone already."""

    def place(part: str) -> int:
        top = PurePosixPath(part).parts[0]
        return _ORDER.index(top) if top in _ORDER else len(_ORDER) + (top == _LAST)

    return sorted(sorted(parts, reverse=True), key=place)
