"""What a run tells whoever watches it: progress bars, log files, TensorBoard."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rru.training.result import Result


@dataclass(frozen=True)
class Started:
    """Training begins or goes on.

    **Arguments:**

    - `epoch`, `step`: how many were done before.
    - `epochs`: how many there may be.
    - `patience`: how many in a row may bring nothing better.
    - `parameters`: of the model.
    - `untrained_loss`: the loss before the first step.
    - `metric`: the score by which epochs are compared.
    """

    epoch: int
    step: int
    epochs: int
    patience: int
    parameters: int
    untrained_loss: float
    metric: str


@dataclass(frozen=True)
class Stepped:
    """A step was made.

    **Arguments:**

    - `epoch`: the one it belongs to, from 1.
    - `index`, `steps`: the how manieth it is in its epoch, from 1, and how many there are.
    - `step`: the how manieth it is in all.
    - `loss`: of its batch.
    - `tokens`: the real steps in time its batch held.
    """

    epoch: int
    index: int
    steps: int
    step: int
    loss: float
    tokens: int


@dataclass(frozen=True)
class Evaluated:
    """An epoch is over and validation done.

    **Arguments:**

    - `epoch`: from 1.
    - `step`: how many steps there were in all.
    - `train_loss`: the mean over the epoch's steps.
    - `validation`: metrics by name.
    - `best`, `best_epoch`: the best validation so far, and after which epoch.
    """

    epoch: int
    step: int
    train_loss: float
    validation: Mapping[str, float]
    best: float
    best_epoch: int


@dataclass(frozen=True)
class Notice:
    """Something the user should know: a damaged checkpoint was passed over, or the number of threads is another."""

    message: str


@dataclass(frozen=True)
class Ended:
    """The run is over, or was stopped: `result.status` says which."""

    result: Result


Event = Started | Stepped | Evaluated | Notice | Ended
Watch = Callable[[Event], None]
