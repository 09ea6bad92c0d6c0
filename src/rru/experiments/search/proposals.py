"""The trials of a study, which Optuna proposes generation by generation.

A generation depends only on the seed and on the results of earlier generations. It does not depend on the number or
speed of the processes that work on the study, or on which were killed and when.
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

from rru.experiments.search.journal import readable, storage
from rru.files import Lock, make_folder
from rru.settings.ranges import Range, tidied

GENERATION = 10
BEST_SHARE = 0.25  # share of trials that count as best when computing importance


class Proposals:
    """The trials of a study, recorded by Optuna in `study.journal` in the study's folder.

    **Arguments:**

    - `folder`: the study's folder; created on the first write.
    - `ranges`: the range of each searched setting, by full name.
    - `seed`: the random seed of all proposals.
    - `higher_is_better`: whether a larger value is better.
    """

    def __init__(self, folder: Path, ranges: Mapping[str, Range], seed: int, higher_is_better: bool) -> None:
        self.folder, self.seed = folder, seed
        self.direction = StudyDirection.MAXIMIZE if higher_is_better else StudyDirection.MINIMIZE
        self.distributions = {name: _distribution(each) for name, each in ranges.items()}
        self._journal = folder / "study.journal"
        self._study: optuna.Study | None = None

    def trials(self) -> list[FrozenTrial]:
        """Return all trials so far, in order. A trial is `RUNNING` from its proposal until `tell` ends it."""
        if not self._journal.exists():
            return []
        with readable(self._journal):
            trials = self._load().get_trials()
            for trial in trials:
                if trial.distributions != self.distributions:
                    raise ValueError(f"trial {trial.number} searches other settings")
            return trials

    def extend(self, count: int) -> list[FrozenTrial]:
        """Propose the next generation, or the rest of a partial one, if all earlier generations have ended.

        **Arguments:** `count`: the total number of trials; no more are proposed.

        **Returns:** all trials so far.
        """
        make_folder(self.folder)
        with Lock(self.folder / "proposing", timeout=None):
            study, trials = self._load(), self.trials()
            first = len(trials) // GENERATION * GENERATION
            wanted = min(first + GENERATION, count)
            if wanted > len(trials) and all(trial.state.is_finished() for trial in trials[:first]):
                for values in self._generation(trials[:first], wanted - first)[len(trials) - first :]:
                    trial = create_trial(state=TrialState.RUNNING, params=values, distributions=self.distributions)
                    study.add_trial(trial)
        return self.trials()

    def tell(self, number: int, outcome: float | TrialState) -> None:
        """End a trial with its value, infinite if it diverged; or with the state `PRUNED` or `FAIL`."""
        if isinstance(outcome, TrialState):
            self._load().tell(number, state=outcome)
        else:
            self._load().tell(number, outcome)

    def earlier(self, number: int) -> list[FrozenTrial]:
        """Return the trials of all generations before that of the given trial."""
        return self.trials()[: number // GENERATION * GENERATION]

    def replayed(self, trials: list[FrozenTrial], generation: int = 0) -> optuna.Study:
        """Return an in-memory study with only these trials."""
        seed = int(np.random.SeedSequence([self.seed, generation]).generate_state(1)[0])
        sampler = TPESampler(seed=seed, n_startup_trials=GENERATION)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=GENERATION // 2)
        study = optuna.create_study(direction=self.direction, sampler=sampler, pruner=pruner)
        study.add_trials(trials)
        return study

    def importances(self) -> dict[str, float]:
        """Return the importance of each setting for being in the best quarter of trials, summing to 1.

        Empty if it cannot be computed.
        """
        finite = [
            trial for trial in self.trials() if trial.state == TrialState.COMPLETE and math.isfinite(trial.value or 0)
        ]
        if len(finite) < 2:
            return {}
        evaluator = PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE)
        with warnings.catch_warnings(action="error", category=UserWarning):
            try:
                return get_param_importances(self.replayed(finite), evaluator=evaluator)
            except UserWarning:  # too many ties to tell the best quarter
                return {}

    def _generation(self, before: list[FrozenTrial], count: int) -> list[dict[str, float]]:
        """Return the first `count` proposals of the generation that follows the trials `before`."""
        study = self.replayed(before, len(before) // GENERATION)
        proposed = [study.ask(self.distributions).params for _ in range(count)]
        return [{name: tidied(value) for name, value in values.items()} for values in proposed]  # bounds are tidied too

    def _load(self) -> optuna.Study:
        if self._study is None:
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            name, journal_storage = self.folder.name, storage(self._journal)
            with readable(self._journal):
                try:
                    self._study = optuna.load_study(study_name=name, storage=journal_storage)
                except KeyError:
                    self._study = optuna.create_study(
                        study_name=name, storage=journal_storage, direction=self.direction, load_if_exists=True
                    )
        return self._study


def _distribution(values: Range) -> BaseDistribution:
    if isinstance(values.low, int) and isinstance(values.high, int):
        return IntDistribution(values.low, values.high, log=values.log)
    return FloatDistribution(values.low, values.high, log=values.log)
