"""Train one run of a plan in this process. `workers.py` and `cluster.py` both call `attempt`."""

import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rru.data import DataError
from rru.experiments.plans import PlannedRun
from rru.experiments.running.events import Outcome
from rru.files import FileError, write_file
from rru.settings import user_cells
from rru.training import ENDED, Result, Run, RunStatus, Watch, train_config
from rru.training.refit import whole_status
from rru.training.run_files import ERROR, has_config

RETRIES = 2  # how often a run is restarted after its process was killed


def attempt(
    planned: PlannedRun,
    folder: Path,
    *,
    data_dir: Path | None = None,
    device: str = "cpu",
    watch: Watch | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train a run in this process. Any exception becomes a `FAILED` outcome and is recorded in the folder.

    **Arguments:**

    - `planned`: the run.
    - `folder`: the run folder.
    - `data_dir`, `device`, `watch`, `stop`: as for `rru.training.train_config`.
    """
    if stop():
        return Outcome(planned, RunStatus.STOPPED, message="stopped before it started")
    try:
        user_cells.load()  # a new process has not loaded the user's cells yet
        if has_config(folder):
            run = Run(folder)
            status, result = whole_status(run, planned.config), run.result()
            if result is not None and status in ENDED:
                return ended(planned, result)
            if status == RunStatus.RUNNING:
                return busy(planned)
        with suppress(OSError):
            (folder / ERROR).unlink()
        result = train_config(planned.config, folder, data_dir=data_dir, device=device, watch=watch, stop=stop)
    except Exception as error:
        if is_busy(planned, folder):
            return busy(planned)
        record(folder, error_text(error), traceback.format_exc())
        return Outcome(planned, RunStatus.FAILED, message=error_text(error))
    return ended(planned, result)


def ended(planned: PlannedRun, result: Result) -> Outcome:
    """Return the outcome of a run that was trained, now or earlier."""
    return Outcome(planned, result.status, result, result.reason)


def busy(planned: PlannedRun) -> Outcome:
    """Return the outcome of a run that another process is training."""
    return Outcome(planned, RunStatus.RUNNING, message="another process is training it")


def record(folder: Path, message: str, details: str = "") -> None:
    """Write an error to the run folder; do nothing if the folder cannot be written to."""
    with suppress(FileError, OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / ERROR, f"{message}\n\n{details}".encode())


def error_text(error: Exception) -> str:
    """Return an error as one line, with its type unless the message is clear without it."""
    text = " ".join(str(error).split())
    if isinstance(error, DataError | FileError | ValueError | OSError) and text:
        return text
    return f"{type(error).__name__}: {text}"


def is_busy(planned: PlannedRun, folder: Path) -> bool:
    """Return whether a process is training a run in the folder."""
    try:
        return whole_status(Run(folder), planned.config) == RunStatus.RUNNING
    except (FileError, OSError):
        return False
