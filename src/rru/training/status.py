"""The status of a run."""

from enum import StrEnum


class RunStatus(StrEnum):
    """The status of a run, as commands and reports show it. Only `ENDED` runs have a result."""

    FINISHED = "finished"  # all epochs are done, or validation stopped improving
    DIVERGED = "diverged"  # the loss became infinite or stayed above the untrained model's
    RUNNING = "running"  # a process is training it
    STOPPED = "stopped"  # it has begun and can be resumed
    FAILED = "failed"  # the last attempt of a plan ended with an error
    DAMAGED = "damaged"  # its folder cannot be read
    MISSING = "missing"  # it has not begun


ENDED = (RunStatus.FINISHED, RunStatus.DIVERGED)
"""The statuses that result.json may have."""
