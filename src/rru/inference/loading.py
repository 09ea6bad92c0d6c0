"""Load trained models from run folders or exported folders."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from rru import tasks
from rru.data.vocabulary import Vocabulary
from rru.files import MANIFEST, read_file, read_folder
from rru.inference.trained import Trained
from rru.kinds import TrainedOn, kind_of
from rru.settings import Config
from rru.training import Result, Run, RunError, named_run
from rru.training.checkpoint import MODEL, declared, unpack
from rru.training.own_code import missing_code
from rru.training.refit import weights_run
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
_COUNTS = ("num_layers", "relu_layers", "rounds")  # at most the number of tensors: each layer or round has its own


def load(place: Path | str) -> Trained:
    """Load a trained model; raise RunError if the folder has no usable weights.

    ```python
    trained = rru.load("runs/bach/rru/4b12cdd334f4")
    logits, state = trained.model(torch.zeros(20, 1, 88))  # (20, 1, 88)
    ```

    **Arguments:** `place`: a run folder, whose best weights are loaded; the id of a run below `runs`, or its first
    digits; `latest`, the newest of these runs; or a safetensors folder from `rru export`, local or downloaded from the
    Hugging Face Hub.
    """
    path = Path(place).expanduser()
    if not path.exists():
        path = named_run(str(place))
    if (path / MODEL).is_file():
        return _from_export(path) if (path / EXPORT_CONFIG).is_file() else _from_older_export(path)
    if (path / EXPORT_CONFIG).is_file() or (path / MANIFEST).is_file():
        raise RunError(f"{path}: was exported for other runtimes; rru reads a run, or an export as safetensors")
    run = Run(path)
    if not run.best_epochs:
        raise RunError(f"{path}: has no weights yet: no epoch has finished; continue with `rru train {path}`")
    epoch = run.best_epochs[-1]
    if (vocabulary := path / VOCABULARY).is_symlink():
        raise RunError(f"{vocabulary}: must be a file, is a link")
    weights = weights_run(run)
    last = weights.best_epochs[-1]
    return _trained(path, run.config, lambda check: weights.best(last, _each(check)), epoch, run.result())


def _from_export(path: Path) -> Trained:
    """Load config.json and model.safetensors. They may be symlinks, as in downloads from the Hub."""
    config, model = path / EXPORT_CONFIG, path / MODEL
    tables = read_object(linked_file(config)) or {}
    try:
        settings = Config.of(tables)
    except ValueError as error:
        raise RunError(missing_code(path, tables) or f"{config}: cannot be read ({error})") from error

    def read(check: Check) -> dict[str, Tensor]:
        check(linked_file(model))
        return unpack(read_file(linked_file(model), sys.maxsize), model)

    return _trained(path, settings, read, linked=True)


def _from_older_export(path: Path) -> Trained:
    """Load an export of version 0.1, which has config.toml and a manifest instead of config.json."""
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
    """Return a check for `read_folder`, from one for the weights. Other files in the folder must be small."""

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
    facts = None
    if config.data is not None:
        try:
            facts = config.data.format.facts.of(about_data(path, linked=linked))
        except ValueError as error:
            raise RunError(f"{path / ABOUT_DATA}: is not that of a model on {config.kind} ({error})") from error
    trained_on = TrainedOn(config.task, config.data, facts, vocabulary)
    model = _model(path, config, read, trained_on)
    return Trained(path, config, model.eval(), vocabulary, facts, epoch, result)


def _model(
    path: Path, config: Config, read: Callable[[Check], dict[str, Tensor]], trained_on: TrainedOn
) -> tasks.Recurrent:
    """Build the model from its settings and load its weights, which `read` returns.

    Untrusted settings and weights may have any size. So it first builds the model on the meta device, which takes no
    memory, and compares its shapes with those in the header of the weights. Only then it reads them.
    """
    kind, arguments, vocabulary = kind_of(config.kind), config.model.arguments, trained_on.vocabulary
    wanted, given = kind.vocabularies or (None,), None if vocabulary is None else vocabulary.kind
    if given not in wanted:
        right, wrong = (f"of {name}" if name else "not there" for name in (wanted[0], given))
        raise RunError(f"{path / VOCABULARY}: must be {right} for {config.task.name}, is {wrong}")
    tokens = None if vocabulary is None else len(vocabulary)

    def build() -> tasks.Recurrent:
        architecture = kind.task.architecture_of(config.task, trained_on.facts, tokens)
        return architecture.build(config.model.cell, arguments, config.model.budget)

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
        shape, right = (shapes.get(name, "not there") for shapes in (given, wanted))
        if shape != right:
            raise ValueError(f"{name} is {shape}, should be {right}")


def _shape(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
