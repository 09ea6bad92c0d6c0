"""Find the files of a user's data, and take their fingerprint: how large they are and what is in them."""

import hashlib
import itertools
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rru.data.errors import DataError
from rru.data.streams import data_errors
from rru.data.tar import CHUNK
from rru.files import walk
from rru.suggestions import closest

MAX_FILES = 500_000
MAX_BESIDE = 1_000  # names to look through for one like that of a missing file
Suffixes = Sequence[str]


@dataclass(frozen=True)
class Fingerprint:
    """The size in bytes and the SHA-256 of a file; of a folder, over the names and contents of its files."""

    size: int
    hash: str


def files_below(path: Path, suffixes: Suffixes) -> list[Path]:
    """Return the files below a folder with one of the suffixes, sorted by name. Links and hidden files are left out.

    A suffix may be empty, for names without one. Raises DataError if there are none, or too many.
    """
    files: list[Path] = []
    links = 0
    with data_errors(path):
        for folder, names in walk(path):
            for name in names:
                file = folder / name
                if name.startswith(".") or file.suffix.lower() not in suffixes:
                    continue
                mode = file.lstat().st_mode
                links += stat.S_ISLNK(mode)
                if stat.S_ISREG(mode):
                    files.append(file)
            if len(files) > MAX_FILES:
                raise DataError(path, f"must have at most {MAX_FILES:,} files")
    if not files:
        wanted = " or ".join(suffix or "no suffix" for suffix in suffixes)
        got = f"only {links:,} links, which are not followed; copy the files there" if links else "none"
        raise DataError(path, f"must have files with {wanted}, got {got}")
    return sorted(files, key=lambda file: file.relative_to(path).as_posix())


def similar(path: Path) -> str:
    """Return `; did you mean 'novel.txt'?` for a path that does not exist; an empty string if none is like it."""
    match = closest(path.name, names_beside(path))
    return f"; did you mean {str(path.with_name(match))!r}?" if match else ""


def names_beside(path: Path) -> list[str]:
    """Return the names of files and folders where a path would be; no hidden ones, and not too many."""
    try:
        found = [each.name for each in itertools.islice(path.parent.iterdir(), MAX_BESIDE)]
    except OSError:
        return []
    return sorted(name for name in found if not name.startswith("."))


def check_place(path: Path) -> None:
    """Raise DataError unless the path is a file with something in it, or a folder, and its name is text."""
    if any("\ud800" <= letter <= "\udfff" for letter in str(path)):  # not UTF-8; a config cannot hold it
        raise DataError(path, "must have a name in UTF-8; rename it")
    try:
        status = path.stat()
    except OSError as error:
        hint = similar(path) if isinstance(error, FileNotFoundError) else ""
        raise DataError(path, f"cannot be read ({error.strerror or error}){hint}") from error
    if stat.S_ISDIR(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode):  # reading a pipe or device would wait, or never end
        raise DataError(path, "must be a file or a folder, is a pipe or a device")
    if not status.st_size:
        raise DataError(path, "is empty; give a file with text, a table or music in it")


def fingerprint(path: Path, suffixes: Suffixes) -> Fingerprint:
    """Return the fingerprint of a file, or of the files with these suffixes below a folder."""
    check_place(path)
    if not path.is_dir():
        return _of_file(path)
    size, digest = 0, hashlib.sha256()
    for file in files_below(path, suffixes):
        part = _of_file(file)
        size += part.size
        digest.update(f"{file.relative_to(path).as_posix()}\0{part.hash}\n".encode(errors="surrogateescape"))
    return Fingerprint(size, digest.hexdigest())


def _of_file(path: Path) -> Fingerprint:
    with data_errors(path), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return Fingerprint(file.tell(), digest.hexdigest())


def chunks(path: Path, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes of a file from `start` up to `end`, a few at a time."""
    with path.open("rb") as file:
        file.seek(start)
        while chunk := file.read(min(CHUNK, end - file.tell())):
            yield chunk
