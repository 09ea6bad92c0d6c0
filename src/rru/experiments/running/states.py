"""Read the state of a plan's runs from their folders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rru.experiments.plans import PlannedRun
from rru.files import FileError
from rru.kinds import kind_of
from rru.training import ENDED, Result, Run, RunStatus, run_folder
from rru.training.refit import whole_status
from rru.training.run_files import has_config, last_error


@dataclass(frozen=True)
class RunState:
    """The state of a run.

    **Arguments:**

    - `status`: its status.
    - `epoch`: epochs done.
    - `result`: its result; None if it has not ended.
    - `message`: what is wrong with a failed or damaged run.
    - `best`: the best validation score so far, if the run has not ended.
    """

    status: RunStatus
    epoch: int = 0
    result: Result | None = None
    message: str = ""
    best: float | None = None

    @property
    def score(self) -> float | None:
        """The test score in the task's metric; None if there is none."""
        return self.result.test.get(self.result.metric) if self.result else None


def run_state(planned: PlannedRun, root: Path, results: Iterable[Path] = ()) -> RunState:
    """Read the state of a run. Change nothing.

    **Arguments:**

    - `planned`: the run.
    - `root`: the root folder of all runs.
    - `results`: root folders of runs that were trained elsewhere. A run that has ended in one of them counts as ended.
    """
    states = (_read(planned, place) for place in results)
    here = _read(planned, root, here=True)
    return here if here.status in ENDED else next((other for other in states if other.status in ENDED), here)


def _read(planned: PlannedRun, root: Path, *, here: bool = False) -> RunState:
    """Read the state of a run; `here`, what it trains after its result counts as well."""
    folder = run_folder(planned.config, root)
    try:
        error = last_error(folder)
        if not has_config(folder):
            return RunState(RunStatus.FAILED if error else RunStatus.MISSING, message=error)
        run = Run(folder)
        status, result = whole_status(run, planned.config) if here else run.status, run.result()
        if error and status == RunStatus.STOPPED:
            status = RunStatus.FAILED
        if result is not None:
            return RunState(status, result.epochs, result, "" if status in ENDED else error)
        epochs = run.epochs()
    except (FileError, OSError) as damage:
        return RunState(RunStatus.DAMAGED, message=f"damaged: {damage}")
    done, metric = max((epoch.epoch for epoch in epochs), default=0), kind_of(planned.config.kind).metric
    scores = [epoch.validation[metric.key] for epoch in epochs if epoch.epoch and metric.key in epoch.validation]
    return RunState(status, done, message=error, best=metric.best(scores))


def to_do(runs: Iterable[PlannedRun], root: Path, results: Sequence[Path] = ()) -> list[PlannedRun]:
    """Return the runs that have no result yet, in order and without duplicates. Arguments as for `run_state`."""
    folders = {run_folder(planned.config, root): planned for planned in runs}
    return [planned for planned in folders.values() if run_state(planned, root, results).status not in ENDED]
