"""`rru.fit`: train on data, or train any model on batches of the user's own, to a run folder."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from torch import nn

from rru.data import OwnData, from_frame, from_path
from rru.data.own.detect import set_or_path
from rru.data.own.frames import Frame, is_frame
from rru.inference.loading import load
from rru.inference.own_model import Changes, FittedModel, ModelTask, Score, fit_model
from rru.inference.progress import ProgressLine, together
from rru.inference.trained import Trained
from rru.kinds import reading_options
from rru.nn import count_parameters
from rru.settings import Config, presets
from rru.suggestions import did_you_mean
from rru.training import RunError, Watch, run_folder, train_config, with_precision
from rru.training.locate import ROOT
from rru.training.precision import chosen as chosen_precision
from rru.training.run_files import Epoch
from rru.training.time_budget import Places, within

Place = Path | str


@overload
def fit(
    task: OwnData | Place | Frame,
    train: None = None,
    valid: Place | Frame | None = None,
    *,
    test: Place | Frame | None = None,
    cell: str = "rru",
    preset: str | None = None,
    settings: Changes | None = None,
    minutes: float | None = None,
    precision: str | None = None,
    seed: int = 0,
    folder: Place | None = None,
    data_dir: Place | None = None,
    device: str = "cpu",
    progress: bool | None = None,
    on_epoch: Callable[[Epoch], object] | None = None,
    watch: Watch | None = None,
    stop: Callable[[], bool] = ...,
    **reading: object,
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
    folder: Place,
    settings: Changes | None = None,
    precision: str | None = None,
    seed: int = 0,
    progress: bool | None = None,
    on_epoch: Callable[[Epoch], object] | None = None,
    watch: Watch | None = None,
    stop: Callable[[], bool] = ...,
) -> FittedModel: ...


def fit(
    task: Any,
    train: Iterable[object] | None = None,
    valid: Any = None,
    *,
    test: Any = None,
    cell: str = "rru",
    preset: str | None = None,
    settings: Changes | None = None,
    minutes: float | None = None,
    precision: str | None = None,
    seed: int = 0,
    folder: Place | None = None,
    data_dir: Place | None = None,
    device: str = "cpu",
    loss: Any = None,
    metric: Any = None,
    progress: bool | None = None,
    on_epoch: Callable[[Epoch], object] | None = None,
    watch: Watch | None = None,
    stop: Callable[[], bool] = lambda: False,
    **reading: object,
) -> Trained | FittedModel:
    """Train on your own data, or train your own model. Killed or stopped, the same call continues.

    ```
    trained = rru.fit("novel.txt", by="words", settings={"epochs": 20})
    trained = rru.fit(frame, target="load", horizon=24)  # a DataFrame of pandas or polars
    fitted = rru.fit(model, train_loader, valid_loader, loss=nn.functional.cross_entropy, folder="run")
    ```

    **Arguments** for data:

    - `task`: a file or folder, a DataFrame or a dict of columns, own data from `rru.data.from_text` and so on, or the
      name of a data set, such as `bach`.
    - `valid`, `test`: files or tables to validate and test on. Default: a tenth of the data each.
    - `reading`: how to read a file or table, as for `rru train`: `by`, `target`, `horizon`, `text`, `label`,
      `transpose`, ...; for a DataFrame also `name`, after which its runs are named.
    - `cell`, `preset`, `minutes`, `data_dir`, `device`: as for `rru train`.

    **Arguments** for a model:

    - `task`: the model. At the end it has the weights with the best validation.
    - `train`, `valid`, `test`: `DataLoader`s, or other iterables with a length, of pairs (inputs, targets). Without
      `test` the result has no test scores.
    - `loss`: `loss(model(inputs), targets)` is a scalar to minimise.
    - `metric`: the same, to choose the best epoch by; lower is better. Default: `loss`.
    - `folder`: must be given.

    **Arguments** for both:

    - `settings`: changes to the settings, such as `{"lr": 0.01, "epochs": 20}`, named as for `rru train --set`.
    - `precision`: of products in training: `float32` (default), `bf16`, or `auto`, which takes bf16 where it is faster.
    - `seed`: random seed.
    - `folder`: the run folder. Default: below `runs`, named by the settings.
    - `progress`: whether to show a bar. Default: in a terminal or a notebook. False also hides what was understood of
      the data, and notices.
    - `on_epoch`: called after each epoch with its record, as in `history`. If it raises, training can be continued.
    - `watch`, `stop`: as for `rru.training.train`.

    **Returns:** the trained model, as `rru.load` returns it; for a model a `FittedModel`, which has its `Result`.

    If the folder has a run that has ended, it is loaded, and a message says so. If that is another run, RunError is
    raised: with other settings or data; of a model also with another loss or metric, or with other modules or weights
    (their names, shapes and types; initial values do not count). The batches of a model are compared by their number
    and their data: all of a `TensorDataset`; 64 evenly spaced items of another data set that can be indexed, or of a
    list of batches, in whatever order they are drawn; else the first batch. If reading these twice with the same random
    seeds does not give the same content, only their shapes and types are compared.
    """
    changes = {"schedule.seed": seed, **(settings or {})}
    if isinstance(task, nn.Module):
        _check_reading(reading, None)
        given = {"train": train, "valid": valid, "loss": loss, "folder": folder}
        if missing := [name for name, value in given.items() if value is None]:
            raise TypeError(f"fit of a model needs train and valid batches, loss and folder; missing: {_and(missing)}")
        place, loaders = Path(str(folder)).expanduser(), {"train": train, "valid": valid}
        if precision is not None:
            of_model = count_parameters(task), str(next(task.parameters()).device)
            changes["schedule.precision"] = chosen_precision(precision, *of_model, place)
        if minutes is not None:
            raise TypeError("minutes is for data; for a model of your own set epochs")
        own_task = ModelTask(loaders | ({} if test is None else {"test": test}), loss, metric)
        with ProgressLine(type(task).__name__, place, progress) as shown:
            return fit_model(task, own_task, place, changes, together(shown, on_epoch, watch), stop)
    if isinstance(task, type) and issubclass(task, nn.Module):
        raise TypeError(f"task must be a model, got its class {task.__name__}; make one: {task.__name__}(...)")
    if train is not None or loss is not None or metric is not None:
        raise TypeError("train, loss and metric are only for a model; data has its own")
    if (transpose := reading.pop("transpose", None)) is not None:
        changes["task.transposition"] = transpose
    chosen = _data(task, reading | {"valid": valid, "test": test})
    preset = presets.names(chosen)[0] if preset is None else preset
    given_place = None if folder is None else Path(folder).expanduser()
    fixed: set[str] = set()

    def build(scale: float) -> Config:
        config = presets.load(chosen, cell, preset, scale)
        named = presets.settings_by_name(changes, config.settings, f"{config.task.name} and {cell}")
        fixed.update(named)
        return with_precision(config.changed(named), precision, device, given_place)

    config = build(1.0)
    if minutes is not None:
        config = within(minutes, build, fixed, Places(ROOT, given_place), device)
    place = given_place or run_folder(config, ROOT)
    with ProgressLine(config.task.name, place, progress) as shown:
        if isinstance(chosen, OwnData):
            for text in (chosen.summary, *chosen.notes, presets.described(config, preset)):
                shown.say(text)
        watches = together(shown, on_epoch, watch)
        result = train_config(config, place, data_dir=data_dir, device=device, watch=watches, stop=stop)
    if not result.best_epoch:
        raise RunError(f"{place}: has no trained weights: {result.status}, {result.reason}")
    return load(place)


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _data(task: OwnData | Place | Frame, reading: Mapping[str, object]) -> OwnData | str:
    """Return what to train on: the name of a data set, or the own data in a place or a table."""
    given = {name: value for name, value in reading.items() if value is not None}
    task = set_or_path(task) if isinstance(task, str) else task
    known = task if isinstance(task, OwnData | str) else None
    _check_reading(given, known)
    if known is not None:
        return known
    if is_frame(task):
        name = given.pop("name", None)
        return from_frame(task, name=name, **given)  # type: ignore[arg-type]
    if not isinstance(task, Path):
        right = "a model, a file or folder, a DataFrame, own data or the name of a data set"
        raise TypeError(f"task must be {right}; got {type(task).__name__}")
    if "name" in given:
        raise TypeError(f"name is only for a DataFrame; the run of a file is named after it, {task.name}")
    return from_path(task, **given)


def _check_reading(given: Mapping[str, object], known: OwnData | str | None) -> None:
    """Raise TypeError for arguments that `fit` does not have, or that do not go with data that is known already."""
    names = ["by", "valid", "test", "name", "transpose", *reading_options()]
    for name, value in given.items():
        if name not in names:
            setting = f"; a setting is given as settings={{{name!r}: {value!r}}}"
            raise TypeError(f"fit has no argument {name!r}{did_you_mean(name, names) or setting}")
        if known is not None:
            what = known if isinstance(known, str) else "data that was read already"
            raise TypeError(f"{name} is only for a file, a folder or a DataFrame, not for {what}")
