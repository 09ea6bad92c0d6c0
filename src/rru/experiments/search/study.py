"""Search for the settings with the best validation: Optuna proposes trials, and each trial is an ordinary run.

```python
from rru.experiments.search.study import Study

study = Study("bach", "rru", "smoke", seed=0)
study.run(20)
print(study.best()[0])
```

A study is a folder next to the runs, `<task>/<cell>/studies/<name>`: `study.journal` records its trials, all other
files are locks. Any number of processes can work on it and be killed at any time: another process picks up an open
trial whose lock is free and resumes its run. `proposals.py` explains why this does not change the outcome.
"""

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from rru.data import OwnData
from rru.experiments.search.proposals import Proposals
from rru.experiments.search.pruning import Pruner, epoch_values
from rru.files import FileError, Lock, Locked, make_folder, own_folder
from rru.kinds import kind_of
from rru.nn.sizing import BudgetError
from rru.settings import Config, presets
from rru.settings.ranges import ranges
from rru.training import Evaluated, Event, Notice, Result, Run, RunError, RunStatus, run_folder, train_config
from rru.training.from_config import Place
from rru.training.refit import without_refit
from rru.training.run_files import RESULT

POLL = 0.2  # seconds between checks for trials that other processes have finished


class TrialStatus(StrEnum):
    """The status of a trial. Only finished ones have a value."""

    OPEN = "open"
    FINISHED = "finished"
    DIVERGED = "diverged"
    PRUNED = "pruned"
    TOO_LARGE = "too large"


@dataclass(frozen=True)
class Trial:
    """A trial of a study.

    **Arguments:**

    - `number`: its number, counted from 0.
    - `settings`: the proposed values by full name, such as `optimiser.lr`.
    - `state`: its status; one that diverged counts as the worst, and one may be too large for its budget.
    - `value`: the best validation score; None unless finished.
    """

    number: int
    settings: Mapping[str, float]
    state: TrialStatus
    value: float | None


@dataclass(frozen=True)
class TrialChanged:
    """A trial has started or resumed, or has ended and its value was recorded; `trial.state` says which."""

    trial: Trial


@dataclass(frozen=True)
class Waiting:
    """This process is waiting for other processes to finish these trials."""

    trials: Sequence[Trial]


StudyWatch = Callable[[TrialChanged | Waiting | Event], None]


