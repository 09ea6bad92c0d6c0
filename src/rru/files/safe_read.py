"""Read untrusted files: limit their size, refuse links, and verify checksums."""

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from rru.files.errors import Damaged, FileError

MANIFEST = "manifest.json"
MANIFEST_LIMIT = 1 << 20  # bytes
MAX_VALUES = 1_000_000  # of a JSON file
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_file(path: Path, limit: int) -> IO[bytes]:
    """Open a file of at most `limit` bytes; raise `Damaged` if it is larger, or a link, pipe or device."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise Damaged(f"{path}: must be a file, is a link, a pipe or a device")
    file = os.fdopen(os.open(path, os.O_RDONLY | _SAFE), "rb")
    status = os.fstat(file.fileno())  # again: it may have been replaced
    if stat.S_ISREG(status.st_mode) and status.st_size <= limit:
        return file
    file.close()
    raise Damaged(f"{path}: has {status.st_size} bytes; at most {limit} are allowed")


def read_file(path: Path, limit: int) -> bytes:
    """Read a file of at most `limit` bytes; raise `Damaged` if it is larger, or a link, pipe or device."""
    with open_file(path, limit) as file:
        return file.read(os.fstat(file.fileno()).st_size)  # no more, if it still grows


def parse_json(content: bytes, most: int = MAX_VALUES) -> Any:
    """Parse JSON; raise ValueError if it is none, or may have more than `most` values: each takes up to 200 bytes."""
    if json_values(content) > most:
        raise ValueError(f"has more than {most} values")
    return json.loads(content)


def json_values(content: bytes) -> int:
    """Return at least how many values JSON has, by the marks between them, those inside of texts included."""
    return sum(map(content.count, (b",", b"[", b"{")))


def read_folder(path: Path, check: Callable[[Path], None] = lambda file: None) -> dict[str, bytes]:
    """Read a folder that `write_folder` wrote with a manifest; raise `Damaged` if a file is missing or changed.

    **Arguments:**

    - `path`: the folder.
    - `check`: called with each file before any is read, when all have the sizes in the manifest; raises if it must not
      be read.

    **Returns:** contents by file name, without the manifest.
    """
    if path.is_symlink():
        raise Damaged(f"{path}: must be a folder, is a link")
    try:
        manifest = parse_json(read_file(path / MANIFEST, MANIFEST_LIMIT))
        known = {str(name): (int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Damaged(f"{path / MANIFEST}: cannot be read ({error!r})") from error
    for name in known:
        if Path(name).name != name:
            raise Damaged(f"{path / MANIFEST}: names {name!r}, which is not a file in this folder")
    for name, (size, _) in known.items():
        _check_size(path / name, size)
        check(path / name)
    return {name: _checked(path / name, size, sha256) for name, (size, sha256) in known.items()}


def own_file(path: Path) -> Path:
    """Return the path; raise FileError if it is a link, pipe or device. The file need not exist."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise FileError(f"{path}: must be a file, is a link, a pipe or a device; remove it")
    return path


def own_folder(path: Path) -> Path:
    """Return the path; raise FileError if it is a link, which could point outside its parent folder."""
    if path.is_symlink():
        raise FileError(f"{path}: must be a folder, is a link; remove it")
    return path


def _check_size(path: Path, size: int) -> None:
    try:
        status = path.lstat()
    except OSError as error:
        raise Damaged(f"{path}: cannot be read ({error.strerror or error})") from error
    if not stat.S_ISREG(status.st_mode):  # before `check`, which may open it
        raise Damaged(f"{path}: must be a file, is a link, a pipe or a device")
    if status.st_size != size:
        raise Damaged(f"{path}: has {status.st_size} bytes, but {size} were written")


def _checked(path: Path, size: int, sha256: str) -> bytes:
    try:
        content = read_file(path, size)
    except OSError as error:
        raise Damaged(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(content) != size:
        raise Damaged(f"{path}: has {len(content)} bytes, but {size} were written")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise Damaged(f"{path}: its content has changed (checksum mismatch)")
    return content
