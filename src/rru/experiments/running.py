"""What every way of running a plan shares: how far each run is, which are to do, one run's attempt, what came of it.

`rru.experiments.workers` runs plans with processes of this machine, `rru.experiments.cluster` on a Ray cluster. Both
train a run by `attempt`, and tell whoever watches by the same words: `Began`, `Told`, `Lost` and `Outcome`.
"""

import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rru.data import DataError
from rru.experiments import execute, own, presets
from rru.experiments.plans import Entry
from rru.experiments.schema import Config
from rru.training import Event, Result, Run, RunError, Watch
from rru.training.files import write_file

ERROR = "error.txt"  # in a run's folder: what the last attempt failed with
RETRIES = 2  # how often a run is begun again after the process that trained it was killed
ENDED = ("finished", "diverged")


@dataclass(frozen=True)
class Standing:
    """How far a run of a plan is.

    **Arguments:**

    - `state`: `finished` or `diverged`: it has a result; `running`: a process trains it; `failed`: the last attempt
      ended with an error; `unfinished`; `missing`; `damaged`: its folder cannot be read.
    - `epoch`: how many are done.
    - `result`: what came of it.
    - `message`: what is the matter, of a failed or damaged run.
    """

    state: str
    epoch: int = 0
    result: Result | None = None
    message: str = ""

    @property
    def score(self) -> float | None:
        """The test's value of the metric; None if there is none."""
        return self.result.test.get(self.result.metric) if self.result else None


@dataclass(frozen=True)
class Began:
    """A run begins or goes on; `place` says where, if there is more than one machine."""

    entry: Entry
    place: str = ""


@dataclass(frozen=True)
class Told:
    """A run that trains tells of an event."""

    entry: Entry
    event: Event


@dataclass(frozen=True)
class Lost:
    """Whoever trained a run is gone, as `reason` says; another will go on with it."""

    entry: Entry
    reason: str


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    **Arguments:**

    - `entry`: which.
    - `status`: `finished`, `diverged`, `stopped` (on request), `failed` (with an error), or `busy`: another process
      trains it.
    - `result`: of those that trained.
    - `message`: why it ended, or what the error was.
    """

    entry: Entry
    status: str
    result: Result | None = None
    message: str = ""


Happening = Began | Told | Lost | Outcome
Observer = Callable[[Happening], None]


def standing(entry: Entry, root: Path) -> Standing:
    """How far an entry's run is, from its folder below `root`. Changes nothing."""
    folder = execute.run_folder(entry.config, root)
    try:
        error = _last_error(folder)
        if not (folder / "config.toml").exists():
            return Standing("failed", message=error) if error else Standing("missing")
        run = Run(folder)
        if (content := run.result()) is not None:
            result = Result.from_json(content)
            return Standing(result.status, result.epochs, result)
        epochs = [line.get("epoch", 0) for line in run.metrics() if line.get("kind") == "epoch"]
        state = {"stopped": "failed" if error else "unfinished"}.get(run.status, run.status)
    except (RunError, OSError) as damage:
        return Standing("damaged", message=str(damage))
    return Standing(state, max(epochs, default=0), message=error)


def to_do(entries: Iterable[Entry], root: Path) -> list[Entry]:
    """Those that have no result yet, each run once, in order."""
    runs = {execute.run_folder(entry.config, root): entry for entry in entries}
    return [entry for entry in runs.values() if standing(entry, root).state not in ENDED]


def attempt(
    entry: Entry,
    folder: Path,
    *,
    data_dir: Path | None = None,
    device: str = "cpu",
    watch: Watch | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Trains a run in this process. Whatever goes wrong becomes an outcome, and is recorded in the folder.

    **Arguments:**

    - `entry`: which.
    - `folder`: the run's.
    - `data_dir`, `device`, `watch`, `stop`: as for `rru.experiments.execute.start`.
    """
    if stop():
        return Outcome(entry, "stopped", message="stopped before it began")
    try:
        own.load()  # in a process of its own, the cells of the user's file are not known yet
        config: Config = entry.config
        if (folder / "config.toml").exists():
            run = Run(folder)
            if (content := run.result()) is not None:
                return ended(entry, Result.from_json(content))
            if run.status == "running":
                return busy(entry)
            if presets.config_id(run.config) == entry.id:
                config = run.config  # which may log or write checkpoints more often
        with suppress(OSError):
            (folder / ERROR).unlink()
        result = execute.start(config, folder, data_dir=data_dir, device=device, watch=watch, stop=stop)
    except Exception as error:
        if is_busy(folder):
            return busy(entry)
        record(folder, error_text(error), traceback.format_exc())
        return Outcome(entry, "failed", message=error_text(error))
    return ended(entry, result)


def ended(entry: Entry, result: Result) -> Outcome:
    """The outcome of a run that trained, or had trained before."""
    return Outcome(entry, result.status, result, result.reason)


def busy(entry: Entry) -> Outcome:
    """The outcome of a run that is another's."""
    return Outcome(entry, "busy", message="another process is training it")


def record(folder: Path, message: str, details: str = "") -> None:
    """Writes to a run's folder what it failed with, if that can be written to."""
    with suppress(RunError, OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / ERROR, f"{message}\n\n{details}".encode())


def error_text(error: Exception) -> str:
    """An error in a line. Errors of our own say enough; others need their kind."""
    text = " ".join(str(error).split())
    if isinstance(error, DataError | RunError | ValueError | OSError) and text:
        return text
    return f"{type(error).__name__}: {text}"


def is_busy(folder: Path) -> bool:
    """Whether a process trains in a folder."""
    try:
        return Run(folder).status == "running"
    except (RunError, OSError):
        return False


def _last_error(folder: Path) -> str:
    """What the last attempt failed with, in a line; empty if it did not."""
    try:
        return (folder / ERROR).read_text("utf-8", "replace").partition("\n")[0] or "unknown"
    except OSError:
        return ""
