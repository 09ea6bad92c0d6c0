"""A cache of prepared data sets: memory-mapped arrays, written atomically and rebuilt when a source file changes."""

import hashlib
import json
import os
import shutil
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rru.data.errors import DataError
from rru.data.folder import cache_dir
from rru.data.streams import data_errors
from rru.files import FileError, flush_file, make_folder, unfinished_folder, write_file

VERSION = 6  # increase when prepared arrays or what is known about them change

SOURCE_LIMIT = 1 << 30  # bytes
ABANDONED_AFTER = 24 * 60 * 60  # seconds


@dataclass(frozen=True)
class Prepared:
    """Arrays by name, and JSON metadata in `about`."""

    arrays: Mapping[str, NDArray[Any]]  # of a dtype that each kind of data knows
    about: Mapping[str, Any]


def cached(name: str, key: Sequence[object], build: Callable[[], Prepared]) -> Prepared:
    """Return the arrays that `build` makes, from the cache if they are there and intact.

    Warn if the arrays cannot be written to the cache.

    **Arguments:**

    - `name`: the data set.
    - `key`: everything that `build` depends on, as JSON values. If it changes, the arrays are built again.
    - `build`: makes the arrays.
    """
    text = json.dumps([VERSION, *key])
    folder = cache_dir() / "prepared" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"
    if (cached := _open(folder)) is not None:
        return cached
    built = build()
    try:
        _write(folder, built)
    except (OSError, FileError) as error:
        warnings.warn(f"{name} could not be cached in {folder}: {error}", RuntimeWarning, stacklevel=3)
        return built
    return _open(folder) or built


def _open(folder: Path) -> Prepared | None:
    """Open the cached arrays in a folder, memory-mapped. Return None if they are missing or damaged."""
    try:
        checksum, _, content = (folder / "index.json").read_bytes().partition(b"\n")
        if int(checksum) != zlib.crc32(content):
            return None
        index = json.loads(content)
        arrays: dict[str, NDArray[np.generic]] = {}
        for name, expected in index["checksums"].items():
            array = np.load(folder / f"{name}.npy", mmap_mode="r" if expected["size"] else None, allow_pickle=False)
            if array.size != expected["size"] or _checksum(array) != expected["crc32"]:
                return None
            arrays[name] = array
        return Prepared(arrays, index["about"])
    except Exception:  # a damaged file can raise anything; it is built again
        return None


def _write(folder: Path, built: Prepared) -> None:
    """Write a temporary folder, then rename it. If two processes write at once, the first one wins."""
    make_folder(folder.parent)
    _remove_abandoned(folder.parent)
    with unfinished_folder(folder) as temporary:
        checksums = {}
        for name, array in built.arrays.items():
            with (temporary / f"{name}.npy").open("wb") as file:
                np.save(file, array, allow_pickle=False)
                flush_file(file)
            checksums[name] = {"size": array.size, "crc32": _checksum(array)}
        content = json.dumps({"checksums": checksums, "about": built.about}).encode("ascii")
        write_file(temporary / "index.json", b"%d\n%s" % (zlib.crc32(content), content))
        _replace(temporary, folder)


def _replace(temporary: Path, folder: Path) -> None:
    try:
        temporary.rename(folder)
    except OSError:  # the folder exists: another process was faster, or it is damaged
        if _open(folder) is not None:
            return
        damaged = temporary.with_name(temporary.name + ".damaged")
        with suppress(FileNotFoundError):
            folder.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
        with suppress(OSError):
            temporary.rename(folder)


def _remove_abandoned(root: Path) -> None:
    """Remove temporary folders older than a day: a killed process left them."""
    for path in root.glob(".*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > ABANDONED_AFTER:
                shutil.rmtree(path, ignore_errors=True)


def _checksum(array: NDArray[np.generic]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def source_hash(path: Path) -> str:
    """Hash the content of a file, or the listing of a folder. File hashes are cached by path, size and time."""
    path = path.resolve()
    if path.is_dir():
        return _listing_hash(path)
    with data_errors(path):
        state = path.stat()
    if state.st_size > SOURCE_LIMIT:
        raise DataError(path, f"has {state.st_size} bytes, more than the limit of {SOURCE_LIMIT}")
    stamp = [str(path), state.st_size, state.st_mtime_ns, state.st_ino]
    note = cache_dir() / "prepared" / "sources" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:20]}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(note.read_bytes())
        if known["stamp"] == stamp and isinstance(known["sha256"], str):
            return str(known["sha256"])
    with data_errors(path), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with suppress(FileError):  # without the note, the next call hashes the file again
        make_folder(note.parent)
        write_file(note, json.dumps({"stamp": stamp, "sha256": digest}).encode())
    return digest


def _listing_hash(folder: Path) -> str:
    """Hash the names, sizes and times of all files below a folder: reading thousands of files would be slow."""
    digest = hashlib.sha256(os.fsencode(folder))
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            with suppress(FileNotFoundError):
                state = os.stat(os.path.join(parent, name))
                line = f"{os.path.relpath(parent, folder)}/{name} {state.st_size} {state.st_mtime_ns}\n"
                digest.update(os.fsencode(line))
    return digest.hexdigest()
