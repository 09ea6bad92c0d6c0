"""Loads trained models from run folders or exported folders."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rru import data, tasks
from rru.data.own import facts
from rru.data.vocabulary import Vocabulary
from rru.files import MANIFEST, read_file, read_folder
from rru.settings import Config
from rru.training import Result, Run, RunError
from rru.training.checkpoint import MODEL, declared, unpack
from rru.training.run_files import (
    ABOUT_DATA,
    CONFIG,
    EXPORT_CONFIG,
    VOCABULARY,
    about_data,
    linked_file,
    read_object,
    read_tables,
)

OTHER_LIMIT = 64 << 20  # bytes of a file beside the weights
Check = Callable[[Path], None]
LEAST, MOST = 0.01, 100.0  # temperatures: beyond, sampling is practically greedy or uniform
_TOKENS = {  # kinds of vocabularies by data
    "words": ("words", "words and punctuation"),
    "characters": ("characters", "code points"),
    "bytes": ("bytes",),
    "reviews": ("words",),
    "texts": ("words",),
}
_USE = {  # by kind of data: what it is, and the command that uses a model of it
    "music": ("music", "compose"),
    **dict.fromkeys(("words", "characters", "bytes"), ("text", "write")),
    **dict.fromkeys(("reviews", "texts"), ("labelled texts", "classify")),
    "sequences": ("labelled sequences", "classify"),
    "images": ("images", "classify"),
    "series": ("series", "forecast"),
}
_COUNTS = ("num_layers", "relu_layers", "rounds")  # at most the number of tensors: each layer or round has its own


@dataclass(frozen=True)
class Trained:
    """A model with its best weights, ready to use, and the settings and result of its run.

    **Arguments:**

    - `path`: the folder it was loaded from.
    - `config`: the run's settings.
    - `model`: the model, in evaluation mode, on the CPU.
    - `vocabulary`: its vocabulary; None if it does not read text.
    - `about`: what is known about the user's own data it was trained on; empty for a data set of the catalogue.
    - `epoch`: the epoch its weights are from; None for an exported folder.
    - `result`: its result; None if the run has not ended, or for an exported folder.
    """

    path: Path
    config: Config
    model: tasks.Recurrent
    vocabulary: Vocabulary | None
    about: Mapping[str, Any]
    epoch: int | None
    result: Result | None

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.config.task.name

    @property
    def kind(self) -> str:
        """The kind of data it was trained on: `music`, `words`, `characters`, `bytes`, `reviews` or `images`."""
        return self.config.kind

    def check_kind(self, *kinds: str, to: str) -> None:
        """Raises RunError unless it was trained on one of these kinds; `to` names the purpose, for the message."""
        if self.kind not in kinds:
            names = [name for name in tasks.task_names() if data.data_set(name).kind in kinds]
            own = " or ".join(dict.fromkeys(_USE[kind][0] for kind in kinds))
            known = f"{', '.join(names)} or your own {own}" if names else own
            what, command = _USE[self.kind]
            this = f"this is a run of {self.task}: {what}, for `rru {command}`"
            raise RunError(f"{self.path}: `{to}` needs a run of {known}; {this}")

    def checked(self, logits: Tensor) -> Tensor:
        """Returns the logits; raises RunError if one is not finite."""
        if not logits.isfinite().all():
            raise RunError(f"{self.path}: the model's outputs are not finite; its weights cannot be used")
        return logits


def check_temperature(temperature: float) -> None:
    """Raises ValueError if the temperature is out of range."""
    if not LEAST <= temperature <= MOST:
        raise ValueError(f"temperature must be from {LEAST:g} to {MOST:g}, got {temperature}")


def load(place: Path | str) -> Trained:
    """Loads a trained model; raises RunError if the folder has no usable weights.

    ```python
    trained = rru.load("runs/bach/rru/4b12cdd334f4")
    logits, state = trained.model(torch.zeros(20, 1, 88))  # (20, 1, 88)
    ```

    **Arguments:** `place`: a run folder, whose best weights are loaded, or a safetensors folder from `rru export`,
    local or downloaded from the Hugging Face Hub.
    """
    path = Path(place)
    if (path / MODEL).is_file():
        return _from_export(path) if (path / EXPORT_CONFIG).is_file() else _from_older_export(path)
    if (path / EXPORT_CONFIG).is_file() or (path / MANIFEST).is_file():
        raise RunError(f"{path}: was exported for other runtimes; rru reads a run, or an export as safetensors")
    run = Run(path)
    if not run.best_epochs:
        raise RunError(f"{path}: has no weights yet: no epoch has finished; continue with `rru resume {path}`")
    epoch = run.best_epochs[-1]
    if (vocabulary := path / VOCABULARY).is_symlink():
        raise RunError(f"{vocabulary}: must be a file, is a link")
    return _trained(path, run.config, lambda check: run.best(epoch, _each(check)), epoch, run.result())


def _from_export(path: Path) -> Trained:
    """Loads config.json and model.safetensors. They may be symlinks, as in downloads from the Hub."""
    config, model = path / EXPORT_CONFIG, path / MODEL
    try:
        settings = Config.of(read_object(linked_file(config)) or {})
    except ValueError as error:
        raise RunError(f"{config}: cannot be read ({error})") from error

    def read(check: Check) -> dict[str, Tensor]:
        check(linked_file(model))
        return unpack(read_file(linked_file(model), sys.maxsize), model)

    return _trained(path, settings, read, linked=True)


def _from_older_export(path: Path) -> Trained:
    """Loads an export of version 0.1, which has config.toml and a manifest instead of config.json."""
    try:
        config = Config.of(read_tables(path))
    except ValueError as error:
        raise RunError(f"{path / CONFIG}: cannot be read ({error})") from error

    def read(check: Check) -> dict[str, Tensor]:
        files = read_folder(path, _each(check))
        if missing := {CONFIG, MODEL} - set(files):
            raise RunError(f"{path}: is not a folder that `rru export` made, its manifest lacks {', '.join(missing)}")
        return unpack(files[MODEL], path / MODEL)

    return _trained(path, config, read)


def _each(check: Check) -> Check:
    """Returns a check for `read_folder`, from one for the weights. Other files in the folder must be small."""

    def each(file: Path) -> None:
        if file.name == MODEL:
            check(file)
        elif (size := file.lstat().st_size) > OTHER_LIMIT:
            raise ValueError(f"{file.name} has {size} bytes; at most {OTHER_LIMIT} are allowed")

    return each


def _trained(
    path: Path,
    config: Config,
    read: Callable[[Check], dict[str, Tensor]],
    epoch: int | None = None,
    result: Result | None = None,
    *,
    linked: bool = False,
) -> Trained:
    vocabulary = Vocabulary.load(path / VOCABULARY) if (path / VOCABULARY).exists() else None
    about = about_data(path, linked=linked) if config.data else {}
    try:
        facts.check(config.kind, about)
    except ValueError as error:
        raise RunError(f"{path / ABOUT_DATA}: is not that of a model on {config.kind} ({error})") from error
    model = _model(path, config, read, vocabulary, about)
    return Trained(path, config, model.eval(), vocabulary, about, epoch, result)


def _model(
    path: Path,
    config: Config,
    read: Callable[[Check], dict[str, Tensor]],
    vocabulary: Vocabulary | None,
    about: Mapping[str, Any],
) -> tasks.Recurrent:
    """Builds the model from its settings and loads its weights, which `read` returns.

    Untrusted settings and weights may have any size. So it first builds the model on the meta device, which takes no
    memory, and compares its shapes with those in the header of the weights. Only then it reads them.
    """
    arguments = config.model.arguments
    wanted, given = _TOKENS.get(config.kind, (None,)), None if vocabulary is None else vocabulary.kind
    if given not in wanted:
        right, found = (f"of {kind}" if kind else "not there" for kind in (wanted[0], given))
        raise RunError(f"{path / VOCABULARY}: must be {right} for {config.task.name}, is {found}")
    tokens = None if vocabulary is None else len(vocabulary)

    def build() -> tasks.Recurrent:
        cell, budget = config.model.cell, config.model.budget
        return tasks.model(
            config.kind, cell, arguments, budget, tokens=tokens, about=about, **config.task.model_arguments
        )

    def check(file: Path) -> None:
        stored = declared(file)
        for setting in _COUNTS:
            if arguments.get(setting, 0) > len(stored):
                raise ValueError(f"{setting} is {arguments[setting]}, of {len(stored)} tensors")
        with torch.device("meta"):
            _compare({each: _shape(tensor) for each, tensor in build().state_dict().items()}, stored)

    try:
        weights = read(check)
        model = build()
        model.load_state_dict(weights)
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise RunError(f"{path}: its weights do not fit its settings: {reason}") from error
    return model


def _compare(wanted: Mapping[str, str], given: Mapping[str, str]) -> None:
    for name in dict.fromkeys([*wanted, *given]):
        is_one, other = (shapes.get(name, "not there") for shapes in (given, wanted))
        if is_one != other:
            raise ValueError(f"{name} is {is_one}, should be {other}")


def _shape(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