class Study:
    """A search over the ranges of a task and cell; ValueError if `changes` leave nothing to search.

    **Arguments:**

    - `task`, `cell`, `preset`: as for `presets.load`.
    - `changes`: as for `presets.override`. The settings they change are not searched.
    - `seed`: the random seed of the proposals and of every run.
    - `prune`: end a trial early if it is worse than the median of earlier generations at the same epoch.
    - `root`: the root folder of all runs.
    """

    def __init__(
        self,
        task: str | OwnData,
        cell: str = "rru",
        preset: str | None = None,
        *,
        changes: Iterable[str] = (),
        seed: int = 0,
        prune: bool = False,
        root: Path = Path("runs"),
    ) -> None:
        changes = [*changes, f"schedule.seed={seed}"]
        preset = preset or presets.names(task)[0]
        config = presets.load(task, cell, preset)
        fixed = presets.changed(config, changes)
        self.config = without_refit(presets.override(config, changes))  # trials are only compared
        self.ranges = {name: each for name, each in ranges(config, preset).items() if name not in fixed}
        if not self.ranges:
            raise ValueError(f"nothing is left to search: the changes fix all of {', '.join(sorted(fixed))}")
        self.prune, self.root = prune, root
        self.metric = kind_of(config.kind).metric
        self.folder = root / config.task.name / cell / "studies" / f"{preset}-{seed}-{self._identity()}"
        for place in (self.folder.parent, self.folder, self.folder / "claims"):
            own_folder(place)
        self._proposals = Proposals(self.folder, self.ranges, seed, self.metric.higher_is_better)

    def trials(self) -> list[Trial]:
        """Return all trials proposed so far, in order."""
        return [_trial(each) for each in self._proposals.trials()]

    def best(self) -> list[Trial]:
        """Return the finished trials, best first; ties are in order of their validation loss, then of their number."""
        sign = -1 if self.metric.higher_is_better else 1
        done = [each for each in self.trials() if each.value is not None]
        counts = Counter(each.value for each in done)
        losses = {each.number: self._loss(each) for each in done if counts[each.value] > 1}
        return sorted(done, key=lambda each: (sign * (each.value or 0.0), losses.get(each.number, 0.0)))

    def _loss(self, trial: Trial) -> float:
        """Return the validation loss of a trial; infinite if its run does not know it."""
        try:
            return self.result_of(trial).validation.get("loss", math.inf)
        except FileError:
            return math.inf

    def config_of(self, trial: Trial) -> Config:
        """Return the config of a trial's run."""
        return self.config.changed(trial.settings)

    def run_of(self, trial: Trial) -> Path:
        """Return the folder of a trial's run."""
        return run_folder(self.config_of(trial), self.root)

    def result_of(self, trial: Trial) -> Result:
        """Return the result of a finished trial's run. It includes the test scores: use them only for the winner."""
        folder = self.run_of(trial)
        result = Run(folder).result()
        if result is None:
            raise RunError(f"{folder}: has no result; `rru train {folder}` trains it again")
        return result

    def importances(self) -> dict[str, float]:
        """Return the importance of each setting; see `Proposals.importances`."""
        return self._proposals.importances()

    def run(
        self,
        count: int = 100,
        *,
        data_dir: Place = None,
        device: str = "cpu",
        watch: StudyWatch = lambda event: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Run trials until the study has `count` of them. Other processes can work on the same study meanwhile.

        **Arguments:**

        - `count`: the total number of trials, including those already done.
        - `data_dir`, `device`: as for `rru.training.train_config`.
        - `watch`: called with `TrialChanged` and `Waiting`, and with the events of runs.
        - `stop`: called after each step of a run; return True to stop.

        **Returns:** True once all trials have ended; False if it was stopped.
        """
        while not stop():
            trials = self._proposals.extend(count)[:count]
            waiting = [each.number for each in trials if not each.state.is_finished()]
            if not waiting and len(trials) == count:
                return True
            worked = False
            for number in waiting:
                worked |= self._claim(number, lambda trial: self._run(trial, data_dir, device, watch, stop))
                if stop():
                    return False
            if waiting and not worked:
                watch(Waiting([each for each in self.trials() if each.number in waiting]))
                time.sleep(POLL)
        return False

    def _claim(self, number: int, run: Callable[[Trial], None]) -> bool:
        """Run a trial unless another process is running it or has run it. Return whether it ran.

        The operating system releases the lock when the process ends, even if it is killed.
        """
        make_folder(self.folder / "claims")
        with suppress(Locked), Lock(self.folder / "claims" / f"{number:04}"):
            trial = self.trials()[number]
            if trial.state == TrialStatus.OPEN:
                run(trial)
                return True
        return False

    def _run(self, trial: Trial, data_dir: Place, device: str, watch: StudyWatch, stop: Callable[[], bool]) -> None:
        """Run a trial and record its value. A stopped trial records nothing and stays open."""
        watch(TrialChanged(trial))
        config, folder = self.config_of(trial), self.run_of(trial)
        ended = (folder / RESULT).exists()
        pruner = self._pruner(trial, ended) if self.prune else None

        def see(event: Event) -> None:
            if pruner is not None and isinstance(event, Evaluated):
                pruner.see(event.epoch, event.validation[self.metric.key])
            watch(event)

        def pruned() -> bool:
            return pruner is not None and pruner.prunes

        outcome: float | TrialState = TrialState.PRUNED
        if not (ended and pruned()):
            try:
                result = train_config(
                    config, folder, data_dir=data_dir, device=device, watch=see, stop=lambda: stop() or pruned()
                )
            except BudgetError as error:
                watch(Notice(f"the model of trial {trial.number} does not fit its budget: {error}"))
                outcome = TrialState.FAIL
            else:
                if result.status == RunStatus.STOPPED and not pruned():
                    return
                outcome = _outcome(result)
        self._proposals.tell(trial.number, outcome)
        watch(TrialChanged(self.trials()[trial.number]))

    def _pruner(self, trial: Trial, ended: bool) -> Pruner:
        earlier = self._proposals.earlier(trial.number)
        for each in earlier:
            each.intermediate_values = epoch_values(self.run_of(_trial(each)), self.metric.key)
        mine = epoch_values(self.run_of(trial), self.metric.key)
        return Pruner(self._proposals.replayed(earlier), mine, ended)

    def _identity(self) -> str:
        """Return twelve hexadecimal digits, a hash of the fixed settings, the ranges and `prune`."""
        fixed = self.config.changed({name: each.low for name, each in self.ranges.items()}).id
        searched = {name: asdict(each) for name, each in self.ranges.items()}
        text = json.dumps([fixed, searched, self.prune], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _trial(frozen: FrozenTrial) -> Trial:
    value = frozen.value if frozen.state == TrialState.COMPLETE else None
    if value is not None and math.isinf(value):
        return Trial(frozen.number, frozen.params, TrialStatus.DIVERGED, None)
    status = {
        TrialState.COMPLETE: TrialStatus.FINISHED,
        TrialState.PRUNED: TrialStatus.PRUNED,
        TrialState.FAIL: TrialStatus.TOO_LARGE,
    }.get(frozen.state, TrialStatus.OPEN)
    return Trial(frozen.number, frozen.params, status, value)


def _outcome(result: Result) -> float | TrialState:
    """Return what to record for a run: infinitely bad if it diverged, `PRUNED` if it was stopped."""
    if result.status == RunStatus.STOPPED:
        return TrialState.PRUNED
    if result.status == RunStatus.DIVERGED or result.best is None:
        return -math.inf if result.higher_is_better else math.inf
    return result.best
