"""A trained model, back from a run's folder or from an exported one."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rru import data, tasks
from rru.data.vocabulary import Vocabulary
from rru.experiments import presets
from rru.experiments.execute import VOCABULARY
from rru.experiments.schema import Config
from rru.training import Run, RunError
from rru.training.checkpoint import MODEL, unpack
from rru.training.files import read_folder

CONFIG = "config.toml"


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


def load(place: Path | str) -> Trained:
    """A trained model.

    ```python
    trained = rru.load("runs/bach/rru/53cb2bd5b0ab")
    logits, state = trained.model(torch.zeros(20, 1, 88))  # (20, 1, 88)
    ```

    **Arguments:** `place`: a run's folder, whose best weights are taken, or a folder that `rru export` made.
    """
    path = Path(place)
    if (path / MODEL).is_file():
        return _from_export(path)
    run = Run(path)
    if not run.best_epochs:
        raise RunError(f"{path}: has no weights to use yet, as no epoch of it was completed; `rru resume {path}`")
    epoch = run.best_epochs[-1]
    return _trained(path, presets.checked(run.config), run.best(epoch), epoch, run.result())


def _from_export(path: Path) -> Trained:
    files = read_folder(path)
    try:
        config = presets.checked(tomllib.loads(files[CONFIG].decode()))
        weights = unpack(files[MODEL], path / MODEL)
    except (KeyError, ValueError, RecursionError) as error:
        raise RunError(f"{path}: is not a folder that `rru export` made ({error})") from error
    return _trained(path, config, weights, None, None)


def _trained(
    path: Path,
    config: Config,
    weights: dict[str, Tensor],
    epoch: int | None,
    result: Mapping[str, Any] | None,
) -> Trained:
    vocabulary = Vocabulary.load(path / VOCABULARY) if (path / VOCABULARY).exists() else None
    of_model = dict(config["model"])
    cell, budget = of_model.pop("cell"), of_model.pop("budget")
    name, stateful = config["task"]["name"], config["task"].get("stateful", False)
    tokens = None if vocabulary is None else len(vocabulary)
    try:
        model = tasks.model(name, cell, of_model, budget, tokens=tokens, stateful=stateful)
        model.load_state_dict(weights)
    except (RuntimeError, ValueError) as error:
        raise RunError(f"{path}: its weights are not those its settings describe: {error}") from error
    return Trained(path, config, model.eval(), vocabulary, epoch, result)
