"""How far a run is, how long it may last, and where its time goes."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from rru.training.files import RunError


@dataclass(frozen=True)
class Schedule:
    """How long a run lasts, and how often it writes: what the loop reads of the config's table `schedule`.

    **Arguments:**

    - `epochs`: the most there may be.
    - `patience`: after how many epochs without a better validation it ends.
    - `seed`: of the batches' order and of dropout.
    - `log_steps`: steps between two lines in metrics.jsonl; 0: none but the epochs' lines.
    - `checkpoint_steps`, `checkpoint_seconds`: steps and seconds between two checkpoints inside an epoch; 0: none.
      There is one after each epoch in any case. They do not change what comes out.
    """

    epochs: int
    patience: int
    seed: int = 0
    log_steps: int = 100
    checkpoint_steps: int = 0
    checkpoint_seconds: float = 300.0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("patience", 1), ("log_steps", 0), ("checkpoint_steps", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"schedule.{name} must be an integer of at least {least}, got {value!r}")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Schedule":
        """The schedule of a config; keys of its table that the loop has no use for are left alone."""
        table = config.get("schedule", {})
        missing = [name for name in ("epochs", "patience") if name not in table]
        if missing:
            raise ValueError(f"config must have schedule.{missing[0]}, has schedule keys {sorted(table)}")
        return cls(**{entry.name: table[entry.name] for entry in fields(cls) if entry.name in table})


@dataclass
class Progress:
    """The counters of a run; with them, weights, optimiser and generators, it can go on as if nothing had been.

    **Arguments:**

    - `epoch`, `index`: epochs completed, and batches of the one begun.
    - `step`, `tokens`: steps, and steps in time, in all.
    - `lines`: lines in metrics.jsonl.
    - `epoch_loss`, `epoch_least`: sum of losses in the epoch, and the least of them.
    - `line_loss`, `line_steps`: sum of losses since the last line, and of how many.
    - `best_epoch`, `validation`: the epoch with the best validation, 0 if none yet, and its metrics.
    - `untrained_loss`: before the first step, of validation or of the first batch, whichever is higher: dropout acts on
      the batch alone, and what an epoch's training loss is compared with must not be lower for that.
    - `diverged`: why, if it did.
    - `seconds`: by what they went to.
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
        """One more step."""
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
        """Why the run is over; empty if it is not."""
        if self.diverged:
            return self.diverged
        if self.best_epoch and self.epoch - self.best_epoch >= schedule.patience:
            return f"no better validation for {schedule.patience} epochs"
        return f"all {schedule.epochs} epochs are done" if self.epoch >= schedule.epochs else ""

    def check_epoch(self) -> None:
        """Notes that the run diverged if it did worse than untrained for a whole epoch."""
        if self.epoch_least > self.untrained_loss:
            self.diverged = (
                f"the training loss was at least {self.epoch_least:.6g} all through epoch {self.epoch}, "
                f"above the untrained model's {self.untrained_loss:.6g}"
            )

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Adds the time this lasts to `seconds`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - start

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Progress":
        """The counters a checkpoint holds."""
        known = {entry.name for entry in fields(cls)}
        if set(state) != known:
            raise RunError(f"a checkpoint's counters must be {sorted(known)}, got {sorted(state)}")
        return cls(**state)
