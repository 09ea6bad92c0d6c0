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


def test_ends_with_the_process_that_holds_it_which_is_named(processes, tmp_path):
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


def test_waits_as_long_as_it_is_told_to(tmp_path):
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


def test_asking_makes_no_file_and_needs_no_right_to_write(tmp_path):
    assert not is_locked(tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []
    with Lock(tmp_path / "lock"):
        (tmp_path / "lock").chmod(0o444)
        assert is_locked(tmp_path / "lock")


def test_asking_often_keeps_nobody_from_the_lock(tmp_path):
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
def test_what_is_no_file_is_refused_and_left_as_it_is(kind, tmp_path):
    path = tmp_path / "lock"
    (tmp_path / "mine").write_text("kept")
    {"link": lambda: path.symlink_to(tmp_path / "mine"), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    assert not is_locked(path)
    with pytest.raises(FileError, match=r"lock: "):
        Lock(path).acquire()
    assert (tmp_path / "mine").read_text() == "kept"


def test_a_full_disk_names_the_lock(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(FileError, match=r"lock: could not be written \(No space left on device\)"):
        Lock(tmp_path / "lock").acquire()
