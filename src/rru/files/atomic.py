"""Atomic writes of files and folders: write under a temporary name, flush to disk, then rename."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from rru.files.errors import cannot_write
from rru.files.folders import UNFINISHED
from rru.files.safe_read import MANIFEST, own_file

_flushed = ContextVar("_flushed", default=True)


@contextmanager
def not_flushed() -> Iterator[None]:
    """Do not wait for the disk inside the block: for files that need not survive a power cut, as they are removed."""
    token = _flushed.set(False)
    try:
        yield
    finally:
        _flushed.reset(token)


def write_file(path: Path, content: bytes) -> None:
    """Write or replace a file atomically: a crash leaves either the old content or the new, never a mix."""
    unfinished = _unfinished(path)
    try:
        with unfinished.open("wb") as file:
            write_all(file, content)
        unfinished.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with suppress(OSError):  # already renamed if all went well
            unfinished.unlink()


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file and flush it to disk. A crash may leave an incomplete last line."""
    try:
        with own_file(path).open("ab") as file:
            write_all(file, line + b"\n")
    except OSError as error:
        raise cannot_write(path, error) from error


def write_folder(path: Path, files: Mapping[str, bytes], *, manifest: bool = True) -> None:
    """Write or replace a folder, with all of its files or none.

    **Arguments:**

    - `path`: the folder. If it exists, it is removed first.
    - `files`: contents by file name.
    - `manifest`: also write the sizes and checksums of the files to `manifest.json`.
    """
    known = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in files.items()
    }
    more = {MANIFEST: json.dumps(known, indent=1).encode()} if manifest else {}
    try:
        with unfinished_folder(path) as unfinished:
            for name, content in {**files, **more}.items():
                with (unfinished / name).open("wb") as file:
                    write_all(file, content)
            flush_folder(unfinished)
            if path.exists():  # callers only rewrite folders that nothing depends on
                shutil.rmtree(path)
            unfinished.rename(path)
            flush_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error


@contextmanager
def unfinished_folder(path: Path) -> Iterator[Path]:
    """Create a temporary folder next to `path`, to fill and rename to `path`; removed on exit if not renamed."""
    unfinished = _unfinished(path)
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def make_folder(path: Path) -> None:
    """Create a folder and its parents if they do not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def sweep(folder: Path) -> None:
    """Remove temporary files that killed processes left behind. The caller must hold the folder's lock."""
    for path in folder.glob(f"{UNFINISHED}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def write_all(file: IO[bytes], content: bytes) -> None:
    """Write to an open file and flush it to disk."""
    file.write(content)
    flush_file(file)


def flush_file(file: IO[bytes]) -> None:
    """Flush an open file to disk (fsync)."""
    file.flush()
    if _flushed.get():
        os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    """Flush a folder's entries to disk, so that renames survive a crash. Do nothing on Windows."""
    if os.name == "nt" or not _flushed.get():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unfinished(path: Path) -> Path:
    return path.with_name(f"{UNFINISHED}{secrets.token_hex(4)}-{path.name}")
