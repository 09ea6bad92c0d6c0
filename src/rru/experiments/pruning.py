"""Ending trials early that will hardly be the best."""

from pathlib import Path

import optuna

from rru.training import Run


class Pruner:
    """Whether a trial does worse than the median of earlier trials at the same epoch.

    What a run did before it was killed is seen again. A run that ended on its own, since another study without a pruner
    asked for the same, is judged as if it had been watched.

    **Arguments:**

    - `study`: one in memory, with the earlier trials and their values after each epoch.
    - `values`: of epochs that this trial's run has had already.
    - `ended`: whether that run is over.
    """

    def __init__(self, study: optuna.Study, values: dict[int, float], ended: bool) -> None:
        self._trial = study.ask()
        self.prunes = False
        """Whether it is to end."""
        seen = sorted(values)
        for epoch in seen[:-1] if ended else seen:  # after its last epoch there is nothing left to prune
            self.see(epoch, values[epoch])

    def see(self, epoch: int, value: float) -> None:
        """One more epoch."""
        self._trial.report(value, epoch)
        self.prunes = self.prunes or self._trial.should_prune()


def epoch_values(folder: Path, metric: str) -> dict[int, float]:
    """Validation after each epoch of a run, as far as it is."""
    if not (folder / "config.toml").exists():
        return {}
    epochs = [line for line in Run(folder).metrics() if line.get("kind") == "epoch" and line["epoch"] > 0]
    return {line["epoch"]: line["validation"][metric] for line in epochs if line["validation"][metric] is not None}
