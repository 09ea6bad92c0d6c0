"""`rru.fit`: train on data, or train any model on batches of the user's own, to a run folder."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn

from rru.data import OwnData
from rru.inference.trained import Trained, load
from rru.settings import presets, toml
from rru.settings.config import TRAINING_SETTINGS, Tables
from rru.settings.tables import OptimiserSettings, Schedule
from rru.tasks import Batch, Batches, LayerState, Metric, Task, TaskSettings
from rru.training import Result, Run, RunError, Watch, run_folder, train_config
from rru.training import train as run_loop
from rru.training.from_config import optimiser_of
from rru.training.run_files import OWN_MODEL, has_config

Score = Callable[[Any, Any], Tensor]
Changes = Mapping[str, object]
NAME = "own-model"
DEFAULTS: Changes = {
    "optimiser.name": "radam",
    "optimiser.lr": 0.003,
    "optimiser.beta1": 0.9,
    "optimiser.beta2": 0.999,
    "optimiser.eps": 1e-7,
    "optimiser.clipping": "adaptive",
    "optimiser.clip": 5.0,
    "schedule.patience": 10,
    "schedule.epochs": 100,
    "schedule.seed": 0,
}


@dataclass(frozen=True)
class ModelConfig:
    """The settings of a run of a user's own model: only how it is trained."""

    optimiser: OptimiserSettings
    schedule: Schedule
    model: str = ""
    metric: str = "loss"

    @classmethod
    def of(cls, changes: Changes, model: str = "", metric: str = "loss") -> "ModelConfig":
        """Return the default settings with some changed, by full name; raise ValueError for a wrong one."""
        known = TRAINING_SETTINGS
        values: Tables = {"optimiser": {}, "schedule": {}}
        for name, value in {**DEFAULTS, **changes}.items():
            if name not in known:
                raise ValueError(f"settings of a model must be among {', '.join(known)}; got {name!r}")
            values[known[name].table][known[name].declared.name] = known[name].check(value)
        return cls(OptimiserSettings(**values["optimiser"]), Schedule(**values["schedule"]), model, metric)

    def tables(self) -> Tables:
        """Return plain tables, as stored in config.toml."""
        plain = {"optimiser": asdict(self.optimiser), "schedule": asdict(self.schedule)}
        given = {
            table: {name: value for name, value in some.items() if value is not None} for table, some in plain.items()
        }
        return {"task": {"name": NAME}, OWN_MODEL: {"metric": self.metric}, "model": {"cell": self.model}, **given}


class ModelRun(Run):
    """The folder of a run of a user's own model, known by the table `own_model` of its config.toml."""

    @functools.cached_property
    def config(self) -> Any:
        """The settings of training."""
        given = {
            f"{table}.{name}": value
            for table in ("optimiser", "schedule")
            for name, value in self.tables[table].items()
        }
        return ModelConfig.of(given)


class _Epoch(Batches):
    """The batches of an epoch, which must be taken in order. Their randomness depends on the seed alone."""

    def __init__(self, loader: Iterable[object], seed: int) -> None:
        super().__init__(len(loader), self._take)  # type: ignore[arg-type]
        self.loader = loader
        self.batches: Iterator[object] | None = None
        self.next, self.seed = 0, seed
        self.random: Tensor | None = None

    def _take(self, index: int) -> Batch:
        with torch.random.fork_rng(devices=[]):  # a loader draws from torch's default generator
            if self.batches is None or index < self.next:
                torch.manual_seed(self.seed)
                generator = getattr(self.loader, "generator", None)
                if isinstance(generator, torch.Generator):
                    generator.manual_seed(self.seed)
                self.batches, self.next = iter(self.loader), 0
            elif self.random is not None:
                torch.set_rng_state(self.random)
            (batch,) = itertools.islice(self.batches, index - self.next, index - self.next + 1)
            self.next, self.random = index + 1, torch.get_rng_state()
        return _pair(batch)


def _pair(batch: object) -> Batch:
    """Return a user's batch as that of a task; inputs and targets may be anything that the model and the loss take."""
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise TypeError(f"batches must be pairs (inputs, targets), got {type(batch).__name__}")
    inputs, targets = batch
    return Batch(inputs, targets, None, fresh=True, tokens=len(targets) if isinstance(targets, Sized) else 1)


class _ModelTask(Task):
    """A user's batches and loss, as a task."""

    def __init__(self, loaders: Mapping[str, Iterable[object]], loss: Score, metric: Score | None) -> None:
        super().__init__(None, TaskSettings(name=NAME, context=1, batch_size=1))
        self.loaders, self.score, self.own_metric = loaders, loss, metric
        self.metric = Metric("metric", "metric") if metric else Metric("loss", "loss")
        for split, loader in loaders.items():
            if not isinstance(loader, Sized) or not len(loader):
                raise TypeError(f"{split} must be batches with a length above 0, such as a DataLoader; got {loader!r}")

    def steps_per_epoch(self) -> int:
        return len(self.loaders["train"])  # type: ignore[arg-type]

    def epoch(self, generator: torch.Generator) -> Batches:
        return _Epoch(self.loaders["train"], int(torch.randint(2**62, (), generator=generator)))

    def loss(self, model: nn.Module, batch: Batch, state: LayerState = None) -> tuple[Tensor, LayerState]:
        return self.score(model(_moved(batch.inputs, model)), _moved(batch.targets, model)), None

    def _loss(self, model: nn.Module, batch: Batch, state: LayerState) -> tuple[Tensor, LayerState]:
        return self.loss(model, batch)

    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        if split not in self.loaders:
            return {}
        totals, count = {"loss": 0.0, "metric": 0.0}, 0
        for batch in map(_pair, self.loaders[split]):
            outputs, targets = model(_moved(batch.inputs, model)), _moved(batch.targets, model)
            totals["loss"] += float(self.score(outputs, targets)) * batch.tokens
            if self.own_metric is not None:
                totals["metric"] += float(self.own_metric(outputs, targets)) * batch.tokens
            count += batch.tokens
        names = ("metric", "loss") if self.own_metric else ("loss",)
        return {name: totals[name] / count for name in names}


