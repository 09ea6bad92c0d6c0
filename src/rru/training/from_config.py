"""Build task, model and optimiser from a config, and train or evaluate them in a run folder."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from rru import tasks
from rru.data import OwnData
from rru.files import FileError, write_file
from rru.settings import Config, toml
from rru.settings.tables import OptimiserSettings
from rru.tasks import Task
from rru.training.checkpoint import limited
from rru.training.denormals import denormals_flushed
from rru.training.distributed import Processes
from rru.training.errors import RunError
from rru.training.events import Ended, Watch
from rru.training.folder import Run
from rru.training.loop import train
from rru.training.own_code import check_own_code, write_own_code
from rru.training.radam import RAdam
from rru.training.refit import REFIT, check_scored, not_yet_ended, refit_config, refit_watch
from rru.training.result import Result
from rru.training.run_files import ABOUT_DATA, VOCABULARY, about_content, about_data, has_config
from rru.training.status import RunStatus

Place = Path | str | None


@dataclass(frozen=True)
class Assembled:
    """The `task`, `model` and `optimiser` built from a config, and the user's own data, if any."""

    task: Task
    model: nn.Module
    optimiser: torch.optim.Optimizer
    data: OwnData | None = None


def assemble(config: Config, data_dir: Place = None, device: str = "cpu") -> Assembled:
    """Build task, model and optimiser. The random initial weights are drawn with the seed `schedule.seed`.

    **Arguments:**

    - `config`: the settings, such as from `rru.settings.presets.load`.
    - `data_dir`: the data folder, as for `rru.data.load`.
    - `device`: the device to put the model on; raise ValueError if torch does not have it.
    """
    place = _device(device)
    task = tasks.make(config.task, data_dir, own=config.data)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.schedule.seed)
        model = task.model(config.model.cell, config.model.arguments, config.model.budget).to(place)
    return Assembled(task, model, optimiser_of(model, config.optimiser), config.data)


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


