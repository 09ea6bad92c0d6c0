"""Download data sets. A file appears only when it is complete and its hash matches; a failure leaves nothing behind."""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from rru.data.catalogue import DataSet, RemoteFile
from rru.data.errors import DataError
from rru.data.folder import present
from rru.extras import extra

with extra("train"):
    import pooch

Progress = Callable[[RemoteFile, int, int | None], None]  # file, bytes received, total bytes

CHUNK = 1 << 16
TIMEOUT = (10.0, 30.0)  # seconds to connect and to wait for data
LIMIT = 256 << 20  # bytes of a file of unknown size; the largest known file has a third of that


def fetch(data_set: DataSet, folder: Path, progress: Progress | None = None, *, force: bool = False) -> list[Path]:
    """Download the missing files of a data set.

    **Arguments:**

    - `data_set`: the data set, from `rru.data.data_set`.
    - `folder`: the data folder, from `rru.data.data_dir`.
    - `progress`: called as data arrive.
    - `force`: whether to also replace files that differ from the published ones.

    **Returns:** the downloaded files; empty if the data set is present in any accepted form.

    **Raises:** `DataError`, naming the URL and the file, if a download fails.
    """
    if not force and present(data_set, folder) is not None:
        return []
    downloaded = []
    for file in data_set.files:
        path = folder / file.path
        if (path.exists() and not force) or (path.is_file() and pooch.hashes.hash_matches(path, file.hash)):
            continue
        transfer = _Transfer(file, path, progress or (lambda file, received, total: None))
        with _data_errors(transfer), _new_folder(path.parent), _quiet(pooch.get_logger()):
            # pooch creates a temporary file, calls `transfer` to fill it, checks the hash and renames it
            pooch.retrieve(file.url, file.hash, fname=path.name, path=path.parent, downloader=transfer)
        downloaded.append(path)
    return downloaded


class _Transfer:
    """Downloader for pooch that reports progress and stops at the size of the file."""

    def __init__(self, file: RemoteFile, path: Path, progress: Progress) -> None:
        self.file = file
        self.path = path
        self.progress = progress
        self.total = file.size
        self.answered = False
        self.received = 0

    def __call__(self, url: str, output: str, _: object) -> None:
        import requests  # takes 0.1 s to import; only downloads need it

        headers = {"Accept-Encoding": "identity"}  # otherwise a server may compress the file
        with (
            requests.get(url, stream=True, timeout=TIMEOUT, headers=headers) as response,
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
            os.fsync(stream.fileno())  # otherwise a power cut could leave an empty file under the final name
        if self.received < (self.total or 0):
            raise requests.ConnectionError("the response ended early")
        os.chmod(output, 0o644)  # temporary files are private; data may be shared

    def check(self, size: int) -> None:
        """Raise if `size` exceeds the known size of the file, or `LIMIT` if it is unknown."""
        if size > (limit := self.file.size or LIMIT):
            raise DataError(self.path, f"download stopped: {self.file.url} sends more than the expected {limit} bytes")


@contextmanager
def _data_errors(transfer: _Transfer) -> Iterator[None]:
    """Turn download errors into a DataError that names the URL and where to save the file manually."""
    from requests import exceptions

    file, path = transfer.file, transfer.path
    try:
        yield
    except exceptions.RequestException as error:
        reason = _network_reason(error, transfer)
        manually = f"download it another way and save it as {path}"
        raise DataError(path, f"could not be downloaded from {file.url}: {reason}; {manually}") from error
    except ValueError as error:
        if "hash" not in str(error):
            raise
        reason = f"the file from {file.url} is not the published one: its hash is not {file.hash}"
        raise DataError(path, f"{reason}; the download was discarded") from error
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
        return f"{host} did not answer in time"
    if isinstance(error, exceptions.ConnectionError):
        return f"{host} cannot be reached"
    return f"{type(error).__name__}: {error}"


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Create a folder and its parents. If the block fails, remove the created folders that are empty."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in created:
            try:
                path.rmdir()
            except OSError:
                break
        raise


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Log warnings and errors only; `progress` reports the download."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
