"""The record of a study: Optuna's own journal, a file of JSON lines, made safe against processes that are killed."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from rru.training import RunError


@contextmanager
def held(path: Path, *, wait: bool) -> Iterator[bool]:
    """Holds a lock that the system lets go of when the process dies, however it dies.

    **Arguments:** `path`: the lock's file; `wait`: whether to wait for whoever holds it.

    **Returns:** whether it is held; always, if `wait`.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            mine = True
        except BlockingIOError:
            mine = False
        yield mine
    finally:
        os.close(descriptor)


class _Lock(JournalFileOpenLock):
    """The system lets go of it when the process dies; one of Optuna's own would stay, and hold up all others."""

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._journal = journal
        self._descriptor = -1

    def acquire(self) -> bool:
        self._descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        _mend(self._journal)
        return True

    def release(self) -> None:
        os.close(self._descriptor)


def _mend(journal: Path) -> None:
    """Removes a last line that is cut short. Only for who holds the lock: then nobody is still writing it."""
    with journal.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - 1, 0))
        if end and file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def storage(journal: Path) -> JournalStorage:
    """What Optuna keeps a study in; made if it is not there. Nothing in it is a pickle."""
    lock = _Lock(journal)
    try:
        backend = JournalFileBackend(str(journal), lock_obj=lock)
        lock.acquire()
        lock.release()
        return JournalStorage(backend)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError) as error:
        raise RunError(
            f"{journal}: cannot be read ({error!r}); remove it to have the study start again: runs that have ended "
            "are not run again"
        ) from error
