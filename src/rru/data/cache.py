"""Prepared forms of data sets: arrays in files, memory-mapped, made once and never half."""

import hashlib
import json
import os
import shutil
import tempfile
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
from rru.data.streams import reading

VERSION = 1  # of the code that prepares: raise it whenever prepared arrays change

SOURCE_LIMIT = 1 << 30  # bytes
ABANDONED = 24 * 60 * 60  # seconds


@dataclass(frozen=True)
class Prepared:
    """Arrays by name, and whatever else describes them as JSON."""

    arrays: Mapping[str, NDArray[Any]]
    about: Mapping[str, Any]


def prepared(name: str, sources: Sequence[Path], options: Mapping[str, Any], build: Callable[[], Prepared]) -> Prepared:
    """What `build` makes of the sources: from the cache if it is there and whole, else built and put there.

    **Arguments:**

    - `name`: of the set.
    - `sources`: the files or folders `build` reads; when one changes, so does the key.
    - `options`: what else `build` depends on.
    - `build`: makes the arrays.
    """
    root = cache_dir() / "prepared"
    key = json.dumps([VERSION, [_source_hash(path, root) for path in sources], sorted(options.items())])
    folder = root / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:20]}"
    if (ready := _open(folder)) is not None:
        return ready
    made = build()
    try:
        _write(folder, made)
    except OSError as error:
        warnings.warn(f"{name} was prepared but could not be kept in {folder}: {error}", RuntimeWarning, stacklevel=3)
        return made
    return _open(folder) or made


def _open(folder: Path) -> Prepared | None:
    """The prepared form in a folder, memory-mapped; None if it is missing or damaged."""
    try:
        checksum, _, content = (folder / "index.json").read_bytes().partition(b"\n")
        if int(checksum) != zlib.crc32(content):
            return None
        index = json.loads(content)
        arrays: dict[str, NDArray[Any]] = {}
        for name, known in index["checksums"].items():
            array = np.load(folder / f"{name}.npy", mmap_mode="r" if known["size"] else None, allow_pickle=False)
            if array.size != known["size"] or _checksum(array) != known["crc32"]:
                return None
            arrays[name] = array
        return Prepared(arrays, index["about"])
    except Exception:  # whatever a damaged file makes go wrong, the answer is to make it again
        return None


def _write(folder: Path, made: Prepared) -> None:
    """Writes the whole folder under another name, then renames it; the first of two processes wins."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        checksums = {}
        for name, array in made.arrays.items():
            with (unfinished / f"{name}.npy").open("wb") as file:
                np.save(file, array, allow_pickle=False)
                _flush(file.fileno())
            checksums[name] = {"size": array.size, "crc32": _checksum(array)}
        content = json.dumps({"checksums": checksums, "about": made.about}).encode("ascii")
        with (unfinished / "index.json").open("wb") as index:
            index.write(b"%d\n%s" % (zlib.crc32(content), content))
            index.flush()
            _flush(index.fileno())
        unfinished.chmod(0o755)
        _replace(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _replace(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:  # a folder of that name is there: another process was faster, or it is damaged
        if _open(folder) is not None:
            return
        damaged = unfinished.with_name(unfinished.name + ".damaged")
        with suppress(FileNotFoundError):
            folder.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
        with suppress(OSError):
            unfinished.rename(folder)


def _sweep(root: Path) -> None:
    """Removes what processes that were killed left unfinished: no preparation takes a day."""
    for path in root.glob(".*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > ABANDONED:
                shutil.rmtree(path, ignore_errors=True)


def _flush(descriptor: int) -> None:
    os.fsync(descriptor)


def _checksum(array: NDArray[Any]) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _source_hash(path: Path, root: Path) -> str:
    """Hash of a file's content, remembered by its place, size and time; of a folder's listing."""
    path = path.resolve()
    if path.is_dir():
        return _listing_hash(path)
    with reading(path):
        state = path.stat()
    if state.st_size > SOURCE_LIMIT:
        raise DataError(path, f"has {state.st_size} bytes, more than the {SOURCE_LIMIT} a file of any set may have")
    stamp = [str(path), state.st_size, state.st_mtime_ns, state.st_ino]
    note = root / "sources" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:20]}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(note.read_bytes())
        if known["stamp"] == stamp and isinstance(known["sha256"], str):
            return str(known["sha256"])
    with reading(path), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with suppress(OSError):  # a cache that cannot be written is slow, not wrong
        note.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=note.parent, prefix=".", delete=False) as unfinished:
            try:
                json.dump({"stamp": stamp, "sha256": digest}, unfinished)
                unfinished.flush()
                Path(unfinished.name).replace(note)
            except OSError:
                Path(unfinished.name).unlink(missing_ok=True)
    return digest


def _listing_hash(folder: Path) -> str:
    """Hash of names, sizes and times below a folder: reading tens of thousands of files each time would take long."""
    digest = hashlib.sha256(os.fsencode(folder))
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            with suppress(FileNotFoundError):
                state = os.stat(os.path.join(parent, name))
                line = f"{os.path.relpath(parent, folder)}/{name} {state.st_size} {state.st_mtime_ns}\n"
                digest.update(os.fsencode(line))
    return digest.hexdigest()
