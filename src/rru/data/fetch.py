"""Downloads: a file takes its name only when it is whole and its hash is right, and a failure leaves nothing behind."""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pooch

from rru.data.catalogue import Entry, RemoteFile
from rru.data.errors import DataError
from rru.data.folder import present

Progress = Callable[[RemoteFile, int, int | None], None]  # a file, how many of its bytes are here, of how many

CHUNK = 1 << 16
TIMEOUT = (10.0, 30.0)  # seconds to connect, and to wait for the next bytes
LIMIT = 256 << 20  # bytes of a file whose size no source states; the largest known is a third of that


def fetch(entry: Entry, folder: Path, progress: Progress | None = None, *, force: bool = False) -> list[Path]:
    """Downloads what a set still lacks.

    **Arguments:**

    - `entry`: the set, from `rru.data.entry`.
    - `folder`: the data folder, from `rru.data.data_dir`.
    - `progress`: called as bytes arrive.
    - `force`: also replaces files that are there but are not as published.

    **Returns:** the files downloaded; none if the set is here already, in whichever form.
    """
    if not force and present(entry, folder) is not None:
        return []
    wanted = [file for file in entry.files if force or not (folder / file.path).exists()]
    wanted = [file for file in wanted if not _as_published(file, folder / file.path)]
    for file in wanted:
        _download(file, folder / file.path, progress or _silent)
    return [folder / file.path for file in wanted]


def _silent(file: RemoteFile, done: int, total: int | None) -> None:
    """Nobody is watching."""


def _as_published(file: RemoteFile, path: Path) -> bool:
    return path.is_file() and bool(pooch.hashes.hash_matches(path, file.hash))


def _download(file: RemoteFile, path: Path, progress: Progress) -> None:
    """One file, by way of a temporary one beside it, so that others see it whole or not at all."""
    transfer = _Transfer(file, path, progress)
    with _explained(transfer), _new_folders(path.parent), _quiet(pooch.get_logger()):
        # pooch makes a temporary file of a unique name, has it filled, compares hashes, then renames it
        pooch.retrieve(file.url, file.hash, fname=path.name, path=path.parent, downloader=transfer)


class _Transfer:
    """Fills pooch's temporary file from the network, with no more than the file can hold."""

    def __init__(self, file: RemoteFile, path: Path, progress: Progress) -> None:
        self.file = file
        self.path = path
        self.progress = progress
        self.total = file.size
        self.answered = False
        self.received = 0

    def __call__(self, url: str, output: str, _: object) -> None:
        import requests  # costs a tenth of a second, which only a download should pay

        whole = {"Accept-Encoding": "identity"}  # else a server may pack or unpack a file on the way
        with (
            requests.get(url, stream=True, timeout=TIMEOUT, headers=whole) as response,
            open(output, "wb") as stream,
        ):
            response.raise_for_status()
            self.answered = True
            announced = response.headers.get("content-length", "")
            if self.total is None and announced.isdecimal():
                self.total = int(announced)
                self.check(self.total)
            for chunk in response.iter_content(CHUNK):
                self.check(self.received + len(chunk))
                stream.write(chunk)
                self.received += len(chunk)
                self.progress(self.file, self.received, self.total)
            stream.flush()
            os.fsync(stream.fileno())  # else the name could outlive a power cut, and the bytes not
        if self.received < (self.total or 0):
            raise requests.ConnectionError("the body is shorter than it should be")
        os.chmod(output, 0o644)  # temporary files are for their owner alone; data may be shared

    def check(self, size: int) -> None:
        """Stops what is larger than the file, or than any file of ours where its size is not known."""
        if size > (limit := self.file.size or LIMIT):
            raise DataError(self.path, f"stopped the download: {self.file.url} gives more than {limit} bytes")


@contextmanager
def _explained(transfer: _Transfer) -> Iterator[None]:
    """Turns whatever stops a download into one message: which URL, which file, and where to put it by hand."""
    from requests import exceptions

    file, path = transfer.file, transfer.path
    try:
        yield
    except exceptions.RequestException as error:
        reason = _network_reason(error, transfer)
        by_hand = f"get it some other way and save it as {path}"
        raise DataError(path, f"could not be downloaded from {file.url}: {reason}; {by_hand}") from error
    except ValueError as error:
        if "hash" not in str(error):
            raise
        reason = f"what {file.url} gave is not the published file: its {file.hash.partition(':')[0]} is not {file.hash}"
        raise DataError(path, f"{reason}; it was thrown away") from error
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else str(error.strerror or error)
        raise DataError(path, f"could not be written: {reason} (downloading {file.url})") from error


def _network_reason(error: Exception, transfer: _Transfer) -> str:
    from requests import exceptions

    host = urlsplit(transfer.file.url).netloc
    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        return f"{host} answered {error.response.status_code} {error.response.reason}"
    if transfer.answered:
        total = f" of {transfer.total}" if transfer.total else ""
        return f"the connection was lost after {transfer.received}{total} bytes"
    if isinstance(error, exceptions.Timeout):
        return f"no answer from {host} in time"
    if isinstance(error, exceptions.ConnectionError):
        return f"{host} cannot be reached"
    return f"{type(error).__name__}: {error}"


@contextmanager
def _new_folders(folder: Path) -> Iterator[None]:
    """Makes a folder, and unmakes what it made, where still empty, if what follows fails."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for place in made:
            try:
                place.rmdir()
            except OSError:
                break
        raise


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Only warnings and worse: what is being downloaded is told to `progress`."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
