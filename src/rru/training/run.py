"""A run is a folder: what was asked for, what it ran on, what happened, where to continue, and what came of it.

```
config.toml    every setting, resolved
env.json       versions, processor, threads, commit
metrics.jsonl  a line for each epoch and for every so many steps
checkpoint/    the last two checkpoints, until the run has ended
best/          the weights that did best on validation
result.json    once the run has ended
lock           held by the process that trains
```

`rru.experiments.execute` adds `vocabulary.json` for a task on text, and `cell.py`, a copy of a cell of the user's own.

Nothing in it names its place: it may be moved.
"""

import fcntl
import json
import os
import re
import shutil
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from rru.training import toml
from rru.training.checkpoint import MODEL, Checkpoints, pack, unpack
from rru.training.environment import environment
from rru.training.files import (
    Damaged,
    RunError,
    append_line,
    cannot_write,
    flush_folder,
    own_file,
    read_file,
    read_folder,
    sweep,
    to_json,
    write_file,
    write_folder,
)

LIMIT = 1 << 20  # bytes of a config, an environment or a result


class Run:
    """An existing run's folder. `Run.create` makes a new one.

    **Arguments:** `path`: the folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not self._config_file.is_file():
            raise RunError(f"{self.path}: is not a run's folder, it has no config.toml")
        try:
            self.config: toml.Config = tomllib.loads(read_file(self._config_file, LIMIT).decode())
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"{self._config_file}: cannot be read ({error})") from error
        self.checkpoints = Checkpoints(self.path / "checkpoint")

    @classmethod
    def create(cls, path: Path | str, config: Mapping[str, Any]) -> "Run":
        """Makes the folder of a new run; refused where there is a run already.

        **Arguments:**

        - `path`: the folder; made, with those above it, if it is not there.
        - `config`: every setting of the run, in tables: see `rru.training.toml`.
        """
        path = Path(path)
        if (path / "config.toml").exists():
            raise RunError(f"{path}: is the folder of a run already; resume that one, or choose another folder")
        text = toml.dumps(config)
        try:
            for folder in (path / "checkpoint", path / "best"):
                folder.mkdir(parents=True, exist_ok=True)
            flush_folder(path)
            flush_folder(path.parent)
        except OSError as error:
            raise cannot_write(path, error) from error
        write_file(path / "env.json", json.dumps(environment(), indent=1).encode())
        write_file(path / "config.toml", text.encode())  # last: with it, the folder is a run's
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While this lasts no other process may train here. The system lets go of the lock when a process dies."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise cannot_write(self.path / "lock", error) from error
        try:
            if not _lock(descriptor):
                owner = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
                raise RunError(
                    f"{self.path}: process {owner} is training here; wait for it to end, or end it, then resume"
                )
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            for folder in (self.path, self.path / "checkpoint", self.path / "best"):
                folder.mkdir(exist_ok=True)  # a copy may have left out what was empty
                sweep(folder)
            yield
        finally:
            os.close(descriptor)

    @property
    def status(self) -> str:
        """`finished` or `diverged` if it has ended, `running` if a process trains here, else `stopped`."""
        if (result := self.result()) is not None:
            return str(result.get("status"))
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # none yet, or not one that a run has made
            return "stopped"
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return "running"
        finally:
            os.close(descriptor)
        return "stopped"

    def result(self) -> dict[str, Any] | None:
        """What came of the run; None if it has not ended."""
        return self._object("result.json", "; remove it and resume to have it made again")

    def environment(self) -> dict[str, Any] | None:
        """What it ran on; None if env.json is not there."""
        return self._object("env.json", "")

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Ends the run."""
        write_file(self.path / "result.json", json.dumps(json.loads(to_json(result)), indent=1).encode())

    def append(self, line: Mapping[str, Any]) -> None:
        """Adds a line to metrics.jsonl."""
        append_line(self._metrics_file, to_json(line))

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, up to one that is cut short or damaged."""
        return [json.loads(line) for line in self._lines()]

    def keep_lines(self, count: int) -> int:
        """Removes from metrics.jsonl what came after the first `count` lines: resumed, the run writes it again.

        **Returns:** how many there are now.
        """
        lines = self._lines()[:count]
        kept = b"".join(lines)
        if self._metrics_file.exists() and self._metrics_file.stat().st_size != len(kept):
            write_file(self._metrics_file, kept)
        return len(lines)

    def save_best(self, epoch: int, model: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Keeps the weights after an epoch, and what validation said of them."""
        write_folder(self._best(epoch), {MODEL: pack(dict(model)), "about.json": to_json(about)})

    def keep_best(self, epochs: set[int]) -> None:
        """Removes the best weights of epochs that no checkpoint speaks of any more."""
        for epoch in self.best_epochs:
            if epoch not in epochs:
                shutil.rmtree(self._best(epoch), ignore_errors=True)

    def best(self, epoch: int) -> dict[str, Tensor]:
        """The model's `state_dict` after an epoch that was the best so far."""
        files = read_folder(self._best(epoch))
        if MODEL not in files:
            raise Damaged(f"{self._best(epoch) / MODEL}: missing from the manifest")
        return unpack(files[MODEL], self._best(epoch) / MODEL)

    @property
    def best_epochs(self) -> list[int]:
        """The epochs whose weights are kept, the best last."""
        names = (path.name for path in (self.path / "best").glob("epoch-*"))
        return sorted(int(name.removeprefix("epoch-")) for name in names if re.fullmatch(r"epoch-[0-9]{4,9}", name))

    def _best(self, epoch: int) -> Path:
        return self.path / "best" / f"epoch-{epoch:04}"

    def _object(self, name: str, advice: str) -> dict[str, Any] | None:
        """What a file of JSON holds; None if it is not there."""
        path = self.path / name
        try:
            content = json.loads(read_file(own_file(path), LIMIT))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"{path}: cannot be read ({error}){advice}") from error
        if not isinstance(content, dict):
            raise RunError(f"{path}: must hold an object{advice}")
        return content

    def _lines(self) -> list[bytes]:
        """Whole lines that are JSON, up to the first that is not."""
        if not self._metrics_file.exists():
            return []
        lines = own_file(self._metrics_file).read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines):
            if not line.endswith(b"\n") or not _is_object(line):
                return lines[:number]
        return lines

    @property
    def _config_file(self) -> Path:
        return self.path / "config.toml"

    @property
    def _metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"


def _lock(descriptor: int) -> bool:
    """Takes the lock; False if another process keeps it. Whoever asks for a run's status has it for a moment only."""
    for _ in range(50):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return True
    return False


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
