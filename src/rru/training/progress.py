"""The progress of a run: counters, best validation so far, and time spent."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from rru.settings.tables import Schedule
from rru.training.errors import RunError
from rru.training.result import Result
from rru.training.run_files import count, is_number
from rru.training.status import RunStatus

if TYPE_CHECKING:
    from rru.tasks import Metric

SHOWN = 60  # characters of a wrong value that an error shows


@dataclass
class Progress:
    """The counters of a run. A checkpoint saves them with the weights, the optimiser and the random generators.

    **Arguments:**

    - `epoch`, `index`: epochs completed, and batches done in the current epoch.
    - `step`, `tokens`: training steps and time steps so far.
    - `lines`: lines in metrics.jsonl.
    - `epoch_loss`, `epoch_least`: sum and minimum of the losses in the current epoch.
    - `line_loss`, `line_steps`: sum and number of the losses since the last logged line.
    - `best_epoch`, `validation`: the epoch with the best validation (0 if none yet), and its metrics.
    - `untrained_loss`: the loss before the first step: the higher of the validation loss and the first batch's loss.
      `check_epoch` compares training losses with it; only the batch has dropout, so validation alone may be too low.
    - `diverged`: why the run diverged; empty if it did not.
    - `seconds`: time spent, by activity.
    """

    epoch: int = 0
    index: int = 0
    step: int = 0
    tokens: int = 0
    lines: int = 0
    epoch_loss: float = 0.0
    epoch_least: float = 0.0
    line_loss: float = 0.0
    line_steps: int = 0
    best_epoch: int = 0
    validation: dict[str, float] = field(default_factory=dict)
    untrained_loss: float = 0.0
    diverged: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    def count(self, loss: float, tokens: int) -> None:
        """Count a training step with this loss and number of time steps."""
        if self.step == 0:
            self.untrained_loss = max(self.untrained_loss, loss)
        self.epoch_least = loss if self.index == 0 else min(self.epoch_least, loss)
        self.index += 1
        self.step += 1
        self.tokens += tokens
        self.epoch_loss += loss
        self.line_loss += loss
        self.line_steps += 1

    def end(self, schedule: Schedule) -> str:
        """Return why the run is over; an empty string if it is not."""
        if self.diverged:
            return self.diverged
        if self.best_epoch and self.epoch - self.best_epoch >= schedule.patience:
            return f"no better validation for {schedule.patience} epochs"
        last = schedule.last_epoch or schedule.epochs
        return f"all {last} epochs are done" if self.epoch >= last else ""

    def check_epoch(self) -> None:
        """Set `diverged` if the loss stayed above the untrained model's for the whole epoch."""
        if self.epoch_least > self.untrained_loss:
            self.diverged = (
                f"the training loss was at least {self.epoch_least:.6g} throughout epoch {self.epoch}, "
                f"above the untrained model's {self.untrained_loss:.6g}"
            )

    def result(
        self, status: RunStatus, reason: str, metric: Metric, test: Mapping[str, float], parameters: int
    ) -> Result:
        """Return the result of a run that ends here.

        **Arguments:** `metric`: the main metric of the task; the others are those of `Result`.
        """
        return Result(
            status=status,
            reason=reason,
            metric=metric.key,
            higher_is_better=metric.higher_is_better,
            best=self.validation.get(metric.key),
            best_epoch=self.best_epoch,
            validation=dict(self.validation),
            test=dict(test),
            epochs=self.epoch,
            steps=self.step,
            tokens=self.tokens,
            parameters=parameters,
            untrained_loss=self.untrained_loss,
            seconds=dict(self.seconds),
        )

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the time spent inside the `with` block to `seconds[what]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - start

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Progress:
        """Restore the counters from a checkpoint; raise RunError if a name or type differs."""
        known = {entry.name for entry in fields(cls)}
        if set(state) != known:
            raise RunError(f"a checkpoint's counters must be {sorted(known)}, got {sorted(state)}")
        for name, start in asdict(cls()).items():
            if not _is_like(start, state[name]):
                raise RunError(f"a checkpoint's {name} must be like {start!r}, got {str(state[name])[:SHOWN]!r}")
        return cls(**state)


def _is_like(start: object, value: object) -> bool:
    """Return whether a value has the type of a counter that begins with `start`."""
    if isinstance(start, dict):
        return isinstance(value, dict) and all(type(key) is str and _is_like(0.0, value[key]) for key in value)
    if isinstance(start, int):
        return count(value) is not None
    if isinstance(start, float):
        return type(value) is float or is_number(value)
    return type(value) is type(start)
