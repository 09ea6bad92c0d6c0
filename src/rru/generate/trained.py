"""A trained model, back from a run's folder or from an exported one."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rru import data, tasks
from rru.data.vocabulary import Vocabulary
from rru.experiments import presets
from rru.experiments.execute import VOCABULARY
from rru.experiments.schema import Config
from rru.training import Run, RunError
from rru.training.checkpoint import MODEL, unpack
from rru.training.files import MANIFEST, read_folder

CONFIG = "config.toml"
LEAST, MOST = 0.01, 100.0  # of temperatures: beyond them every draw is the likeliest, or any
_TOKENS = {"words": "words", "characters": "characters", "bytes": "bytes", "reviews": "words"}  # by kind of data
_COUNTS = ("num_layers", "relu_layers", "rounds")  # each of what these count has tensors of its own


@dataclass(frozen=True)
class Trained:
    """A model with its best weights, ready to be used, and what it was trained for.

    **Arguments:**

    - `path`: the folder it came from.
    - `config`: the run's settings.
    - `model`: in evaluation mode, on the CPU.
    - `vocabulary`: of its text, if it reads text.
    - `epoch`: after which its weights were kept; None where an exported folder does not say.
    - `result`: what came of the run; None if it has not ended.
    """

    path: Path
    config: Config
    model: tasks.Recurrent
    vocabulary: Vocabulary | None
    epoch: int | None
    result: Mapping[str, Any] | None

    @property
    def task(self) -> str:
        """The task's name."""
        return str(self.config["task"]["name"])

    @property
    def kind(self) -> str:
        """What it was trained on: `music`, `words`, `characters`, `bytes`, `reviews` or `images`."""
        return data.entry(self.task).kind

    def check_kind(self, *kinds: str, to: str) -> None:
        """Raises unless it is of one of these kinds; `to` says what for."""
        if self.kind not in kinds:
            known = ", ".join(name for name in tasks.task_names() if data.entry(name).kind in kinds)
            raise RunError(f"{self.path}: to {to}, a run must be of one of {known}; this one is of {self.task}")

    def checked(self, logits: Tensor) -> Tensor:
        """The logits, if they are numbers one can draw from."""
        if not logits.isfinite().all():
            raise RunError(f"{self.path}: its weights are of no use: what the model gives is not finite")
        return logits


def check_temperature(temperature: float) -> None:
    """Raises unless one can draw at this temperature."""
    if not LEAST <= temperature <= MOST:
        raise ValueError(f"temperature must be from {LEAST:g} to {MOST:g}, got {temperature}")


def load(place: Path | str) -> Trained:
    """A trained model.

    ```python
    trained = rru.load("runs/bach/rru/4b12cdd334f4")
    logits, state = trained.model(torch.zeros(20, 1, 88))  # (20, 1, 88)
    ```

    **Arguments:** `place`: a run's folder, whose best weights are taken, or a folder that `rru export` made.
    """
    path = Path(place)
    if (path / MODEL).is_file():
        return _from_export(path)
    run = Run(path)
    if not run.best_epochs:
        if (path / MANIFEST).is_file():
            raise RunError(f"{path}: was exported for other runtimes; rru reads a run, or an export as safetensors")
        raise RunError(f"{path}: has no weights to use yet, as no epoch of it was completed; `rru resume {path}`")
    epoch = run.best_epochs[-1]
    return _trained(path, run.config, run.best(epoch), epoch, run.result())


def _from_export(path: Path) -> Trained:
    files = read_folder(path)
    if missing := {CONFIG, MODEL} - set(files):
        raise RunError(f"{path}: is not a folder that `rru export` made, its manifest lacks {', '.join(missing)}")
    try:
        settings = tomllib.loads(files[CONFIG].decode())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path / CONFIG}: cannot be read ({error})") from error
    return _trained(path, settings, unpack(files[MODEL], path / MODEL), None, None)


def _trained(
    path: Path,
    settings: Mapping[str, Any],
    weights: dict[str, Tensor],
    epoch: int | None,
    result: Mapping[str, Any] | None,
) -> Trained:
    try:
        config = presets.checked(settings)
    except ValueError as error:
        raise RunError(f"{path / CONFIG}: {error}") from error
    vocabulary = Vocabulary.load(path / VOCABULARY) if (path / VOCABULARY).exists() else None
    model = _model(path, config, weights, vocabulary)
    return Trained(path, config, model.eval(), vocabulary, epoch, result)


def _model(path: Path, config: Config, weights: dict[str, Tensor], vocabulary: Vocabulary | None) -> tasks.Recurrent:
    """The model that settings describe, with its weights. Settings may ask for any size, so a sketch that takes no
    memory is made first: the model is only made if it is as large as the weights are."""
    of_model = dict(config["model"])
    cell, budget = of_model.pop("cell"), of_model.pop("budget")
    name, stateful = config["task"]["name"], config["task"].get("stateful", False)
    wanted, given = _TOKENS.get(data.entry(name).kind), None if vocabulary is None else vocabulary.kind
    if wanted != given:
        right, found = (f"of {kind}" if kind else "not there" for kind in (wanted, given))
        raise RunError(f"{path / VOCABULARY}: must be {right} for {name}, is {found}")
    tokens = None if vocabulary is None else len(vocabulary)

    def build() -> tasks.Recurrent:
        return tasks.model(name, cell, of_model, budget, tokens=tokens, stateful=stateful)

    try:
        for setting in _COUNTS:
            if of_model.get(setting, 0) > len(weights):
                raise ValueError(f"{setting} is {of_model[setting]}, of {len(weights)} tensors")
        with torch.device("meta"):
            _compare(build().state_dict(), weights)
        model = build()
        model.load_state_dict(weights)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise RunError(f"{path}: its weights are not those its settings describe: {reason}") from error
    return model


def _compare(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    for name in dict.fromkeys([*wanted, *given]):
        is_one, other = (_shape(tensors.get(name)) for tensors in (given, wanted))
        if is_one != other:
            raise ValueError(f"{name} is {is_one}, {other} would be right")


def _shape(tensor: Tensor | None) -> str:
    return "not there" if tensor is None else f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
