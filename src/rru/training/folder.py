"""A run is a folder with its settings, environment, log, checkpoints, weights and result.

```
config.toml      every setting
env.json         versions, processor, threads, commit; and what changed when the run was resumed
metrics.jsonl    a line for each epoch and every `schedule.log_steps` steps
checkpoint/      the last two checkpoints; emptied when the run ends
best/            the weights with the best validation
details.json     what the report shows of the test split besides scores, such as a confusion matrix
result.json      the result, once the run has ended
vocabulary.json  the vocabulary, for tasks on text
data.json        what is known about the user's own data, so that the model can be used when the data is gone
fingerprint.json what a user's own model, loss and batches are, to compare with when `rru.fit` is called again
cell.py          a copy of the file of a user's cell, to compare it and to load the model elsewhere; not run
kind.py          the same of a user's kind of data
refit/           the run on all data of series, after the result; its own files are as above
lock             held by the process that trains
```

No file contains the folder's path, so a run can be moved.
"""

import functools
import json
import re
import shutil
from collections import ChainMap, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self

from torch import Tensor

from rru import files
from rru.settings import Config, toml
from rru.training.checkpoint import MODEL, Checkpoints, pack, unpack
from rru.training.environment import environment
from rru.training.errors import RunError
from rru.training.own_code import missing_code
from rru.training.result import REMOVE, Result
from rru.training.run_files import (
    CONFIG,
    DETAILS,
    ENVIRONMENT,
    FINGERPRINT,
    FINGERPRINT_LIMIT,
    MAX_EPOCHS,
    METRICS,
    OWN_MODEL,
    RESULT,
    RESUMED_LIMIT,
    Epoch,
    count,
    is_export,
    read_lines,
    read_object,
    read_tables,
)
from rru.training.status import RunStatus

LOCK_TIMEOUT = 0.5  # seconds to wait for the lock: a process that reads `status` takes it for a moment


class Tabled(Protocol):
    """Settings that can be written to config.toml, such as a `Config`."""

    def tables(self) -> dict[str, dict[str, object]]:
        """Return plain tables."""