def _moved(value: Any, model: nn.Module) -> Any:
    """Move a tensor to the device of a model; leave anything else as it is."""
    return value.to(next(model.parameters()).device) if isinstance(value, Tensor) else value


def _fit_model(
    model: nn.Module, task: _ModelTask, folder: Path, settings: Changes, watch: Watch | None, stop: Callable[[], bool]
) -> Result:
    """Train a model in a run folder, from the start or from where it stopped."""
    config = ModelConfig.of(settings, type(model).__name__, task.metric.key)
    if has_config(folder):
        run = ModelRun(folder)
        if differ := toml.differences(run.tables, config.tables()):
            raise RunError(f"{folder}: holds a run with other settings ({differ}); choose another folder")
    else:
        run = ModelRun.create(folder, config)
    return run_loop(task, model, optimiser_of(model, config.optimiser), run, watch, stop=stop)


@overload
def fit(
    task: OwnData | str,
    *,
    cell: str = "rru",
    preset: str | None = None,
    settings: Changes | None = None,
    seed: int = 0,
    folder: Path | str | None = None,
    data_dir: Path | str | None = None,
    device: str = "cpu",
    watch: Watch | None = None,
    stop: Callable[[], bool] = ...,
) -> Trained: ...


@overload
def fit(
    task: nn.Module,
    train: Iterable[object],
    valid: Iterable[object],
    *,
    loss: Score,
    metric: Score | None = None,
    test: Iterable[object] | None = None,
    folder: Path | str | None = None,
    settings: Changes | None = None,
    seed: int = 0,
    watch: Watch | None = None,
    stop: Callable[[], bool] = ...,
) -> Result: ...


def fit(
    task: OwnData | str | nn.Module,
    train: Iterable[object] | None = None,
    valid: Iterable[object] | None = None,
    *,
    cell: str = "rru",
    preset: str | None = None,
    settings: Changes | None = None,
    seed: int = 0,
    folder: Path | str | None = None,
    data_dir: Path | str | None = None,
    device: str = "cpu",
    loss: Score | None = None,
    metric: Score | None = None,
    test: Iterable[object] | None = None,
    watch: Watch | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Trained | Result:
    """Train on your own data, or train your own model. Killed or stopped, the same call continues.

    ```
    trained = rru.fit(rru.data.from_text("novel.txt"), cell="rru")
    result = rru.fit(model, train_loader, valid_loader, loss=nn.functional.cross_entropy, folder="run")
    ```

    **Arguments** for data:

    - `task`: own data, from `rru.data.from_text` and so on, or the name of a data set, such as `bach`.
    - `cell`, `preset`: as for `rru train`.
    - `data_dir`, `device`: as for `rru train`.

    **Arguments** for a model:

    - `task`: the model. At the end it has the weights with the best validation.
    - `train`, `valid`, `test`: `DataLoader`s, or other iterables with a length, of pairs (inputs, targets). Without
      `test` the result has no test scores.
    - `loss`: `loss(model(inputs), targets)` is a scalar to minimise.
    - `metric`: the same, to choose the best epoch by; lower is better. Default: `loss`.

    **Arguments** for both:

    - `settings`: changes to the settings, such as `{"optimiser.lr": 0.01, "schedule.epochs": 20}`.
    - `seed`: random seed.
    - `folder`: the run folder. Default: below `runs`, named by the settings; a model needs one.
    - `watch`, `stop`: as for `rru.training.train`.

    **Returns:** for data, the trained model, as `rru.load` returns it. For a model, the result.
    """
    changes = {"schedule.seed": seed, **(settings or {})}
    if isinstance(task, nn.Module):
        if train is None or valid is None or loss is None or folder is None:
            raise TypeError("fit of a model needs train and valid batches, loss and folder")
        loaders = {"train": train, "valid": valid} | ({"test": test} if test else {})
        return _fit_model(task, _ModelTask(loaders, loss, metric), Path(folder), changes, watch, stop)
    if train is not None or valid is not None or loss is not None or metric is not None:
        raise TypeError("train, valid, loss and metric are only for a model; data has its own")
    config = presets.load(task, cell, preset).changed(changes)
    place = Path(folder) if folder is not None else run_folder(config, Path("runs"))
    result = train_config(config, place, data_dir=data_dir, device=device, watch=watch, stop=stop)
    if not result.best_epoch:
        raise RunError(f"{place}: has no trained weights: {result.status}, {result.reason}")
    return load(place)
