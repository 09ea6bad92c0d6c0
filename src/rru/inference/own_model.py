"""Train any model on batches of the user's own, in a run folder."""

import functools
import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from rru.inference import showing
from rru.inference.fingerprints import fingerprint
from rru.inference.history import HasRun
from rru.nn import count_parameters
from rru.settings import presets, toml
from rru.settings.config import TRAINING_SETTINGS, Tables
from rru.settings.tables import OptimiserSettings, Schedule
from rru.tasks import Batch, Batches, LayerState, Metric, Task, TaskSettings, evaluating
from rru.training import Result, Run, RunError, Watch, train
from rru.training.from_config import optimiser_of
from rru.training.run_files import CONFIG, ENVIRONMENT, FINGERPRINT, METRICS, OWN_MODEL, has_config

Score = Callable[[Any, Any], Tensor]
Changes = Mapping[str, object]
NAME = "own-model"
OTHER = {"functions": "another loss or metric", "modules": "another model", "weights": "another model"}
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
        """Return the default settings with some changed, by full or short name; raise ValueError for a wrong one."""
        values: Tables = {"optimiser": {}, "schedule": {}}
        chosen = presets.settings_by_name(changes, TRAINING_SETTINGS, "a model of your own")
        for name, value in {**DEFAULTS, **chosen}.items():
            table, _, key = name.partition(".")
            if value is not None:
                values[table][key] = value
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

    def check(self, config: ModelConfig, training: Tables) -> None:
        """Raise RunError, naming what differs, unless the folder holds a run of this training."""
        known = self.fingerprint()
        before = presets.merged(ModelConfig.of({}).tables(), self.tables)  # its version may not have had all settings
        differences, other = toml.differences(before, config.tables()), "other settings"
        if not differences:
            tables = [table for table in (*known, *training) if known.get(table) != training.get(table)]
            differences = toml.differences(known, training)
            other = " and ".join(dict.fromkeys(OTHER.get(table, "other data") for table in tables))
        if differences:
            advice = "choose another folder, or remove this one to train again"
            raise RunError(f"{self.path}: holds a run with {other} ({differences}); {advice}")

    def discard_unless_begun(self) -> bool:
        """Remove the run from its folder if it has nothing to lose: no step that it could go on from.

        Other files in the folder stay. Return whether it was removed: not if another process trains it.
        """
        try:
            with self.locked():
                if self._begun:
                    return False
                for name in (CONFIG, FINGERPRINT, ENVIRONMENT, METRICS):  # config.toml marks the folder as a run
                    (self.path / name).unlink(missing_ok=True)
                for name in ("checkpoint", "best"):
                    shutil.rmtree(self.path / name, ignore_errors=True)
        except RunError:  # locked or damaged
            return False
        with suppress(OSError):  # the folder may have other files
            (self.path / "lock").unlink(missing_ok=True)
            self.path.rmdir()
        return True

    @property
    def _begun(self) -> bool:
        """Whether it has weights of an epoch, or a checkpoint after a step."""
        if self.best_epochs or self.result() is not None:
            return True
        checkpoint, _ = self.checkpoints.load()
        progress = {} if checkpoint is None else checkpoint.state.get("progress", {})
        return not isinstance(progress, dict) or bool(progress.get("step"))


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


class ModelTask(Task):
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


@dataclass(frozen=True, repr=False)
class FittedModel(HasRun, Result):
    """A model of your own after training, and the result of its run, whose fields it has.

    **Arguments:**

    - `path`: the folder of the run.
    - `model`: the model, with the weights of the best epoch, unless training was stopped.
    - `task`: the loss and the metric.
    """

    path: Path
    model: nn.Module
    task: ModelTask

    @property
    def result(self) -> Result:
        """The result alone."""
        return Result(**_fields(self))

    def predict(self, inputs: Any) -> Any:
        """Return what the model gives for inputs, in evaluation mode and without gradients."""
        with evaluating(self.model):
            return self.model(_moved(inputs, self.model))

    def evaluate(self, batches: Iterable[object]) -> dict[str, float]:
        """Return the loss, and the metric if there is one, on other batches, such as a `DataLoader`."""
        return ModelTask({"test": batches}, self.task.score, self.task.own_metric).evaluate(self.model, "test")

    def __getattr__(self, name: str) -> NoReturn:
        has = "predict, evaluate, history and plot, its model and its result"
        raise AttributeError(f"a model of your own has no {name!r}; it has {has}")

    def __repr__(self) -> str:
        what = f"{type(self.model).__name__}, {count_parameters(self.model):,} parameters"
        scores = "; ".join(f"{name} {text}" for name, text in showing.training(self.result).items())
        return f"<FittedModel {what}; {scores}; {self.path}>"


def fit_model(
    model: nn.Module, task: ModelTask, folder: Path, settings: Changes, watch: Watch, stop: Callable[[], bool]
) -> FittedModel:
    """Train a model in a run folder, from the start or from where it stopped.

    Raise RunError if the folder has a run with other settings, another model, loss or data; see `fingerprints`. A run
    that fails before its first checkpoint with a step leaves nothing behind, since it may fail because of these.
    """
    config = ModelConfig.of(settings, type(model).__name__, task.metric.key)
    training = fingerprint(model, {"loss": task.score, "metric": task.own_metric}, task.loaders)
    run = _run(folder, config, training)
    try:
        result = train(task, model, optimiser_of(model, config.optimiser), run, watch, stop=stop)
    except Exception:
        run.discard_unless_begun()
        raise
    return FittedModel(**_fields(result), path=folder, model=model, task=task)


def _run(folder: Path, config: ModelConfig, training: Tables) -> ModelRun:
    """Return the run in a folder, or a new one; another run is replaced if it never made a step."""
    if has_config(folder):
        run = ModelRun(folder)
        try:
            run.check(config, training)
        except RunError:
            if not run.discard_unless_begun():
                raise
        else:
            return run
    return ModelRun.create(folder, config, training)


def _fields(result: Result) -> dict[str, Any]:
    return {each.name: getattr(result, each.name) for each in fields(Result)}
