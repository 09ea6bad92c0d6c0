"""Files and members of archives as bytes: nothing is written, and no more is read than a set can hold."""

import gzip
import hashlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rru.data.errors import DataError
from rru.data.folder import Part
from rru.data.tar import CHUNK, Readable, tar_files

CONTENT_LIMIT = 1 << 30  # bytes of any file, unpacked, whose own limit is not known


@contextmanager
def reading(file: str | Path, place: str = "") -> Iterator[None]:
    """Turns whatever goes wrong inside into a DataError that names the file and the place."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # readers of hostile files must fail in one way only, however they fail inside
        reason = str(error) or "ends too early" if isinstance(error, EOFError) else f"{error}"
        raise DataError(file, f"cannot be read: {reason} ({type(error).__name__})", place) from error


def whole_file(path: Path, limit: int) -> bytes:
    """All of a file that is not packed; a DataError if it is empty, or larger than `limit` bytes."""
    with reading(path):
        if (size := path.stat().st_size) > limit:
            raise DataError(path, f"has {size} bytes, more than the {limit} it may have")
        with path.open("rb") as file:  # a device or a pipe does not say how much it has
            data = b"".join(iter(Bounded(file, limit, path).read, b""))
    if not data:
        raise DataError(path, "is empty")
    return data


class Bounded:
    """A stream that refuses to give more than `limit` bytes."""

    def __init__(self, stream: Readable, limit: int, file: str | Path, place: str = "") -> None:
        self.stream = stream
        self.limit = limit
        self.file = file
        self.place = place
        self.position = 0

    def read(self, size: int = CHUNK, /) -> bytes:
        """At most `size` bytes; none at the end."""
        data = self.stream.read(size)
        self.position += len(data)
        if self.position > self.limit:
            raise DataError(self.file, f"holds more than the {self.limit} bytes it may hold", self.place)
        return data


@contextmanager
def opened(part: Part, limit: int) -> Iterator[Bounded]:
    """What a part holds, unpacked, as a stream of at most `limit` bytes."""
    place = f"member {part.member}" if part.member else ""
    with reading(part.path, place):
        if part.form != "tar" and part.path.stat().st_size > limit:  # packed or not: packing makes nothing longer
            raise DataError(part.path, f"has {part.path.stat().st_size} bytes, more than the {limit} it may have")
        if part.form == "gz":
            with gzip.open(part.path, "rb") as unpacked:
                yield Bounded(unpacked, limit, part.path)
        elif part.form == "zip":
            with zipfile.ZipFile(part.path) as archive, archive.open(_zip_member(archive, part, limit)) as content:
                yield Bounded(content, limit, part.path, place)
        elif part.form == "tar":
            for name, member in tar_files(part.path):
                if f"/{name}".endswith(f"/{part.member}"):
                    yield Bounded(member, limit, part.path, place)
                    return
            raise DataError(part.path, "the archive has no such member", place)
        else:
            with part.path.open("rb") as file:
                yield Bounded(file, limit, part.path)


def _zip_member(archive: zipfile.ZipFile, part: Part, limit: int) -> zipfile.ZipInfo:
    place = f"member {part.member}"
    for member in archive.infolist():
        if member.filename == part.member:
            if member.file_size > limit:
                raise DataError(part.path, f"promises {member.file_size} bytes, more than the {limit} allowed", place)
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # LZMA may ask for any memory
                raise DataError(part.path, f"is packed by method {member.compress_type}, only deflate is read", place)
            return member
    raise DataError(part.path, "the archive has no such member", place)


def read(part: Part, limit: int, verify: bool) -> bytearray:
    """All that a part holds, unpacked: never empty, never beyond `limit`.

    With `verify` it must also have the size and the hash that the catalogue gives for it.
    """
    limit = part.remote.content_size or limit if verify else limit
    data = bytearray()
    with opened(part, limit) as stream:
        while chunk := stream.read(CHUNK):
            data += chunk
    if not data:
        raise DataError(part.path, "is empty", f"member {part.member}" if part.member else "")
    if verify and part.remote.content:
        algorithm, _, expected = part.remote.content.partition(":")
        got = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
        if got != expected:
            reason = f"is cut or changed: {algorithm} of its {len(data)} bytes is {got}, {expected} would be right"
            raise DataError(part.path, reason)
    return data


def content_hash(part: Part, algorithm: str = "sha256") -> str:
    """Hash of what a part holds, unpacked, written like the catalogue's: `sha256:…`."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with opened(part, CONTENT_LIMIT) as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"


def decoded(data: bytes | bytearray, file: str | Path, place: str = "") -> str:
    """The text in these bytes; a DataError that names the line if it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        where = f"{place}, " if place else ""
        raise DataError(file, f"is not UTF-8: {error.reason}", f"{where}line {line}, offset {error.start}") from error
