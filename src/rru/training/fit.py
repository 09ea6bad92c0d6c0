"""Trains any model on batches of a user's own: the loop of `rru train`, without a task of rru."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rru.settings import toml
from rru.settings.config import common_settings
from rru.settings.tables import OptimiserSettings, Schedule
from rru.tasks import Metric, Task
from rru.training.errors import RunError
from rru.training.events import Watch
from rru.training.folder import Run
from rru.training.from_config import optimiser_of
from rru.training.loop import train
from rru.training.result import Result
from rru.training.run_files import OWN_MODEL, has_config

Score = Callable[[Any, Any], Tensor]
NAME = "own-model"
DEFAULTS: dict[str, Any] = {
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
    def of(cls, changes: Mapping[str, Any], model: str = "", metric: str = "loss") -> "ModelConfig":
        """Returns the default settings with some changed, by full name; raises ValueError for a wrong one."""
        known = {name: each for name, each in common_settings().items() if each.table in ("optimiser", "schedule")}
        values: dict[str, dict[str, Any]] = {"optimiser": {}, "schedule": {}}
        for name, value in {**DEFAULTS, **changes}.items():
            if name not in known:
                raise ValueError(f"settings of a model must be among {', '.join(known)}; got {name!r}")
            values[known[name].table][known[name].declared.name] = known[name].check(value)
        return cls(OptimiserSettings(**values["optimiser"]), Schedule(**values["schedule"]), model, metric)

    def tables(self) -> dict[str, dict[str, Any]]:
        """Returns plain tables, as stored in config.toml."""
        plain = {"optimiser": asdict(self.optimiser), "schedule": asdict(self.schedule)}
        given = {table: {name: one for name, one in some.items() if one is not None} for table, some in plain.items()}
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


@dataclass(frozen=True)
class _Batch:
    """A batch of the user: `inputs` and `targets`."""

    inputs: Any
    targets: Any
    fresh: bool = True

    @property
    def tokens(self) -> int:
        """The number of items."""
        return len(self.targets) if isinstance(self.targets, Sized) else 1


class _Epoch:
    """The batches of an epoch, which must be taken in order. Their randomness depends on the seed alone."""

    def __init__(self, loader: Iterable[Any], seed: int) -> None:
        self.loader, self.count = loader, len(loader)  # type: ignore[arg-type]
        self.batches: Iterator[Any] | None = None
        self.next, self.seed = 0, seed
        self.random: Tensor | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> _Batch:
        with torch.random.fork_rng(devices=[]):  # a loader draws from torch's default generator
            if self.batches is None or index < self.next:
                torch.manual_seed(self.seed)
                own = getattr(self.loader, "generator", None)
                if isinstance(own, torch.Generator):
                    own.manual_seed(self.seed)
                self.batches, self.next = iter(self.loader), 0
            elif self.random is not None:
                torch.set_rng_state(self.random)
            (batch,) = itertools.islice(self.batches, index - self.next, index - self.next + 1)
            self.next, self.random = index + 1, torch.get_rng_state()
        return _pair(batch)


def _pair(batch: Any) -> _Batch:
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise TypeError(f"batches must be pairs (inputs, targets), got {type(batch).__name__}")
    return _Batch(*batch)


class _ModelTask(Task):
    """A user's batches and loss, as a task."""

    def __init__(self, loaders: Mapping[str, Iterable[Any]], loss: Score, metric: Score | None) -> None:
        super().__init__(NAME, 1, 1)
        self.loaders, self.score, self.own_metric = loaders, loss, metric
        self.metric = Metric("metric", "metric") if metric else Metric("loss", "loss")
        for split, loader in loaders.items():
            if not isinstance(loader, Sized) or not len(loader):
                raise TypeError(f"{split} must be batches with a length above 0, such as a DataLoader; got {loader!r}")

    def model(self, cell: str, cell_options: Mapping[str, Any], budget: int) -> nn.Module:
        raise TypeError("the model is the user's own")

    def steps_per_epoch(self) -> int:
        return len(self.loaders["train"])  # type: ignore[arg-type]

    def epoch(self, generator: torch.Generator) -> Any:
        return _Epoch(self.loaders["train"], int(torch.randint(2**62, (), generator=generator)))

    def loss(self, model: nn.Module, batch: Any, state: Any = None) -> tuple[Tensor, Any]:
        return self.score(model(_moved(batch.inputs, model)), _moved(batch.targets, model)), None

    def _loss(self, model: nn.Module, batch: Any, state: Any) -> tuple[Tensor, Any]:
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
    """Moves a tensor to the device of a model; leaves anything else as it is."""
    return value.to(next(model.parameters()).device) if isinstance(value, Tensor) else value


def fit_model(
    model: nn.Module,
    train_batches: Iterable[Any],
    valid_batches: Iterable[Any],
    test_batches: Iterable[Any] | None = None,
    *,
    loss: Score,
    metric: Score | None = None,
    folder: Path,
    settings: Mapping[str, Any],
    watch: Watch | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Trains a model in a run folder, from the start or from where it stopped; see `rru.fit`."""
    loaders = {"train": train_batches, "valid": valid_batches} | ({"test": test_batches} if test_batches else {})
    task = _ModelTask(loaders, loss, metric)
    config = ModelConfig.of(settings, type(model).__name__, task.metric.key)
    if has_config(folder):
        run = ModelRun(folder)
        if differ := toml.differences(run.tables, config.tables()):
            raise RunError(f"{folder}: holds a run with other settings ({differ}); choose another folder")
    else:
        run = ModelRun.create(folder, config)
    return train(task, model, optimiser_of(model, config.optimiser), run, watch, stop=stop)
