"""The status of a run."""

from enum import StrEnum


class RunStatus(StrEnum):
    """The status of a run, as commands and reports show it. Only `ENDED` runs have a result."""

    FINISHED = "finished"
    """All epochs are done, or validation stopped improving."""
    DIVERGED = "diverged"
    """The loss became infinite or stayed above the untrained model's."""
    RUNNING = "running"
    """A process is training it."""
    STOPPED = "stopped"
    """It has begun and can be resumed."""
    FAILED = "failed"
    """The last attempt of a plan ended with an error."""
    DAMAGED = "damaged"
    """Its folder cannot be read."""
    MISSING = "missing"
    """It has not begun."""


ENDED = (RunStatus.FINISHED, RunStatus.DIVERGED)
"""The statuses that result.json may have."""
