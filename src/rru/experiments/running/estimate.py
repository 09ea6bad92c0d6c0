"""Estimate how long the rest of a plan takes, from ended runs or else from this machine's speed."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from rru import data
from rru.data.own.data_json import Statistics
from rru.experiments.plans import PlannedRun
from rru.experiments.running.states import RunState
from rru.files import FileError
from rru.kinds import kind_of
from rru.nn import count_parameters
from rru.settings import Config
from rru.training import ENDED, Result, find_runs
from rru.training.precision import autocast

TRAIN_FLOP, EVALUATE_FLOP = 6, 2  # per parameter and time step: forward and backward pass; forward pass only
START_SECONDS = 0.4  # per run: read the data, build the model, test it, write the result
EPOCH_SECONDS = 0.02  # per epoch: write checkpoint, weights and log
PATIENCES = 7  # epochs of a run, as a multiple of its patience: at the paper's settings, ours took 5 to 10
MEASURED_PARAMETERS, MEASURED_TOKENS, MEASURED_FLOP = 1_000_000, 1000, 1e9  # limits that keep a measurement short
MIN_STEPS, MAX_STEPS = 2, 64  # time steps of a measurement

Speed = Callable[[PlannedRun], float | None]


@dataclass(frozen=True)
class Estimate:
    """The time that a run has left.

    **Arguments:**

    - `run`: the run.
    - `seconds`: the time; None if it could not be estimated.
    - `epochs`: the epochs it is assumed to take in all.
    - `measured`: whether it follows from this machine's speed, because no run like it has ended.
    """

    run: PlannedRun
    seconds: float | None
    epochs: float
    measured: bool


def time_left(entries: Sequence[PlannedRun], states: Sequence[RunState], root: Path, speed: Speed) -> list[Estimate]:
    """Estimate the time left for each run that has no result.

    Use ended runs with the same cell, precision, task settings, epoch limit and patience: their mean number of epochs,
    minus the epochs done, times their seconds per epoch and parameter, times the run's budget. If there are none, it
    divides the run's FLOP by the machine's speed, and adds what starting and saving take, for as many epochs as other
    cells took on average, or `PATIENCES` times the patience.

    **Arguments:**

    - `entries`, `states`: the runs, and the state of each.
    - `root`: the root folder of the ended runs.
    - `speed`: returns FLOP per second for a run, such as `MeasuredSpeed()`; called only if no similar run has ended.
    """
    to_do = [(entry, state) for entry, state in zip(entries, states, strict=True) if state.status not in ENDED]
    ended = _ended({entry.task for entry, _ in to_do}, root)
    estimates = []
    for entry, state in to_do:
        config, settings = entry.config, _epochs_settings(entry.config)
        alike = [(other, result) for other, result in ended if _epochs_settings(other) == settings]
        same_speed = [result for other, result in alike if _speed_settings(other) == _speed_settings(config)]
        if (rate := _rate(same_speed)) is not None:
            epochs, each = rate
            seconds: float | None = max(epochs - state.epoch, 0.0) * each * config.model.budget
        else:
            others = [result.epochs for _, result in alike]
            usual = min(config.schedule.epochs, PATIENCES * config.schedule.patience)
            epochs = sum(others) / len(others) if others else float(usual)
            flop, flops = epoch_flop(entry), speed(entry)
            seconds = None
            if flop is not None and flops:
                seconds = START_SECONDS + max(epochs - state.epoch, 1.0) * (EPOCH_SECONDS + flop / flops)
        estimates.append(Estimate(entry, seconds, epochs, rate is None))
    return estimates


def epoch_flop(entry: PlannedRun) -> float | None:
    """Return the FLOP of an epoch and its validation, from the budget and time steps; None if these are unknown."""
    config = entry.config
    train, valid = (kind_of(config.kind).steps(_statistics(config), split, config.task) for split in (0, 1))
    if train is None or valid is None:
        return None
    return float(config.model.budget) * (TRAIN_FLOP * train + EVALUATE_FLOP * valid)


def _statistics(config: Config) -> Statistics:
    """Return the counts of a data set, or of the user's own data; no counts if that cannot be read."""
    if config.data is None:
        return data.data_set(config.task.name).statistics
    with suppress(data.DataError):
        return config.data.statistics
    return {}


class MeasuredSpeed:
    """Measure the FLOP per second of training with one thread, a tenth of a second per kind, cell and precision."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, ...], float | None] = {}

    def __call__(self, entry: PlannedRun) -> float | None:
        """Return the speed for a run; None if it cannot be measured."""
        key = (entry.config.kind, *_speed_settings(entry.config))
        if key not in self.known:
            self.known[key] = _measured(entry)
        return self.known[key]


def _measured(entry: PlannedRun) -> float | None:
    """Measure the speed of a training pass over a short batch, with a small model of the run's task and cell."""
    config, batch = entry.config, entry.config.task.batch_size
    options = config.tables()["model"]
    cell, budget = options.pop("cell"), min(options.pop("budget"), MEASURED_PARAMETERS)
    tokens = min(_statistics(config).get("vocabulary", 0), MEASURED_TOKENS) or None
    with torch.random.fork_rng(devices=[]), _one_thread():
        try:
            facts = config.data.facts if config.data else None
            model = kind_of(config.kind).task.architecture_of(config.task, facts, tokens).build(cell, options, budget)
        except (data.DataError, ValueError, RuntimeError):
            return None
        flop = TRAIN_FLOP * count_parameters(model) * batch  # of a time step
        steps = min(max(round(MEASURED_FLOP / flop), MIN_STEPS), MAX_STEPS)
        steps = model.window_steps or steps
        inputs = model.example(steps, batch)
        with autocast(config.schedule.precision, inputs.device):
            seconds = min(_train_seconds(model, inputs) for _ in range(2))  # the first pass is slow
        return float(flop * steps / seconds)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread inside the `with` block: the time that several take together depends on what else runs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _train_seconds(model: nn.Module, inputs: Tensor) -> float:
    """Return the processor's time, not the clock's: other processes do not change it."""
    start = time.process_time()
    model(inputs)[0].sum().backward()
    return time.process_time() - start


def _ended(of_tasks: Iterable[str], root: Path) -> list[tuple[Config, Result]]:
    """Return config and result of all ended runs on these tasks; skips runs that cannot be read."""
    results = []
    for task in sorted(of_tasks):
        for run in find_runs(root / task, lambda folder, error: None):
            with suppress(FileError, OSError):
                if (result := run.result()) is not None:
                    results.append((run.config, result))
    return results


def _rate(results: Sequence[Result]) -> tuple[float, float] | None:
    """Return the mean number of epochs and the seconds per epoch and parameter; None if no epochs were trained."""
    work = sum(result.epochs * result.parameters for result in results)
    if not work:
        return None  # no results, or all diverged in their first epoch
    seconds = sum(result.seconds.get("total", 0.0) for result in results)
    return sum(result.epochs for result in results) / len(results), seconds / work


def _epochs_settings(config: Config) -> tuple[object, ...]:
    """Return the settings that decide how many epochs a run trains for."""
    return config.tables()["task"], config.schedule.epochs, config.schedule.patience


def _speed_settings(config: Config) -> tuple[str, str]:
    """Return the settings that decide how long an epoch takes, for each parameter."""
    return config.model.cell, config.schedule.precision
