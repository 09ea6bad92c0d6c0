"""Forge run folders: replace every value of every file with hostile ones."""

import copy
import hashlib
import json
import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rru.files import FileError
from rru.settings import toml
from tests.training.toy import train_in

HOSTILE: tuple[Any, ...] = (None, 5, -1, True, 10**400, 1e308, "", "\x1b[2J../..", [], {"a": []}, [[None]], "a" * 9000)
REMOVED = object()
Path_ = tuple[Any, ...]


def places(content: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Yield where the values of nested dicts and lists are, the containers included."""
    yield at
    if isinstance(content, dict):
        for key in content:
            yield from places(content[key], (*at, key))
    elif isinstance(content, list):
        for index in range(min(len(content), 40)):
            yield from places(content[index], (*at, index))


def replaced(content: Any, at: Path_, value: Any) -> Any:
    """Return a copy with another value at a place; `REMOVED` removes it."""
    if not at:
        return {} if value is REMOVED else value
    content = copy.deepcopy(content)
    inner = content
    for step in at[:-1]:
        inner = inner[step]
    if value is REMOVED:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return content


def _json_lines(text: bytes) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def _write_lines(lines: Any) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in (lines if isinstance(lines, list) else [lines]))


READERS: dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = {
    ".json": (json.loads, lambda content: json.dumps(content).encode()),
    ".jsonl": (_json_lines, _write_lines),
    ".toml": (lambda text: tomllib.loads(text.decode()), lambda content: toml.dumps(content).encode()),
}


@dataclass(frozen=True)
class Forgery:
    """Another value at a place in a file of a run."""

    file: Path
    at: Path_
    value: Any

    def __str__(self) -> str:
        shown = "removed" if self.value is REMOVED else repr(self.value)[:20]
        return f"{self.file}: {'.'.join(map(str, self.at)) or 'all'} = {shown}"

    def content(self) -> bytes | None:
        """Return the content of the forged file; None if its format cannot hold the value."""
        read, write = READERS[self.file.suffix]
        try:
            return write(replaced(read(self.file.read_bytes()), self.at, self.value))
        except (TypeError, ValueError, AttributeError):  # TOML has no null
            return None


def forgeries(run: Path, pattern: str = "*") -> list[Forgery]:
    """Return every forgery of the files of a run whose names match."""
    files = [file for file in sorted(run.rglob(pattern)) if file.suffix in READERS and file.is_file()]
    return [
        Forgery(file, at, value)
        for file in files
        for at in places(READERS[file.suffix][0](file.read_bytes()))
        for value in (*HOSTILE, REMOVED)
    ]


def seal(folder: Path) -> None:
    """Make the manifest of a folder fit its files, as a forger would."""
    files = [path for path in folder.iterdir() if path.name != "manifest.json"]
    known = {
        path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in files
    }
    (folder / "manifest.json").write_text(json.dumps(known))


def forged_checkpoints(run: Path) -> list[Forgery]:
    """Train a toy run for some steps and return every forgery of the state in its newest checkpoint."""
    stops = iter([False] * 10 + [True])
    train_in(run, stop=lambda: next(stops))
    newest = max((run / "checkpoint").iterdir())
    return forgeries(run, f"checkpoint/{newest.name}/state.json")


def resume_forged(run: Path, forgery: Forgery) -> FileError | ValueError | None:
    """Resume a copy of a toy run with a forged file. Return the error that refuses it, or None if it trains."""
    copied = run.with_name("forged")
    shutil.copytree(run, copied)
    target = copied / forgery.file.relative_to(run)
    target.write_bytes(forgery.content() or b"")
    seal(target.parent)
    stops = iter([False, False, True])
    try:
        train_in(copied, watch=lambda event: None, stop=lambda: next(stops))
    except (FileError, ValueError) as error:
        return error
    except BaseException as error:
        raise AssertionError(str(forgery)) from error
    finally:
        shutil.rmtree(copied)
    return None
