"""Locks: one process at a time, and none longer than its process lives."""

import errno
import os
import pickle
import signal
import threading
import time

import pytest

from rru.files import FileError, Lock, Locked, is_locked
from tests.timeouts import TIMEOUT


def hold(path, pipe):
    """Take a lock, say so, and wait until it is killed."""
    with Lock(path):
        pipe.send("held")
        signal.pause()


def test_lock_ends_with_its_process(processes, tmp_path):
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=hold, args=(tmp_path / "lock", sender))
    process.start()
    receiver.recv()
    assert is_locked(tmp_path / "lock")
    with pytest.raises(Locked, match=rf"lock: is locked by process {process.pid};") as caught:
        Lock(tmp_path / "lock").acquire()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    process.kill()
    process.join()
    assert not is_locked(tmp_path / "lock")
    with Lock(tmp_path / "lock"):
        assert is_locked(tmp_path / "lock")
    assert not is_locked(tmp_path / "lock")


def test_lock_waits_for_its_timeout(tmp_path):
    first, released = Lock(tmp_path / "lock"), []
    first.acquire()

    def release():
        time.sleep(0.05)
        released.append(True)
        first.release()

    thread = threading.Thread(target=release)
    thread.start()
    with Lock(tmp_path / "lock", timeout=None):
        assert released
    thread.join()


def test_is_locked_creates_no_file(tmp_path):
    assert not is_locked(tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []
    with Lock(tmp_path / "lock"):
        (tmp_path / "lock").chmod(0o444)
        assert is_locked(tmp_path / "lock")


def test_is_locked_does_not_starve_the_lock(tmp_path):
    (tmp_path / "lock").touch()
    ended, seen = threading.Event(), []

    def ask():
        while not ended.is_set():
            seen.append(is_locked(tmp_path / "lock"))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            with Lock(tmp_path / "lock", timeout=TIMEOUT):
                pass
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert seen


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_non_file_is_refused_unchanged(kind, tmp_path):
    path = tmp_path / "lock"
    (tmp_path / "mine").write_text("kept")
    {"link": lambda: path.symlink_to(tmp_path / "mine"), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    assert not is_locked(path)
    with pytest.raises(FileError, match=r"lock: "):
        Lock(path).acquire()
    assert (tmp_path / "mine").read_text() == "kept"


def test_full_disk_error_names_the_lock(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(FileError, match=r"lock: could not be written \(No space left on device\)"):
        Lock(tmp_path / "lock").acquire()
