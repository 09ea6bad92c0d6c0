"""End unpromising trials early."""

from pathlib import Path

import optuna

from rru.training import Run
from rru.training.run_files import has_config


class Pruner:
    """Decide whether to prune a trial: whether it is worse than the median of earlier trials at the same epoch.

    It replays the epochs a run completed before it was killed. It also replays a run that has ended because a study
    without pruning had the same config, so the decision is the same as if the run had been watched.

    **Arguments:**

    - `study`: an in-memory study with the earlier trials and their values after each epoch.
    - `values`: the values of this trial's run so far, by epoch.
    - `ended`: whether the run has ended.
    """

    def __init__(self, study: optuna.Study, values: dict[int, float], ended: bool) -> None:
        self._trial = study.ask()
        self.prunes = False
        """Whether to prune the trial."""
        seen = sorted(values)
        for epoch in seen[:-1] if ended else seen:  # after the last epoch there is nothing to prune
            self.see(epoch, values[epoch])

    def see(self, epoch: int, value: float) -> None:
        """Report the value after an epoch and update `prunes`."""
        self._trial.report(value, epoch)
        self.prunes = self.prunes or self._trial.should_prune()


def epoch_values(folder: Path, metric: str) -> dict[int, float]:
    """Return the validation score of each completed epoch of a run; empty if there is no run."""
    if not has_config(folder):
        return {}
    epochs = [epoch for epoch in Run(folder).epochs() if epoch.epoch > 0 and metric in epoch.validation]
    return {epoch.epoch: epoch.validation[metric] for epoch in epochs}
