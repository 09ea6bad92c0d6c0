"""What a study tries: trials that Optuna proposes, generation by generation, and what came of them.

A generation depends on the seed and on the results of the generations before it, on nothing else: not on how many
processes work on the study, on which of them is faster, or on what was killed and when.
"""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.samplers import TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from rru.experiments.journal import held, storage
from rru.experiments.ranges import Range

GENERATION = 10
DIGITS = 4  # of a value that count: more would only make commands longer
BEST_SHARE = 0.25  # of trials: importance is what tells these from the others


class Proposals:
    """The trials of a study, in its folder: `study.journal` is Optuna's own record of them.

    **Arguments:**

    - `folder`: the study's; made when first written to.
    - `ranges`: of what is chosen, by name.
    - `seed`: on which all that is random depends.
    - `higher_is_better`: whether a larger value is better.
    """

    def __init__(self, folder: Path, ranges: Mapping[str, Range], seed: int, higher_is_better: bool) -> None:
        self.folder, self.seed = folder, seed
        self.direction = StudyDirection.MAXIMIZE if higher_is_better else StudyDirection.MINIMIZE
        self.distributions = {name: _distribution(each) for name, each in ranges.items()}
        self._journal = folder / "study.journal"
        self._study: optuna.Study | None = None

    def trials(self) -> list[FrozenTrial]:
        """All so far, in order; a trial is `RUNNING` from when it is proposed to when it is told of."""
        return self._load().get_trials() if self._journal.exists() else []

    def extend(self, count: int) -> list[FrozenTrial]:
        """Proposes the next trials, if those they depend on are done.

        **Arguments:** `count`: how many there are to be in all.

        **Returns:** all so far.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with held(self.folder / "proposing", wait=True):
            study, found = self._load(), self.trials()
            first = len(found) // GENERATION * GENERATION
            wanted = min(first + GENERATION, count)
            if wanted > len(found) and all(trial.state.is_finished() for trial in found[:first]):
                for values in self._generation(found[:first], wanted - first)[len(found) - first :]:
                    trial = create_trial(state=TrialState.RUNNING, params=values, distributions=self.distributions)
                    study.add_trial(trial)
        return self.trials()

    def tell(self, number: int, value: float | None) -> None:
        """Ends a trial.

        **Arguments:** `value`: what it came to, infinite if it failed; None if it was pruned.
        """
        if value is None:
            self._load().tell(number, state=TrialState.PRUNED)
        else:
            self._load().tell(number, value)

    def earlier(self, number: int) -> list[FrozenTrial]:
        """The trials of the generations before a trial's own."""
        return self.trials()[: number // GENERATION * GENERATION]

    def replayed(self, trials: list[FrozenTrial], generation: int = 0) -> optuna.Study:
        """A study in memory that knows of these trials alone."""
        seed = int(np.random.SeedSequence([self.seed, generation]).generate_state(1)[0])
        sampler = TPESampler(seed=seed, n_startup_trials=GENERATION)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=GENERATION // 2)
        study = optuna.create_study(direction=self.direction, sampler=sampler, pruner=pruner)
        study.add_trials(trials)
        return study

    def importances(self) -> dict[str, float]:
        """How much each name tells the best quarter of trials from the others, in all 1; empty if that is not known."""
        finite = [
            trial for trial in self.trials() if trial.state == TrialState.COMPLETE and math.isfinite(trial.value or 0)
        ]
        if len(finite) < 2:
            return {}
        evaluator = PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE)
        with warnings.catch_warnings(action="error", category=UserWarning):
            try:
                return get_param_importances(self.replayed(finite), evaluator=evaluator)
            except UserWarning:  # so many are equally good that none are best
                return {}

    def _generation(self, before: list[FrozenTrial], count: int) -> list[dict[str, float]]:
        """The first `count` proposals of the generation after these trials; each keeps clear of those before it."""
        study = self.replayed(before, len(before) // GENERATION)
        asked = [study.ask(self.distributions).params for _ in range(count)]
        return [{name: _tidy(value) for name, value in values.items()} for values in asked]

    def _load(self) -> optuna.Study:
        if self._study is None:
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            name, kept = self.folder.name, storage(self._journal)
            try:
                self._study = optuna.load_study(study_name=name, storage=kept)
            except KeyError:
                self._study = optuna.create_study(
                    study_name=name, storage=kept, direction=self.direction, load_if_exists=True
                )
        return self._study


def _distribution(values: Range) -> BaseDistribution:
    if isinstance(values.low, int) and isinstance(values.high, int):
        return IntDistribution(values.low, values.high, log=values.log)
    return FloatDistribution(values.low, values.high, log=values.log)


def _tidy(value: float) -> float:
    """A value with few digits; those of ranges have fewer, so it stays within them."""
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if isinstance(value, int) else rounded
