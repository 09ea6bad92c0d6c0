"""Events reported while a plan runs, for progress bars and log files."""

from collections.abc import Callable
from dataclasses import dataclass

from rru.experiments.plans import PlannedRun
from rru.training import Event, Result


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
    - `status`: `finished`, `diverged`, `stopped` (on request), `failed` (with an error) or `busy` (another process
      is training it).
    - `result`: its result; None if it failed, is busy, or did not start.
    - `message`: why it ended, or the error.
    """

    run: PlannedRun
    status: str
    result: Result | None = None
    message: str = ""


PlanEvent = RunStarted | RunReported | RunLost | Outcome
PlanWatch = Callable[[PlanEvent], None]
