"""Store a study in Optuna's journal, a file of JSON lines, so that it survives killed processes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from rru.files import FileError, Lock, own_file

LIMIT = 8 << 20  # largest journal, in bytes: a trial takes 1 to 2 kB; Optuna takes up to 30 times as much memory
ERRORS = (OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError, RuntimeError)


class _Lock(JournalFileOpenLock):
    """A lock that is released when its process dies. Optuna's own lock would stay and block all other processes."""

    def __init__(self, journal: Path) -> None:
        super().__init__(str(journal))
        self._journal = journal
        self._lock = Lock(Path(self._lock_file), timeout=None)

    def acquire(self) -> bool:
        self._lock.acquire()
        _mend(self._journal)
        return True

    def release(self) -> None:
        self._lock.release()


def _mend(journal: Path) -> None:
    """Remove an incomplete last line. The caller must hold the lock, so that no process is still writing it."""
    with journal.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - 1, 0))
        if end and file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def storage(journal: Path) -> JournalStorage:
    """Open or create the storage of a study, which contains no pickles; raise FileError if it cannot be read."""
    if own_file(journal).exists() and (size := journal.stat().st_size) > LIMIT:
        raise FileError(f"{journal}: has {size} bytes; at most {LIMIT} are allowed")
    lock = _Lock(journal)
    with readable(journal):
        backend = JournalFileBackend(str(journal), lock_obj=lock)
        lock.acquire()
        lock.release()
        return JournalStorage(backend)


@contextmanager
def readable(journal: Path) -> Iterator[None]:
    """Turn what Optuna raises for a damaged journal inside the `with` block into FileError."""
    try:
        yield
    except ERRORS as error:
        raise FileError(
            f"{journal}: cannot be read ({error!r}); remove it to start the study again; finished runs are kept"
        ) from error
