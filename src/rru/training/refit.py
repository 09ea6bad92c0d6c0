"""Train a model anew on all data, once validation and test have said how long and how well it trains.

The run that is scored keeps its weights. The new ones are those of a run of their own, in the folder `refit` inside it,
so that they survive any kill as well.
"""

from rru.settings import Config
from rru.settings.config import EVERYTHING
from rru.tasks import SeriesSettings
from rru.training.events import Ended, Evaluated, Event, Notice, Refitted, Watch
from rru.training.folder import Run
from rru.training.result import Result
from rru.training.run_files import RESULT, has_config
from rru.training.status import RunStatus

REFIT = "refit"


def refits(config: Config) -> bool:
    """Return whether a config asks to train anew on all data."""
    return isinstance(config.task, SeriesSettings) and config.task.refit


def without_refit(config: Config) -> Config:
    """Return a config that does not ask to train anew on all data."""
    return config.changed({"task.refit": None}) if refits(config) else config


def check_scored(config: Config) -> None:
    """Raise ValueError if a config trains on the parts that it would be scored on, as only the second training may."""
    if isinstance(config.task, SeriesSettings) and config.task.everything:
        raise ValueError(f"task.everything must not be set: {EVERYTHING}")


def whole_status(run: Run, config: Config) -> RunStatus:
    """Return the status of a run of a config. It has ended only if its training on all data has ended as well."""
    result = run.result()
    if result is None or not _has_refit(config, result):
        return run.status
    folder = run.path / REFIT
    if has_config(folder) and Run(folder).result() is not None:
        return result.status
    return RunStatus.RUNNING if run.is_locked else RunStatus.STOPPED


def _has_refit(config: Config, result: Result) -> bool:
    return refits(config) and result.status == RunStatus.FINISHED and result.best_epoch > 0


def refit_config(config: Config, result: Result) -> Config | None:
    """Return the config to train on all data with, for as many epochs as were best; None if it is not asked for."""
    if not _has_refit(config, result):
        return None
    whole = {"task.refit": None, "task.everything": True, "schedule.last_epoch": result.best_epoch}
    return config.changed(whole)


def weights_run(run: Run) -> Run:
    """Return the run whose weights to use: the one on all data, if that has finished, else the run itself."""
    if not (run.path / REFIT / RESULT).is_file():
        return run
    whole = Run(run.path / REFIT)
    result = whole.result()
    finished = result is not None and result.status == RunStatus.FINISHED and whole.best_epochs
    return whole if finished else run


def not_yet_ended(watch: Watch | None) -> Watch | None:
    """Return a watcher that tells `watch` all but the end: the run may go on with training on all data."""
    return None if watch is None else lambda event: None if isinstance(event, Ended) else watch(event)


def refit_watch(watch: Watch | None, epochs: int) -> Watch:
    """Return a watcher for the training on all data: it tells `watch` the epochs, for which there are no scores."""

    def tell(event: Event) -> None:
        if watch is not None and isinstance(event, Evaluated):
            watch(Refitted(event.epoch, epochs))
        elif watch is not None and isinstance(event, Notice):
            watch(event)

    return tell