def optimiser_of(model: nn.Module, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """Build the optimiser of a model, with its gradient clipping."""
    parameters, betas, decay = list(model.parameters()), (settings.beta1, settings.beta2), settings.weight_decay or 0.0
    if settings.name == "radam":
        clip = settings.clip if settings.clipping == "adaptive" else None
        optimiser: torch.optim.Optimizer = RAdam(parameters, settings.lr, betas, settings.eps, clip=clip)
    elif settings.name == "torch-radam":
        optimiser = torch.optim.RAdam(
            parameters, settings.lr, betas, settings.eps, decay, decoupled_weight_decay=True, foreach=True
        )
    else:
        optimiser = torch.optim.AdamW(parameters, settings.lr, betas, settings.eps, decay, foreach=True)

    def clip_norm(*_: object) -> None:
        nn.utils.clip_grad_norm_(parameters, settings.clip)

    if settings.clipping == "norm":
        optimiser.register_step_pre_hook(clip_norm)
    return optimiser


def train_config(
    config: Config,
    folder: Path,
    *,
    data_dir: Place = None,
    device: str = "cpu",
    watch: Watch | None = None,
    stop: Callable[[], bool] = lambda: False,
    processes: Processes | None = None,
) -> Result:
    """Train a config in a folder; resume the run there if it has the same config id, else raise RunError.

    A resumed run keeps the logging and checkpoint intervals it was created with.

    **Arguments:**

    - `config`: the settings, such as from `rru.settings.presets.load`.
    - `folder`: the run folder, such as from `run_folder`.
    - `data_dir`, `device`: as for `assemble`.
    - `watch`, `stop`, `processes`: as for `rru.training.train`.
    """
    check_scored(config)
    processes = processes or Processes(device=device)
    run = _existing_run(folder, config)
    result = None if run is None else _ended(run)
    if not processes.first:
        watch = watch or (lambda event: None)
    with denormals_flushed():
        if result is None:
            parts = assemble(config, data_dir, processes.device)
            if processes.first:
                run = run or Run.create_or_open(folder, config)
                _write_companions(run, parts)
            processes.wait()  # until the folder exists
            run = run or Run(folder)
            result = train(
                parts.task, parts.model, parts.optimiser, run, not_yet_ended(watch), stop=stop, processes=processes
            )
        assert run is not None
        if (whole := refit_config(config, result)) is not None:
            refitted = _refit(whole, run, data_dir=data_dir, watch=watch, stop=stop, processes=processes)
            if refitted.status == RunStatus.STOPPED:
                result = replace(result, status=RunStatus.STOPPED, reason="on request, in training anew on all data")
    if watch is not None:
        watch(Ended(result))
    return result


def _refit(
    config: Config,
    run: Run,
    *,
    data_dir: Place,
    watch: Watch | None,
    stop: Callable[[], bool],
    processes: Processes,
) -> Result:
    """Train a config on all data in the folder of the run that says for how long, unless that has ended."""
    folder = run.path / REFIT
    within = _existing_run(folder, config)
    if within is not None and (ended := _ended(within)) is not None:
        return ended
    parts = assemble(config, data_dir, processes.device)
    parts.task.inherit(parts.model, run.best(run.best_epochs[-1]))
    tell = refit_watch(watch, config.schedule.last_epoch or config.schedule.epochs)
    with run.locked() if processes.first else nullcontext():  # for who looks at the run, not into its folders
        if processes.first:
            within = within or Run.create_or_open(folder, config)
        processes.wait()
        whole = within or Run(folder)
        return train(parts.task, parts.model, parts.optimiser, whole, tell, stop=stop, processes=processes)


def evaluate(folder: Path, split: str, *, data_dir: Place = None, device: str = "cpu") -> dict[str, float]:
    """Return all scores of a run's best weights on a split; raise RunError if the run has no best weights yet.

    **Arguments:**

    - `folder`: the run folder.
    - `split`: `train`, `valid` or `test`.
    - `data_dir`, `device`: as for `assemble`.
    """
    run = Run(folder)
    if not run.best_epochs:
        raise RunError(f"{folder}: has no weights yet: no epoch has finished")
    check_scored(run.config)
    check_own_code(run.path, run.config)
    with denormals_flushed():  # as in training
        parts = assemble(run.config, data_dir, device)
        parts.model.load_state_dict(run.best(run.best_epochs[-1], limited(parts.model.state_dict())))
        return parts.task.evaluate(parts.model, split)


def _ended(run: Run) -> Result | None:
    """Return the result of a run that has ended; needs neither its data nor permission to write."""
    result = run.result()
    if result is None:
        return None
    with suppress(FileError, OSError), run.locked():
        run.checkpoints.clear()  # in case it was killed before it could remove them
    return result


def _write_companions(run: Run, parts: Assembled) -> None:
    """Write the files needed to interpret the weights: vocabulary, facts about the user's data, user's code."""
    vocabulary = getattr(parts.task, "vocabulary", None)
    if vocabulary is not None and not (run.path / VOCABULARY).exists():
        vocabulary.save(run.path / VOCABULARY)
    if parts.data is not None and (run.path / ABOUT_DATA).exists():
        _check_data(run, parts.data)
    elif parts.data is not None:
        try:
            content = about_content(parts.data.facts.fields())
        except ValueError as error:
            raise RunError(f"{parts.data.path}: has {error}") from error
        write_file(run.path / ABOUT_DATA, content)
    write_own_code(run.path, run.config)


def _existing_run(folder: Path, config: Config) -> Run | None:
    """Open the run in a folder; None if there is none. Raise RunError if it has another config or cell source."""
    if not has_config(folder):
        return None
    run = Run(folder)
    if run.config.id != config.id:
        differ = toml.differences(run.config.tables(), config.tables())
        raise RunError(f"{folder}: holds a run with other settings ({differ}); choose another folder")
    check_own_code(run.path, run.config)
    return run


def _check_data(run: Run, data: OwnData) -> None:
    """Check that the user's data is divided as when the run began: an earlier version may have done it otherwise."""
    counts, now = about_data(run.path).get("statistics"), data.statistics
    if not isinstance(counts, dict) or any(count != now.get(name) for name, count in counts.items()):
        raise RunError(
            f"{run.path}: an earlier version of rru split its data differently; train it again in another folder"
        )
