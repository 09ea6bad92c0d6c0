"""A search for the settings that validate best: Optuna proposes, and each trial is an ordinary run.

```python
from rru.experiments.tune import Study

study = Study("bach", "rru", "smoke", seed=0)
study.run(20)
print(study.best()[0])
```

A study is a folder beside the runs, `<task>/<cell>/studies/<name>`: `study.journal` has its trials, all else are locks.
Any number of processes may work on it, and be killed at any moment: a trial that nobody holds the lock of is taken up
again, and its run goes on from its checkpoint. `rru.experiments.proposals` says why that never changes what comes out.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from rru import tasks
from rru.experiments import execute, presets
from rru.experiments.journal import held
from rru.experiments.proposals import Proposals
from rru.experiments.pruning import Pruner, epoch_values
from rru.experiments.ranges import ranges
from rru.experiments.schema import Config
from rru.training import Evaluated, Event, Result, Run

POLL = 0.2  # seconds between two looks at what other processes do


@dataclass(frozen=True)
class Trial:
    """One of a study's trials.

    **Arguments:**

    - `number`: from 0.
    - `settings`: what was chosen, by name, such as `optimiser.lr`.
    - `state`: `open`, `finished`, `diverged` (which counts as worst) or `pruned`.
    - `value`: the best validation; None unless finished.
    """

    number: int
    settings: Mapping[str, float]
    state: str
    value: float | None


@dataclass(frozen=True)
class Began:
    """A trial begins, or goes on."""

    trial: Trial


@dataclass(frozen=True)
class Told:
    """A trial is over."""

    trial: Trial


@dataclass(frozen=True)
class Waiting:
    """There is nothing to do until other processes are done with these trials."""

    trials: Sequence[Trial]


Watch = Callable[[Began | Told | Waiting | Event], None]


class Study:
    """A search over the ranges of a task and cell.

    **Arguments:**

    - `task`, `cell`, `preset`: as for `presets.load`.
    - `changes`: as for `presets.override`. What they name is not searched.
    - `seed`: of the proposals, and of every run.
    - `prune`: whether trials end early that do worse than the median of earlier generations at the same epoch.
    - `root`: the folder that runs are in.
    """

    def __init__(
        self,
        task: str,
        cell: str = "rru",
        preset: str = "paper",
        *,
        changes: Iterable[str] = (),
        seed: int = 0,
        prune: bool = False,
        root: Path = Path("runs"),
    ) -> None:
        changes = [*changes, f"schedule.seed={seed}"]
        config = presets.load(task, cell, preset)
        fixed = presets.changed(config, changes)
        self.config = presets.override(config, changes)
        self.ranges = {name: each for name, each in ranges(config, preset).items() if name not in fixed}
        if not self.ranges:
            raise ValueError(f"there must be something to search; the changes name all of {', '.join(sorted(fixed))}")
        self.prune, self.root = prune, root
        self.metric, self.higher_is_better = tasks.score(task)
        self.folder = root / task / cell / "studies" / f"{preset}-{seed}-{self._identity()}"
        self._proposals = Proposals(self.folder, self.ranges, seed, self.higher_is_better)

    def trials(self) -> list[Trial]:
        """All that were proposed so far, in order."""
        return [_trial(each) for each in self._proposals.trials()]

    def best(self) -> list[Trial]:
        """The finished ones, best first; of equals, the first."""
        sign = -1 if self.higher_is_better else 1
        return sorted(
            (each for each in self.trials() if each.value is not None), key=lambda each: sign * (each.value or 0.0)
        )

    def config_of(self, trial: Trial) -> Config:
        """All settings of a trial's run."""
        return self._config(trial.settings)

    def run_of(self, trial: Trial) -> Path:
        """The folder of a trial's run."""
        return execute.run_folder(self.config_of(trial), self.root)

    def result_of(self, trial: Trial) -> Result:
        """What came of a finished trial's run: its test too, to be looked at once, for the winner."""
        return Result.from_json(Run(self.run_of(trial)).result() or {})

    def importances(self) -> dict[str, float]:
        """How much each setting tells the best quarter of trials from the others, in all 1; empty if not known."""
        return self._proposals.importances()

    def run(
        self,
        count: int = 100,
        *,
        data_dir: execute.Place = None,
        device: str = "cpu",
        watch: Watch = lambda event: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Runs what is missing of so many trials. Other processes may do the same, at the same time.

        **Arguments:**

        - `count`: how many trials there are to be in all.
        - `data_dir`, `device`: as for `execute.start`.
        - `watch`: is called with `Began`, `Told` and `Waiting`, and with the events of runs.
        - `stop`: asked after each step of a run.

        **Returns:** whether all are done; False if it was stopped.
        """
        while not stop():
            found = self._proposals.extend(count)[:count]
            waiting = [each.number for each in found if not each.state.is_finished()]
            if not waiting and len(found) == count:
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
        """Runs a trial, if no other process does or did. The lock ends with the process, whatever ends that."""
        claims = self.folder / "claims"
        claims.mkdir(exist_ok=True)
        with held(claims / f"{number:04}", wait=False) as mine:
            trial = self.trials()[number]
            if not mine or trial.state != "open":
                return False
            run(trial)
            return True

    def _run(self, trial: Trial, data_dir: execute.Place, device: str, watch: Watch, stop: Callable[[], bool]) -> None:
        """Runs a trial to its end and tells of it; of one that is stopped nothing is told."""
        watch(Began(trial))
        config, folder = self.config_of(trial), self.run_of(trial)
        ended = (folder / "result.json").exists()
        pruner = self._pruner(trial, ended) if self.prune else None

        def see(event: Event) -> None:
            if pruner is not None and isinstance(event, Evaluated):
                pruner.see(event.epoch, event.validation[self.metric])
            watch(event)

        def pruned() -> bool:
            return pruner is not None and pruner.prunes

        value = None
        if not (ended and pruned()):
            result = execute.start(
                config, folder, data_dir=data_dir, device=device, watch=see, stop=lambda: stop() or pruned()
            )
            if result.status == "stopped" and not pruned():
                return
            value = _value(result)
        self._proposals.tell(trial.number, value)
        watch(Told(self.trials()[trial.number]))

    def _pruner(self, trial: Trial, ended: bool) -> Pruner:
        earlier = self._proposals.earlier(trial.number)
        for each in earlier:
            each.intermediate_values = epoch_values(self.run_of(_trial(each)), self.metric)
        mine = epoch_values(self.run_of(trial), self.metric)
        return Pruner(self._proposals.replayed(earlier), mine, ended)

    def _config(self, settings: Mapping[str, float]) -> Config:
        tables: dict[str, dict[str, float]] = {}
        for name, value in settings.items():
            table, _, key = name.partition(".")
            tables.setdefault(table, {})[key] = value
        return presets.checked(presets.merged(self.config, tables))

    def _identity(self) -> str:
        """Twelve hexadecimal digits that stand for what is searched and how."""
        fixed = presets.config_id(self._config({name: each.low for name, each in self.ranges.items()}))
        searched = {name: asdict(each) for name, each in self.ranges.items()}
        text = json.dumps([fixed, searched, self.prune], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _trial(frozen: FrozenTrial) -> Trial:
    value = frozen.value if frozen.state == TrialState.COMPLETE else None
    if value is not None and math.isinf(value):
        return Trial(frozen.number, frozen.params, "diverged", None)
    states = {TrialState.COMPLETE: "finished", TrialState.PRUNED: "pruned"}
    return Trial(frozen.number, frozen.params, states.get(frozen.state, "open"), value)


def _value(result: Result) -> float | None:
    """What a study is told of a run; infinitely bad if it diverged, None if it was pruned."""
    if result.status == "stopped":
        return None
    if result.status == "diverged" or result.best is None:
        return -math.inf if result.higher_is_better else math.inf
    return result.best
