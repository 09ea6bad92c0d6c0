"""Locks between processes. The operating system releases a lock when its process ends, even if it is killed."""

import os
import stat
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import lock_descriptor

from rru.files.errors import FileError, Locked, cannot_write

_POLL = 0.01  # seconds
_GLANCE = 0.03  # seconds: `is_locked` takes the lock for a moment; another `is_locked` must not report that
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # do not follow links or block on pipes
_PID_AT = 1 if os.name == "nt" else 0  # on Windows a locked first byte cannot be read


class Lock:
    """An exclusive lock on a file. Releasing the lock does not remove the file.

    ```python
    with Lock(folder / "lock"):
        ...
    ```

    **Arguments:**

    - `path`: the lock file; created if missing.
    - `timeout`: seconds to wait for another process before raising `Locked`; None waits forever.
    """

    def __init__(self, path: Path, timeout: float | None = 0.0) -> None:
        self.path, self.timeout = path, timeout
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock; raise `Locked` if another process holds it until the timeout."""
        try:
            descriptor = _open(self.path, os.O_RDWR | os.O_CREAT)
            try:
                if not _lock(descriptor, self.timeout):
                    raise Locked(self.path, _owner(descriptor))
                os.ftruncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
                os.write(descriptor, b" " * _PID_AT + str(os.getpid()).encode())
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock. Do nothing if it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock; False if the file does not exist. Do not change the file."""
    try:
        try:
            descriptor = _open(path, os.O_RDWR)
        except PermissionError:
            descriptor = _open(path, os.O_RDONLY)
    except (OSError, FileError):
        return False
    try:
        return not _lock(descriptor, _GLANCE)
    finally:
        os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    descriptor = -1 if path.is_symlink() else os.open(path, flags | _SAFE, 0o644)
    if descriptor >= 0 and stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    if descriptor >= 0:
        os.close(descriptor)
    raise FileError(f"{path}: must be a file, is a link, a pipe or a device; remove it")


def _lock(descriptor: int, timeout: float | None) -> bool:
    """Take the lock. Return False if another process still holds it after `timeout` seconds."""
    end = None if timeout is None else time.monotonic() + timeout
    while not lock_descriptor(descriptor, blocking=False):
        if end is not None and time.monotonic() >= end:
            return False
        time.sleep(_POLL)
    return True


def _owner(descriptor: int) -> str:
    os.lseek(descriptor, _PID_AT, os.SEEK_SET)
    return os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
