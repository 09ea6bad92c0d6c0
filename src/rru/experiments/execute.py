"""A config becomes a run: its task, model and optimiser are made, and trained in the run's folder."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rru import tasks
from rru.experiments import own, presets
from rru.experiments.schema import Config
from rru.tasks import Task
from rru.training import Processes, RAdam, Result, Run, RunError, SeenRun, Watch, toml, train
from rru.training.files import write_file
from rru.training.loop import denormals_flushed

VOCABULARY = "vocabulary.json"
CELL = "cell.py"  # a copy of the user's own, to compare and to read; it is never run

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
    place = _device(device)
    of_task, of_model = dict(config["task"]), dict(config["model"])
    task = tasks.load(of_task.pop("name"), data_dir, **of_task)
    cell, budget = of_model.pop("cell"), of_model.pop("budget")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config["schedule"]["seed"])
        model = task.model(cell, of_model, budget).to(place)
    return Assembled(task, model, _optimiser(model, **config["optimiser"]))


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device must be one that torch has here, such as cpu; got {name!r} ({reason})") from error
    if device.type == "meta":
        raise ValueError(f"device must be one that computes, such as cpu; got {name!r}")
    return device


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
    processes: Processes | None = None,
) -> Result:
    """Trains what a config describes, in a folder; goes on with the run that is there, if it is of the same config.

    How often a run logs and writes checkpoints stays as it was when it began.

    **Arguments:**

    - `config`: as `rru.experiments.presets` gives it.
    - `folder`: the run's, such as `run_folder` names it.
    - `data_dir`, `device`: as for `assemble`.
    - `watch`, `stop`, `processes`: as for `rru.training.train`.
    """
    config, processes = presets.checked(config), processes or Processes(device=device)
    run = _run_there(folder, config)
    with denormals_flushed():
        parts = assemble(config, data_dir, processes.device)
        if processes.first:
            run = run or opened(folder, config)
            _keep_beside(run, parts.task)
        processes.wait()  # until there is a folder
        if not processes.first:
            run, watch = SeenRun(folder), watch or (lambda event: None)
        assert run is not None
        return train(parts.task, parts.model, parts.optimiser, run.config, run, watch, stop=stop, processes=processes)


def _keep_beside(run: Run, task: Task) -> None:
    """Keeps in a run's folder what its weights mean nothing without: a vocabulary, a cell of the user's own."""
    vocabulary = getattr(task, "vocabulary", None)
    if vocabulary is not None and not (run.path / VOCABULARY).exists():
        write_file(run.path / VOCABULARY, (json.dumps(vocabulary.fields()) + "\n").encode())
    source = own.source(run.config["model"]["cell"])
    if source is not None and not (run.path / CELL).exists():
        write_file(run.path / CELL, source)


def _run_there(folder: Path, config: Config) -> Run | None:
    """The run that a folder has, if it has one; a RunError if it is not one of this config."""
    if not (folder / "config.toml").exists():
        return None
    run = Run(folder)
    has = presets.checked(run.config)
    if presets.config_id(has) == presets.config_id(config):
        _check_cell(run)
        return run
    differ = toml.differences(has, config)
    raise RunError(f"{folder}: is the folder of a run with other settings ({differ}); choose another folder")


def _check_cell(run: Run) -> None:
    """Sees to it that a cell of the user's own is still the one that a run was begun with."""
    source, copy = own.source(run.config["model"]["cell"]), run.path / CELL
    if source is not None and copy.exists() and copy.read_bytes() != source:
        raise RunError(
            f"{run.path}: the cell's file was changed since this run began (as it was then: {copy}); "
            "choose another folder, or remove this one to train anew"
        )


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
    if not run.best_epochs:
        raise RunError(f"{folder}: has no best weights yet, no epoch of it was completed")
    config = presets.checked(run.config)
    _check_cell(run)
    with denormals_flushed():  # as in training
        parts = assemble(config, data_dir, device)
        parts.model.load_state_dict(run.best(run.best_epochs[-1]))
        return parts.task.evaluate(parts.model, split)


def find_runs(root: Path, damaged: Callable[[Path, RunError], None] | None = None) -> list[Run]:
    """The runs below a folder, in the order of their names.

    **Arguments:**

    - `root`: the folder.
    - `damaged`: is called with each folder that is no run's, or whose config cannot be read, and why; such a folder is
      left out. Without it the first one is an error.
    """
    runs: list[Run] = []
    for config in sorted(root.glob("**/config.toml")):
        try:
            run = Run(config.parent)
            _check_names(run)
        except RunError as error:
            if damaged is None:
                raise
            damaged(config.parent, error)
        else:
            runs.append(run)
    return runs


def _check_names(run: Run) -> None:
    """Sees to it that a run says what it is of; the rest may be of another version, or of a cell that is not here."""
    for table, name, kind in (("task", "name", str), ("model", "cell", str), ("schedule", "seed", int)):
        values = run.config.get(table)
        if not isinstance(values, dict) or type(values.get(name)) is not kind:
            raise RunError(f"{run.path / 'config.toml'}: is not that of a run, it has no {table}.{name}")
