"""Events that a run reports, for progress bars, logs and TensorBoard."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rru.training.result import Result
from rru.training.run_files import Epoch, finite_scores, is_number


@dataclass(frozen=True)
class Started:
    """Training has started or resumed.

    **Arguments:**

    - `epoch`, `step`: epochs and steps already done.
    - `epochs`: the maximum number of epochs.
    - `patience`: epochs without a better validation after which training ends.
    - `parameters`: the number of parameters of the model.
    - `untrained_loss`: the validation loss before the first step.
    - `metric`: the score that epochs are compared by.
    - `chosen_by`: the score that the best epoch is chosen by, if it is another one.
    """

    epoch: int
    step: int
    epochs: int
    patience: int
    parameters: int
    untrained_loss: float
    metric: str
    chosen_by: str = ""

    @property
    def best(self) -> str:
        """What to call the best epoch: by its metric, it may not be the best."""
        return f"best by {self.chosen_by}:" if self.chosen_by else "best"


@dataclass(frozen=True)
class Stepped:
    """A training step is done.

    **Arguments:**

    - `epoch`: the epoch it belongs to, counted from 1.
    - `index`, `steps`: its number within the epoch, counted from 1, and the number of steps in the epoch.
    - `step`: its number in the run, counted from 1.
    - `loss`: the loss of its batch.
    - `tokens`: the time steps in its batch, without padding.
    """

    epoch: int
    index: int
    steps: int
    step: int
    loss: float
    tokens: int


@dataclass(frozen=True)
class Evaluated:
    """An epoch and its validation are done.

    **Arguments:**

    - `epoch`: the epoch, counted from 1.
    - `step`: the steps of the run so far.
    - `train_loss`: the mean training loss of the epoch's steps.
    - `validation`: validation scores by name.
    - `best`, `best_epoch`: the best validation score so far, and its epoch; NaN and 0 if there is none.
    - `test`: test scores by name, with `schedule.test_every_epoch`; else empty.
    """

    epoch: int
    step: int
    train_loss: float
    validation: Mapping[str, float]
    best: float
    best_epoch: int
    test: Mapping[str, float] = field(default_factory=dict)

    @property
    def record(self) -> Epoch:
        """The epoch as the run's history has it."""
        loss = self.train_loss if is_number(self.train_loss) else None
        return Epoch(self.epoch, finite_scores(self.validation), finite_scores(self.test), loss, self.step)


@dataclass(frozen=True)
class Refitted:
    """An epoch of training anew on all data is done: `epoch` of `epochs`, counted from 1. It has no scores."""

    epoch: int
    epochs: int


@dataclass(frozen=True)
class Notice:
    """Something the user should know: a damaged checkpoint was skipped, or the number of threads has changed."""

    message: str


@dataclass(frozen=True)
class Ended:
    """The run has ended or was stopped; `result.status` says which."""

    result: Result


Event = Started | Stepped | Evaluated | Refitted | Notice | Ended
Watch = Callable[[Event], None]