class Run:
    """The folder of an existing run; `Run.create` makes a new one. Without a run in it: RunError.

    **Arguments:** `path`: the folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if is_export(self.path):
            raise RunError(f"{self.path}: is an exported model, not a run; it cannot be trained")
        if not (self.path / CONFIG).is_file():
            raise RunError(f"{self.path}: is not a run: it has no {CONFIG}")
        self.tables: toml.Tables = read_tables(self.path)
        self.checkpoints = Checkpoints(self.path / "checkpoint")

    @functools.cached_property
    def config(self) -> Config:
        """The settings; RunError if this version of rru does not know one. `tables` has them unchecked."""
        if OWN_MODEL in self.tables:
            raise RunError(
                f"{self.path}: is a run of your own model; only the call of `rru.fit` that started it can use it"
            )
        try:
            return Config.of(self.tables)
        except ValueError as error:
            raise RunError(missing_code(self.path, self.tables) or f"{self.path / CONFIG}: {error}") from error

    @classmethod
    def create(cls, path: Path | str, config: Tabled, fingerprint: Mapping[str, object] | None = None) -> Self:
        """Create the folder of a new run; raise RunError if the folder already has a run.

        **Arguments:**

        - `path`: the folder; created with its parents if missing.
        - `config`: every setting of the run.
        - `fingerprint`: the content of fingerprint.json, if it has one.
        """
        path = Path(path)
        if (path / CONFIG).exists():
            raise RunError(f"{path}: already holds a run; resume it, or choose another folder")
        if is_export(path):
            raise RunError(f"{path}: is an exported model; choose another folder")
        for folder in (path, path / "checkpoint", path / "best"):
            files.make_folder(folder)
        files.flush_folder(path)
        files.flush_folder(path.parent)
        files.write_file(path / ENVIRONMENT, json.dumps(environment(), indent=1).encode())
        if fingerprint is not None:
            files.write_file(path / FINGERPRINT, _json(fingerprint))
        # Last, because config.toml marks the folder as a run:
        files.write_file(path / CONFIG, toml.dumps(config.tables()).encode())
        return cls(path)

    @classmethod
    def create_or_open(cls, path: Path, config: Tabled) -> Self:
        """Open the run in a folder, or create it. Safe if another process creates it at the same time."""
        try:
            return cls.create(path, config)
        except RunError:
            return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run's lock, so that no other process trains here; raise RunError if one does.

        The operating system releases the lock when the process ends, even if it is killed.
        """
        lock = files.Lock(self.path / "lock", LOCK_TIMEOUT)
        try:
            lock.acquire()
        except files.Locked as error:
            raise RunError(
                f"{self.path}: process {error.owner} is training this run; wait for it, or stop it, then resume"
            ) from error
        try:
            for folder in (self.path, files.own_folder(self.path / "checkpoint"), files.own_folder(self.path / "best")):
                files.make_folder(folder)  # a copy of a run may lack empty folders
                files.sweep(folder)
            yield
        finally:
            lock.release()

    @property
    def status(self) -> RunStatus:
        """`FINISHED` or `DIVERGED` if the run has ended, `RUNNING` if a process trains it, else `STOPPED`."""
        if (result := self.result()) is not None:
            return result.status
        return RunStatus.RUNNING if self.is_locked else RunStatus.STOPPED

    @property
    def is_locked(self) -> bool:
        """Whether a process holds its lock."""
        return files.is_locked(self.path / "lock")

    def result(self) -> Result | None:
        """Return the result; None if the run has not ended. Raise RunError if result.json is damaged."""
        content = self.result_content()
        return None if content is None else Result.from_json(content, self.path / RESULT)

    def result_content(self) -> dict[str, object] | None:
        """Return the content of result.json unchecked, to show what can be shown of a damaged one."""
        return read_object(self.path / RESULT, REMOVE)

    def environment(self) -> dict[str, object] | None:
        """Return the content of env.json; None if there is none."""
        return read_object(self.path / ENVIRONMENT)

    def threads(self) -> list[int]:
        """Return the numbers of threads that it was trained with, in order; empty if env.json does not say."""
        try:
            known = self.environment() or {}
        except RunError:
            return []
        noted = known.get("history")
        entries = [known, *(noted if isinstance(noted, list) else [])]
        numbers = [count(entry["threads"]) for entry in entries if isinstance(entry, dict) and "threads" in entry]
        return [number for number in numbers if number is not None]

    def note_environment(self, epoch: int, step: int) -> dict[str, object]:
        """Add what has changed since the run was begun or last resumed to the `history` in env.json.

        **Arguments:** `epoch`, `step`: how far the run is.

        **Returns:** what has changed, by name.
        """
        try:
            known = self.environment() or {}
        except RunError:  # it is only a record: a damaged one must not keep a run from going on
            known = {}
        noted = known.get("history")
        history = [entry for entry in noted if isinstance(entry, dict)] if isinstance(noted, list) else []
        before = ChainMap(*reversed(history), known)
        changed = {name: value for name, value in environment().items() if before.get(name) != value}
        if changed:
            content = {**known, "history": [*history, {"epoch": epoch, "step": step, **changed}]}
            files.write_file(self.path / ENVIRONMENT, json.dumps(content, indent=1).encode())
        return changed

    def write_details(self, details: Mapping[str, object]) -> None:
        """Write details.json, which the report shows."""
        files.write_file(self.path / DETAILS, _json(details))

    def details(self) -> dict[str, object]:
        """Return the content of details.json; empty if there is none."""
        return read_object(self.path / DETAILS) or {}

    def fingerprint(self) -> dict[str, object]:
        """Return the content of fingerprint.json, which says what a user's own model is trained with."""
        return read_object(self.path / FINGERPRINT, limit=FINGERPRINT_LIMIT) or {}

    def write_result(self, result: Mapping[str, object]) -> None:
        """Write result.json, which ends the run."""
        files.write_file(self.path / RESULT, json.dumps(_finite(result), indent=1, allow_nan=False).encode())

    def append(self, line: Mapping[str, object]) -> None:
        """Append a line to metrics.jsonl."""
        files.append_line(self.path / METRICS, _json(line))

    def metrics(self) -> list[dict[str, object]]:
        """Return the lines of metrics.jsonl, without damaged ones."""
        return [dict(line.content) for line in read_lines(self.path / METRICS, [])]

    def epochs(self, damages: list[str] | None = None) -> list[Epoch]:
        """Return the validation after each epoch, from metrics.jsonl.

        **Arguments:** `damages`: a message for each damaged line is appended to it.
        """
        lines = read_lines(self.path / METRICS, [] if damages is None else damages)
        return list(deque((line.scores for line in lines if line.closes_epoch), MAX_EPOCHS))

    def keep_lines(self, epoch: int, step: int) -> tuple[int, list[str]]:
        """Remove what a resumed run writes again from metrics.jsonl: lines after this epoch and step.

        **Returns:** how many lines are left, and a message for each damaged line between them, which is removed too.
        """
        path, lines = self.path / METRICS, list[bytes]()
        damages: list[str] = []
        known = 0  # damages before the last line that is kept; a crash may leave garbage after it
        for line in read_lines(path, damages, RESUMED_LIMIT):
            if line.step <= step and (line.epoch <= epoch or not line.closes_epoch):
                lines.append(line.text)
                known = len(damages)
        content = b"".join(lines)
        if path.exists() and path.stat().st_size != len(content):
            files.write_file(path, content)
        return len(lines), damages[:known]

    def save_best(self, epoch: int, model: Mapping[str, Tensor], scores: Mapping[str, object]) -> None:
        """Save the weights after an epoch, with their validation scores."""
        files.write_folder(self._best(epoch), {MODEL: pack(dict(model)), "about.json": _json(scores)})

    def keep_best(self, epochs: set[int]) -> None:
        """Remove the saved weights of all epochs except these."""
        for epoch in self.best_epochs:
            if epoch not in epochs:
                shutil.rmtree(self._best(epoch), ignore_errors=True)

    def best(self, epoch: int, check: Callable[[Path], None] | None = None) -> dict[str, Tensor]:
        """Load the `state_dict` saved after an epoch (one of `best_epochs`); raise `Damaged` if it was changed.

        **Arguments:** `check`: as for `read_folder`, such as `limited(model.state_dict())`.
        """
        contents = files.read_folder(self._best(epoch), check or (lambda file: None))
        if MODEL not in contents:
            raise files.Damaged(f"{self._best(epoch) / MODEL}: missing from the manifest")
        return unpack(contents[MODEL], self._best(epoch) / MODEL)

    @property
    def best_epochs(self) -> list[int]:
        """The epochs whose weights are saved, in ascending order; the last is the best."""
        names = (path.name for path in files.own_folder(self.path / "best").glob("epoch-*"))
        return sorted(int(name.removeprefix("epoch-")) for name in names if re.fullmatch(r"epoch-[0-9]{4,9}", name))

    def _best(self, epoch: int) -> Path:
        return files.own_folder(self.path / "best") / f"epoch-{epoch:04}"


def _json(value: object) -> bytes:
    return json.dumps(_finite(value), allow_nan=False).encode()


def _finite(value: object) -> object:
    """Return the value with None in place of NaN and infinities, which JSON does not have."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value
