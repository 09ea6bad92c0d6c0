"""Failing downloads raise a clear error and leave nothing behind."""

import _thread
import errno
import io
import multiprocessing
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rru.data import DataError, DataSet, RemoteFile
from rru.data.fetch import CHUNK, LIMIT, fetch
from tests import web
from tests.timeouts import TIMEOUT
from tests.web import CONTENT, data_set


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with web.serving() as address:
        yield address


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


def refused(entry: DataSet, folder: Path, reason: str) -> str:
    """Check that fetching raises a one-line error and leaves no folder. Return the message."""
    with pytest.raises(DataError, match=re.escape(reason)) as caught:
        fetch(entry, folder)
    assert not folder.exists()
    message = str(caught.value)
    assert "\n" not in message
    assert entry.files[-1].url in message
    assert message.startswith(str(folder / entry.files[-1].path))
    return message


def test_download_is_complete_and_readable_and_reports_progress(server: str, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    entry = data_set(f"{server}/whole")
    paths = fetch(entry, tmp_path / "new" / "data", lambda file, done, total: told.append((file.name, done, total)))
    assert paths == [tmp_path / "new" / "data" / "set" / "file0"]
    assert paths[0].read_bytes() == CONTENT
    assert paths[0].stat().st_mode & 0o444 == 0o444
    assert told == [("file0", done, len(CONTENT)) for done in range(CHUNK, len(CONTENT) + 1, CHUNK)]
    assert [path.name for path in (tmp_path / "new" / "data" / "set").iterdir()] == ["file0"]


def test_total_comes_from_the_server_if_the_catalogue_has_none(server: str, tmp_path: Path) -> None:
    totals: set[int | None] = set()
    fetch(data_set(f"{server}/whole", size=None), tmp_path, lambda file, done, total: totals.add(total))
    assert totals == {len(CONTENT)}


def test_connection_lost_half_way(server: str, tmp_path: Path) -> None:
    refused(data_set(f"{server}/half"), tmp_path / "data", "the connection was lost after")


def test_response_that_ends_half_way_without_content_length(server: str, tmp_path: Path) -> None:
    lost = f"the connection was lost after {len(CONTENT) // 2} of {len(CONTENT)} bytes"
    refused(data_set(f"{server}/half-without-length"), tmp_path / "data", lost)


def test_half_a_file_of_unknown_size_has_the_wrong_hash(server: str, tmp_path: Path) -> None:
    refused(data_set(f"{server}/half-without-length", size=None), tmp_path / "data", "is not the published one")


def test_empty_response(server: str, tmp_path: Path) -> None:
    refused(data_set(f"{server}/empty"), tmp_path / "data", f"lost after 0 of {len(CONTENT)} bytes")
    refused(data_set(f"{server}/empty", size=None), tmp_path / "data", "is not the published one")


def test_wrong_hash(server: str, tmp_path: Path) -> None:
    refused(data_set(f"{server}/changed"), tmp_path / "data", f"its hash is not {web.HASH}")


def test_endless_response_stops_at_the_expected_size(server: str, tmp_path: Path) -> None:
    refused(data_set(f"{server}/endless"), tmp_path / "data", f"sends more than the expected {len(CONTENT)} bytes")


def test_endless_response_stops_at_the_limit_if_the_size_is_unknown(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rru.data.fetch.LIMIT", 1 << 20)
    refused(
        data_set(f"{server}/endless", size=None), tmp_path / "data", f"sends more than the expected {1 << 20} bytes"
    )


def test_content_length_above_the_limit_is_rejected_at_once(server: str, tmp_path: Path) -> None:
    refused(
        data_set(f"{server}/promises-too-much", size=None),
        tmp_path / "data",
        f"sends more than the expected {LIMIT} bytes",
    )


@pytest.mark.parametrize(("answer", "reason"), [("silence", "in time"), ("half-then-silence", "connection was lost")])
def test_server_that_stops_sending(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, reason: str
) -> None:
    monkeypatch.setattr("rru.data.fetch.TIMEOUT", (10.0, 0.1))
    refused(data_set(f"{server}/{answer}"), tmp_path / "data", reason)


def test_not_found(server: str, tmp_path: Path) -> None:
    message = refused(data_set(f"{server}/missing"), tmp_path / "data", "answered 404 Not Found")
    assert message.endswith(f"save it as {tmp_path / 'data' / 'set' / 'file0'}")


def test_endless_redirection(server: str, tmp_path: Path) -> None:
    refused(data_set(f"{server}/elsewhere"), tmp_path / "data", "TooManyRedirects")


def test_without_network_the_message_names_url_and_path(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening, so connections are refused
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file"
        message = refused(data_set(url), tmp_path / "data", "cannot be reached")
    assert message.endswith(f"save it as {tmp_path / 'data' / 'set' / 'file0'}")


class FullDisk(io.FileIO):
    """Fails on the second write."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self.tell():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_full_disk(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rru.data.fetch.open", FullDisk, raising=False)
    refused(data_set(f"{server}/whole"), tmp_path / "data", "could not be written: the disk is full")


def test_file_instead_of_the_folder(server: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mine")
    with pytest.raises(DataError, match="could not be written"):
        fetch(data_set(f"{server}/whole"), tmp_path / "data")
    assert (tmp_path / "data").read_text() == "mine"


def test_ctrl_c_leaves_nothing(server: str, tmp_path: Path) -> None:
    def interrupt(file: RemoteFile, done: int, total: int | None) -> None:
        if done > CHUNK:
            _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        fetch(data_set(f"{server}/whole"), tmp_path / "data", interrupt)
    assert not (tmp_path / "data").exists()


def test_files_before_a_failure_are_kept_and_not_downloaded_again(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="404"):
        fetch(data_set(f"{server}/whole", f"{server}/missing"), tmp_path)
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["file0"]
    both = data_set(f"{server}/missing", f"{server}/whole")
    assert fetch(both, tmp_path) == [tmp_path / "set" / "file1"]
    assert fetch(both, tmp_path) == []


def test_failed_replacement_keeps_the_old_file(server: str, tmp_path: Path) -> None:
    path = tmp_path / "set" / "file0"
    path.parent.mkdir()
    path.write_text("put here by hand")
    assert fetch(data_set(f"{server}/whole"), tmp_path) == []
    for answer in ("changed", "half", "missing"):
        with pytest.raises(DataError):
            fetch(data_set(f"{server}/{answer}"), tmp_path, force=True)
        assert [(path.name, path.read_text()) for path in path.parent.iterdir()] == [("file0", "put here by hand")]
    assert fetch(data_set(f"{server}/whole"), tmp_path, force=True) == [path]
    assert path.read_bytes() == CONTENT
    assert fetch(data_set(f"{server}/missing"), tmp_path, force=True) == []  # as published already


def fetch_together(start: Callable[[], object], entry: DataSet, folder: Path) -> None:
    start()
    fetch(entry, folder, lambda file, done, total: start() if done == CHUNK else None)  # type: ignore[func-returns-value]


def test_two_processes_can_fetch_at_once(server: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2, timeout=TIMEOUT)  # before the download, and in the middle of it
    arguments = (barrier.wait, data_set(f"{server}/whole"), tmp_path / "data")
    processes = [context.Process(target=fetch_together, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert [path.name for path in (tmp_path / "data" / "set").iterdir()] == ["file0"]
    assert (tmp_path / "data" / "set" / "file0").read_bytes() == CONTENT
