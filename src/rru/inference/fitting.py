"""`rru.fit`: trains a task or any model to a run folder, and returns what was trained."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, overload

from torch import Tensor, nn

from rru.data import OwnData
from rru.inference.trained import Trained, load
from rru.settings import presets
from rru.training import Result, RunError, Watch, run_folder, train_config
from rru.training.fit import fit_model

Score = Callable[[Any, Any], Tensor]


@overload
def fit(
    task: OwnData | str,
    *,
    cell: str = "rru",
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
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
    train: Iterable[Any],
    valid: Iterable[Any],
    *,
    loss: Score,
    metric: Score | None = None,
    test: Iterable[Any] | None = None,
    folder: Path | str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    watch: Watch | None = None,
    stop: Callable[[], bool] = ...,
) -> Result: ...


def fit(
    task: OwnData | str | nn.Module,
    train: Iterable[Any] | None = None,
    valid: Iterable[Any] | None = None,
    *,
    cell: str = "rru",
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    folder: Path | str | None = None,
    data_dir: Path | str | None = None,
    device: str = "cpu",
    loss: Score | None = None,
    metric: Score | None = None,
    test: Iterable[Any] | None = None,
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
    if isinstance(task, nn.Module):
        if train is None or valid is None or loss is None or folder is None:
            raise TypeError("fit of a model needs train and valid batches, loss and folder")
        changes = {"schedule.seed": seed, **(settings or {})}
        return fit_model(
            task, train, valid, test, loss=loss, metric=metric, folder=Path(folder), settings=changes,
            watch=watch, stop=stop,
        )  # fmt: skip
    if train is not None or valid is not None or loss is not None or metric is not None:
        raise TypeError("train, valid, loss and metric are only for a model; data has its own")
    config = presets.load(task, cell, preset).changed({"schedule.seed": seed, **(settings or {})})
    place = Path(folder) if folder is not None else run_folder(config, Path("runs"))
    result = train_config(config, place, data_dir=data_dir, device=device, watch=watch, stop=stop)
    if not result.best_epoch:
        raise RunError(f"{place}: has no trained weights: {result.status}, {result.reason}")
    return load(place)
