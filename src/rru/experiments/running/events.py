"""Events reported while a plan runs, for progress bars and log files."""

from collections.abc import Callable
from dataclasses import dataclass

from rru.experiments.plans import PlannedRun
from rru.training import Event, Result, RunStatus


@dataclass(frozen=True)
class RunStarted:
    """A run has started or resumed; on a cluster, `place` names the node and process."""

    run: PlannedRun
    place: str = ""


@dataclass(frozen=True)
class RunReported:
    """A run reported a training event."""

    run: PlannedRun
    event: Event


@dataclass(frozen=True)
class RunLost:
    """The process or node training a run died, as `reason` says; another resumes the run."""

    run: PlannedRun
    reason: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of an attempt to train a run.

    **Arguments:**

    - `run`: the run.
    - `status`: `FINISHED`, `DIVERGED`, `STOPPED` (on request), `FAILED` (with an error) or `RUNNING` (another process
      is training it).
    - `result`: its result; None if it failed, did not start, or another process is training it.
    - `message`: why it ended, or the error.
    """

    run: PlannedRun
    status: RunStatus
    result: Result | None = None
    message: str = ""


PlanEvent = RunStarted | RunReported | RunLost | Outcome
PlanWatch = Callable[[PlanEvent], None]
