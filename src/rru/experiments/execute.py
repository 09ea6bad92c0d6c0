"""A config becomes a run: its task, model and optimiser are made, and trained in the run's folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rru import tasks
from rru.experiments import presets
from rru.experiments.schema import Config
from rru.tasks import Task
from rru.training import RAdam, Result, Run, RunError, Watch, train

VOCABULARY = "vocabulary.json"

Place = Path | str | None


@dataclass(frozen=True)
class Assembled:
    """What a config describes: `task`, `model` and `optimiser`."""

    task: Task
    model: nn.Module
    optimiser: torch.optim.Optimizer


def assemble(config: Mapping[str, Any], data_dir: Place = None, device: str = "cpu") -> Assembled:
    """Makes task, model and optimiser; the model's weights depend on `schedule.seed` alone.

    **Arguments:**

    - `config`: as `rru.experiments.presets` gives it.
    - `data_dir`: the data folder, as for `rru.data.load`.
    - `device`: where the model is to be.
    """
    of_task, of_model = dict(config["task"]), dict(config["model"])
    task = tasks.load(of_task.pop("name"), data_dir, **of_task)
    cell, budget = of_model.pop("cell"), of_model.pop("budget")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config["schedule"]["seed"])
        model = task.model(cell, of_model, budget).to(device)
    return Assembled(task, model, _optimiser(model, **config["optimiser"]))


def _optimiser(
    model: nn.Module,
    *,
    name: str,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    clipping: str,
    clip: float,
    weight_decay: float = 0.0,
) -> torch.optim.Optimizer:
    parameters, betas = list(model.parameters()), (beta1, beta2)
    if name == "radam":
        optimiser: torch.optim.Optimizer = RAdam(
            parameters, lr, betas, eps, clip=clip if clipping == "adaptive" else None
        )
    elif name == "torch-radam":
        optimiser = torch.optim.RAdam(
            parameters, lr, betas, eps, weight_decay, decoupled_weight_decay=True, foreach=True
        )
    else:
        optimiser = torch.optim.AdamW(parameters, lr, betas, eps, weight_decay, foreach=True)
    if clipping == "norm":
        optimiser.register_step_pre_hook(lambda *_: _clip_norm(parameters, clip))
    return optimiser


def _clip_norm(parameters: list[nn.Parameter], largest: float) -> None:
    nn.utils.clip_grad_norm_(parameters, largest)


def run_folder(config: Mapping[str, Any], root: Path) -> Path:
    """Where a config's run is: `<task>/<cell>/<id>` below `root`."""
    return root.joinpath(config["task"]["name"], config["model"]["cell"], presets.config_id(config))


def start(
    config: Mapping[str, Any],
    folder: Path,
    *,
    data_dir: Place = None,
    device: str = "cpu",
    watch: Watch | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Trains what a config describes, in a folder; goes on with the run that is there, if it is of the same config.

    **Arguments:**

    - `config`: as `rru.experiments.presets` gives it.
    - `folder`: the run's, such as `run_folder` names it.
    - `data_dir`, `device`: as for `assemble`.
    - `watch`, `stop`: as for `rru.training.train`.
    """
    config = presets.checked(config)
    parts = assemble(config, data_dir, device)
    run = opened(folder, config)
    vocabulary = getattr(parts.task, "vocabulary", None)
    if vocabulary is not None and not (folder / VOCABULARY).exists():
        vocabulary.save(folder / VOCABULARY)
    return train(parts.task, parts.model, parts.optimiser, config, run, watch, stop=stop)


def opened(folder: Path, config: Config) -> Run:
    """The run in a folder, made if there is none; another process may make it at the same time."""
    try:
        return Run.create(folder, config)
    except RunError:
        if not (folder / "config.toml").exists():
            raise
    return Run(folder)


def evaluate(folder: Path, split: str, *, data_dir: Place = None, device: str = "cpu") -> dict[str, float]:
    """Every score of a run's best weights on a split.

    **Arguments:**

    - `folder`: the run's.
    - `split`: `train`, `valid` or `test`.
    - `data_dir`, `device`: as for `assemble`.
    """
    run = Run(folder)
    parts = assemble(presets.checked(run.config), data_dir, device)
    if not run.best_epochs:
        raise RunError(f"{folder}: has no best weights yet, no epoch of it was completed")
    parts.model.load_state_dict(run.best(run.best_epochs[-1]))
    return parts.task.evaluate(parts.model, split)


def find_runs(root: Path) -> list[Run]:
    """The runs below a folder, in the order of their names."""
    return [Run(config.parent) for config in sorted(root.glob("**/config.toml"))]
