"""Read files and archive members in memory, up to a size limit. Nothing is extracted to disk."""

import gzip
import hashlib
import stat
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rru.data.errors import DataError
from rru.data.folder import Part
from rru.data.tar import CHUNK, Readable, tar_files

CONTENT_LIMIT = 1 << 30  # bytes of a decompressed file to hash
DIRECTORY_LIMIT = 1 << 20  # bytes of a zip archive's list of members


@contextmanager
def data_errors(file: str | Path, place: str = "") -> Iterator[None]:
    """Turn any exception in the block into a DataError that names the file and the place."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # a malformed file can make a reader raise anything
        reason = str(error) or "truncated" if isinstance(error, EOFError) else f"{error}"
        raise DataError(file, f"cannot be read: {reason} ({type(error).__name__})", place) from error


def read_file(path: Path, limit: int) -> bytes:
    """Read a file. Raise DataError if it is empty, larger than `limit` bytes, or a pipe or device."""
    checked_size(path, limit)
    with data_errors(path), path.open("rb") as file:  # it may still grow
        data = b"".join(iter(LimitedReader(file, limit, path).read, b""))
    if not data:
        raise DataError(path, "is empty")
    return data


def checked_size(path: Path, limit: int) -> int:
    """Return the size of a file. Raise DataError if it is larger than `limit` bytes, or a pipe or device."""
    with data_errors(path):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its other end
            raise DataError(path, "must be a file, got a folder, pipe or device")
        if status.st_size > limit:
            raise DataError(path, f"has {status.st_size} bytes, more than the limit of {limit}")
        return status.st_size


class LimitedReader:
    """A stream that raises DataError after `limit` bytes."""

    def __init__(self, stream: Readable, limit: int, file: str | Path, place: str = "") -> None:
        self.stream = stream
        self.limit = limit
        self.file = file
        self.place = place
        self.position = 0

    def read(self, size: int = CHUNK, /) -> bytes:
        """Read at most `size` bytes; empty at the end."""
        data = self.stream.read(size)
        self.position += len(data)
        if self.position > self.limit:
            raise DataError(self.file, f"has more bytes than the limit of {self.limit}", self.place)
        return data


@contextmanager
def open_part(part: Part, limit: int) -> Iterator[LimitedReader]:
    """Open the decompressed content of a part, as a stream of at most `limit` bytes."""
    place = f"member {part.member}" if part.member else ""
    with data_errors(part.path, place):
        if part.form != "tar" and part.path.stat().st_size > limit:  # compressing does not enlarge a file
            raise DataError(part.path, f"has {part.path.stat().st_size} bytes, more than the limit of {limit}")
        if part.form == "gz":
            with gzip.open(part.path, "rb") as decompressed:
                yield LimitedReader(decompressed, limit, part.path)
        elif part.form == "zip":
            check_zip_directory(part.path)
            with zipfile.ZipFile(part.path) as archive, archive.open(_zip_member(archive, part, limit)) as content:
                yield LimitedReader(content, limit, part.path, place)
        elif part.form == "tar":
            for name, member in tar_files(part.path):
                if f"/{name}".endswith(f"/{part.member}"):
                    yield LimitedReader(member, limit, part.path, place)
                    return
            raise DataError(part.path, "the archive has no such member", place)
        else:
            with part.path.open("rb") as file:
                yield LimitedReader(file, limit, part.path)


def check_zip_directory(path: Path) -> None:
    """Raise DataError if the list of members of a zip archive is too large: `zipfile` would read it whole."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - (1 << 16) - 22, 0))
        end = file.read()
    at = len(end) - 22
    if end[at : at + 4] != b"PK\5\6" or end[-2:] != b"\0\0":  # it is followed by a comment
        at = end.rfind(b"PK\5\6")
    if at < 0 or len(end) - at < 22:
        raise DataError(path, "is not a zip archive, or truncated: it has no list of members")
    (size,) = struct.unpack_from("<I", end, at + 12)
    if size > DIRECTORY_LIMIT or end[max(at - 20, 0) : max(at - 16, 0)] == b"PK\6\7":  # zip64 keeps it elsewhere
        raise DataError(path, f"the archive's list of members has more than {DIRECTORY_LIMIT} bytes")


def _zip_member(archive: zipfile.ZipFile, part: Part, limit: int) -> zipfile.ZipInfo:
    place = f"member {part.member}"
    for member in archive.infolist():
        if member.filename == part.member:
            if member.file_size > limit:
                raise DataError(part.path, f"declares {member.file_size} bytes, more than the limit of {limit}", place)
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # LZMA can request any memory
                raise DataError(part.path, f"compression must be deflate, got method {member.compress_type}", place)
            return member
    raise DataError(part.path, "the archive has no such member", place)


def read_part(part: Part, limit: int, verify: bool) -> bytearray:
    """Read the decompressed content of a part. Raise DataError if it is empty or larger than `limit` bytes.

    With `verify`, the content must also match the size and hash in the catalogue.
    """
    limit = part.remote.content_size or limit if verify else limit
    data = bytearray()
    with open_part(part, limit) as stream:
        while chunk := stream.read(CHUNK):
            data += chunk
    if not data:
        raise DataError(part.path, "is empty", f"member {part.member}" if part.member else "")
    if verify and part.remote.content_size not in (None, len(data)):
        reason = f"is truncated or modified: has {len(data)} bytes, must have {part.remote.content_size}"
        raise DataError(part.path, reason)
    if verify and part.remote.content:
        algorithm, _, expected = part.remote.content.partition(":")
        got = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
        if got != expected:
            reason = f"is truncated or modified: {algorithm} of its {len(data)} bytes must be {expected}, got {got}"
            raise DataError(part.path, reason)
    return data


def content_hash(part: Part, algorithm: str = "sha256") -> str:
    """Hash the decompressed content of a part, in the notation of the catalogue: `sha256:…`."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open_part(part, part.remote.content_size or CONTENT_LIMIT) as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"


def decode_text(data: bytes | bytearray, file: str | Path, place: str = "") -> str:
    """Decode UTF-8. Raise DataError with the line and offset of an invalid byte."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        where = f"{place}, " if place else ""
        raise DataError(file, f"is not UTF-8: {error.reason}", f"{where}line {line}, offset {error.start}") from error
