"""Files that are never half there: written under another name, flushed to the disk, then renamed."""

import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

MANIFEST = "manifest.json"
MANIFEST_LIMIT = 1 << 20  # bytes
UNFINISHED = ".unfinished-"


class RunError(Exception):
    """Something about a run's folder that stops it: which file, what is the matter, and what would help."""


class Damaged(RunError):  # noqa: N818 (it says what is the matter)
    """A file that is not as it was written."""


def write_file(path: Path, content: bytes) -> None:
    """Writes or replaces a file: whenever the machine stops, the old one or the new one is there, whole."""
    unfinished = path.with_name(f"{UNFINISHED}{secrets.token_hex(4)}-{path.name}")
    try:
        with unfinished.open("wb") as file:
            write_all(file, content)
        unfinished.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        unfinished.unlink(missing_ok=True)


def read_file(path: Path, limit: int) -> bytes:
    """What a file of at most `limit` bytes holds; `Damaged` if it is larger, a link, or a device without end."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise Damaged(f"{path}: must be a file")
    if found.st_size > limit:
        raise Damaged(f"{path}: has {found.st_size} bytes where at most {limit} are right")
    return path.read_bytes()


def append_line(path: Path, line: bytes) -> None:
    """Adds a line to a file's end, at once on the disk. A crash may leave the start of it, without the line's end."""
    try:
        if path.is_symlink() or path.exists():
            own_file(path)
        with path.open("ab") as file:
            write_all(file, line + b"\n")
    except OSError as error:
        raise cannot_write(path, error) from error


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Writes or replaces a folder of files, with a manifest of their checksums: all of them or none."""
    unfinished = path.with_name(f"{UNFINISHED}{secrets.token_hex(4)}-{path.name}")
    manifest = {name: {"bytes": len(content), "sha256": _sha256(content)} for name, content in files.items()}
    try:
        unfinished.mkdir(parents=True)
        for name, content in {**files, MANIFEST: json.dumps(manifest, indent=1).encode()}.items():
            with (unfinished / name).open("wb") as file:
                write_all(file, content)
        flush_folder(unfinished)
        if path.exists():  # nothing depends on it, or it would not be written again
            shutil.rmtree(path)
        unfinished.rename(path)
        flush_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def read_folder(path: Path) -> dict[str, bytes]:
    """What `write_folder` wrote; `Damaged` if a file is missing or not as it was written."""
    try:
        manifest = json.loads(read_file(path / MANIFEST, MANIFEST_LIMIT))
        known = {str(name): (int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Damaged(f"{path / MANIFEST}: cannot be read ({error!r})") from error
    return {name: _checked(path / name, *entry) for name, entry in known.items() if _plain(path, name)}


def own_file(path: Path) -> Path:
    """The path, if it is a file of the run's own: a link would lead out of the folder, a pipe or device has no end."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise RunError(f"{path}: must be a file of the run itself, is a link or a device; remove it")
    return path


def sweep(folder: Path) -> None:
    """Removes what a killed process left unfinished. Only for who holds the run's lock."""
    for path in folder.glob(f"{UNFINISHED}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def write_all(file: IO[bytes], content: bytes) -> None:
    """Writes to an open file, down to the disk. Every byte of a run goes through here."""
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    """Has the folder's names on the disk too, not only its files' contents."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> RunError:
    """The error that says what could not be written, and that it is no loss."""
    return RunError(
        f"{path}: could not be written ({error.strerror or error}); what was saved before is unharmed, "
        "and the run can be resumed once this is put right"
    )


def to_json(value: Any) -> bytes:
    """JSON that any reader takes: numbers that are not finite become null."""
    return json.dumps(_finite(value), allow_nan=False).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value


def _checked(path: Path, size: int, sha256: str) -> bytes:
    try:
        content = read_file(path, size)
    except OSError as error:
        raise Damaged(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(content) != size:
        raise Damaged(f"{path}: has {len(content)} bytes where {size} were written")
    if _sha256(content) != sha256:
        raise Damaged(f"{path}: its content is not what was written (checksum differs)")
    return content


def _plain(path: Path, name: str) -> bool:
    if Path(name).name != name:
        raise Damaged(f"{path / MANIFEST}: names {name!r}, which is not a file of this folder")
    return True


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
