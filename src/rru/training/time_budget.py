"""Choose the size of a model and its epochs by the time there is: `rru train FILE --minutes 10`."""

import math
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from rru.kinds import kind_of
from rru.settings import Config
from rru.settings.tables import INERT
from rru.training.folder import Run
from rru.training.from_config import Assembled, assemble, optimiser_of
from rru.training.locate import find_runs
from rru.training.precision import autocast
from rru.training.run_files import has_config, last_change

SMALLER, LARGER = (1 / 2, 1 / 4, 1 / 8), (2.0, 4.0, 8.0, 16.0)
"""Sizes of the recurrent layers that are tried, as multiples of the one that `auto` takes."""
PLANNED = 0.9  # of the time; the rest is for reading the data, saving, and a machine that gets busier
ENOUGH = 0.4  # of the epochs of `auto`: with fewer, a smaller model learns more in the same time
MAX_MORE = 2  # times the epochs of `auto` are the most: after that a larger model would have been better
EVALUATION = 0.7  # of the time of a training step: a forward pass takes a third of one, and windows of texts overlap
WARM_UP, MIN_STEPS, MAX_STEPS, MEASURED_SECONDS = 3, 3, 20, 0.5  # the first steps allocate memory and are slow
CHOSEN = frozenset(
    ("model.budget", "model.dropout", "task.limit", "schedule.epochs", "schedule.patience", "schedule.minutes")
)
"""The settings that are chosen here."""


@dataclass(frozen=True)
class Places:
    """Where runs are: the folder of all of them, and that of a new run, if the user chose it."""

    root: Path
    folder: Path | None = None


def within(
    minutes: float, build: Callable[[float], Config], fixed: Collection[str], places: Places, device: str = "cpu"
) -> Config:
    """Return the config of the largest model for which two fifths of its usual epochs fit the time on this machine.

    A few training steps of each size are timed. The model trains for as many epochs as fit, the learning rate decaying
    over these. If there is too little time for an epoch of the smallest size, it trains on the first part of the data.
    The same call finds the run that it began before, whatever the machine's speed is now.

    **Arguments:**

    - `minutes`: the time, with what it takes to choose.
    - `build`: returns all settings for a multiple of the usual size, such as from `presets.load(..., scale)`.
    - `fixed`: the full names of the settings that the user chose.
    - `places`: where the run may be, if it was begun before.
    - `device`: the device to train on.
    """
    ends = time.monotonic() + PLANNED * 60 * minutes  # timing the sizes counts, too
    usual = build(1.0)
    _check(minutes, usual, fixed)
    if (before := _begun(minutes, usual, places)) is not None:
        return before
    parts = assemble(usual, device=device)

    def epochs_of(config: Config) -> float:
        speed = measure(config, parts)
        return (ends - time.monotonic() - 2 * speed.evaluation) / (speed.training + speed.evaluation)

    def is_enough(config: Config, epochs: float) -> bool:
        return epochs >= ENOUGH * config.schedule.epochs

    chosen, epochs = usual, epochs_of(usual)
    grows = is_enough(usual, epochs)
    for scale in LARGER if grows else SMALLER:
        config = build(scale)
        if config.model == chosen.model:
            continue  # the user chose the size, or the data allows no other one
        possible = epochs_of(config)
        if grows and not is_enough(config, possible):
            break
        chosen, epochs = config, possible
        if not grows and is_enough(config, possible):
            break
    return _with_epochs(chosen, minutes, max(epochs, 0.0))


def _check(minutes: float, config: Config, fixed: Collection[str]) -> None:
    if not (math.isfinite(minutes) and minutes > 0):
        raise ValueError(f"minutes must be positive, got {minutes:g}")
    if config.data is None:
        raise ValueError(f"minutes is for your own data; the presets of {config.task.name} say how long to train")
    if config.kind == "series":
        raise ValueError(
            "minutes is not for series, which train in a minute or two; --ensemble N takes N times as long"
        )
    if "schedule.epochs" in fixed:
        raise ValueError("give either minutes or epochs: both say how long to train")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("minutes is not for several processes, each of which would measure another speed; set epochs")


def _begun(minutes: float, usual: Config, places: Places) -> Config | None:
    """Return the config of the newest run of this data that was begun with as many minutes and the same settings."""
    if places.folder is not None:
        runs = [Run(places.folder)] if has_config(places.folder) else []
    else:
        within_root = places.root / usual.task.name / usual.model.cell
        runs = find_runs(within_root, lambda folder, error: None) if within_root.is_dir() else []
    for run in sorted(runs, key=lambda run: last_change(run.path) or 0.0, reverse=True):
        if run.config.schedule.minutes == minutes and _decided(run.config) == _decided(usual):
            return run.config
    return None


def _decided(config: Config) -> Mapping[str, Any]:
    """Return the settings that are not chosen here, by full name."""
    tables = config.tables()
    named = {f"{table}.{name}": value for table, values in tables.items() for name, value in values.items()}
    return {name: value for name, value in named.items() if name not in CHOSEN | INERT}


@dataclass(frozen=True)
class Speed:
    """Seconds of an epoch of training, and of an evaluation."""

    training: float
    evaluation: float


def measure(config: Config, parts: Assembled) -> Speed:
    """Time a few training steps.

    **Arguments:** `config`: decides the model; `parts`: the task, whose data and batches are those of `config`.
    """
    device = next(parts.model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        model = parts.task.model(config.model.cell, config.model.arguments, config.model.budget).to(device)
        optimiser = optimiser_of(model, config.optimiser)
        batches = parts.task.epoch(torch.Generator().manual_seed(0))
        times: list[float] = []
        while len(times) < WARM_UP + MIN_STEPS or (
            sum(times[WARM_UP:]) < MEASURED_SECONDS and len(times) < WARM_UP + MAX_STEPS
        ):
            start = time.perf_counter()
            optimiser.zero_grad(set_to_none=True)
            with autocast(config.schedule.precision, device):
                loss, _ = parts.task.loss(model, batches[len(times) % len(batches)], None)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            times.append(time.perf_counter() - start)
    training = len(batches) * median(times[WARM_UP:])
    return Speed(training, training * EVALUATION * _steps(config, 1) / _steps(config, 0))


def _with_epochs(config: Config, minutes: float, epochs: float) -> Config:
    """Return the config with the epochs that fit; for less than one, with the part of the data that fits."""
    changes: dict[str, object] = {"schedule.minutes": minutes}
    if epochs < 1:
        changes["task.limit"] = max(round(epochs * _items(config)), config.task.batch_size)
    whole = min(max(int(epochs), 1), MAX_MORE * config.schedule.epochs)
    return config.changed(
        changes | {"schedule.epochs": whole, "schedule.patience": min(config.schedule.patience, whole)}
    )


def _items(config: Config) -> float:
    """Return the number of what `task.limit` counts in the training part: tokens, pieces, texts or sequences."""
    return _steps(config, 0) / _steps(config.changed({"task.limit": 1}), 0)


def _steps(config: Config, split: int) -> float:
    assert config.data is not None
    return kind_of(config.kind).steps(config.data.statistics, split, config.task) or 1.0
