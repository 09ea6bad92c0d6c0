"""What a backtest may use: steps that the weights have never seen, and the weights that have not seen them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rru.data import Series
from rru.data.errors import DataError
from rru.data.own.columns import Layout
from rru.data.own.data_json import SeriesFacts
from rru.data.own.resampling import RegularSeries, read_series
from rru.data.own.source import fingerprint
from rru.data.own.times import When, Whens
from rru.data.spelling import option
from rru.inference.forecasting import table_of
from rru.kinds.sources import Source
from rru.training import Run, RunError
from rru.training.checkpoint import limited
from rru.training.refit import refits, weights_run

if TYPE_CHECKING:
    from rru.inference.trained import Trained
    from rru.tasks import Recurrent


@dataclass(frozen=True)
class Unseen:
    """A series, and which of its steps the weights have not seen.

    **Arguments:**

    - `name`: its id; empty if there is only one.
    - `layout`: what the columns of its table are.
    - `start`: the time of its first step, or the integer that counts it; None without times.
    - `values`, `observed`: (T,), see `rru.data.Series`; `inputs`: (T, k), standardized.
    - `first`: the first origin: the last step that the weights may have seen.
    - `held`: the steps to test on unless the user says otherwise.
    - `new`: whether it was not there in training: it is then scaled by its own values.
    """

    name: str
    layout: Layout
    start: When | None
    values: NDArray[np.float64]
    observed: NDArray[np.bool_]
    inputs: NDArray[np.float32]
    first: int
    held: int
    new: bool = False

    def times(self, first: int, end: int) -> Whens | None:
        """Return the times of the steps from `first` up to `end`; None without times."""
        return None if self.start is None else self.layout.whens_at(self.start, np.arange(first, end))


@dataclass(frozen=True)
class Ground:
    """What a backtest uses: `series`, the `model`, `weights` and `data`, what both are in words, and `notes`."""

    series: Sequence[Unseen]
    model: Recurrent
    weights: str
    data: str
    notes: tuple[str, ...] = ()


def ground_of(trained: Trained, data: Source, horizon: int) -> Ground:
    """Return what a backtest of `horizon` steps uses: the test part of a run's own file, or what a new one adds."""
    config = trained.config.data
    assert config is not None  # every model of series has its user's data
    path = Path(data).expanduser() if isinstance(data, Path | str) else None
    if path is not None and path.is_file() and not config.valid and not config.test:
        data = None if fingerprint(path, config.format.suffixes) == config.expected.get("train") else data
    return _own(trained) if data is None else _new(trained, data, horizon)


def _own(trained: Trained) -> Ground:
    """Return the test part of the file trained on, and the weights that have not seen it."""
    config = trained.config.data
    assert config is not None
    if trained.epoch is None and refits(trained.config):
        need = f"give {option('data')}, a file with later values, or the run it was exported from"
        raise RunError(f"{trained.path}: its weights were trained on all of {config.path.name}; {need}")
    if not config.path.exists():
        raise DataError(config.path, f"is gone; give {option('data')}, a file with later values")
    loaded, facts = _loaded(trained), trained.facts
    assert isinstance(facts, SeriesFacts)
    ends = np.cumsum(loaded.lengths)[:-1]
    arrays = (np.split(array, ends) for array in (loaded.values, loaded.observed, loaded.inputs))
    starts = loaded.facts.starts or [None] * len(loaded.lengths)
    found = [
        Unseen(name, facts.layout, _when(facts, start), values, observed, inputs, int(test) - 1, int(length - test))
        for name, start, values, observed, inputs, (_, test), length in zip(
            loaded.facts.series, starts, *arrays, loaded.splits, loaded.lengths, strict=True
        )
    ]
    text = f"weights of epoch {trained.epoch}, which have not seen the test part"
    if trained.epoch is None:
        text = "weights as exported, which have not seen the test part"
    elif _refitted(trained):
        text += "; `forecast` uses those trained on all data"
    return Ground(found, held_out_model(trained), text, f"the test part of {config.path.name}")


def _loaded(trained: Trained) -> Series:
    """Load the data trained on; raise if it has changed, or was split in another way."""
    config, facts = trained.config.data, trained.facts
    assert config is not None and facts is not None  # noqa: PT018 (as for every model of series)
    try:
        loaded = config.load()
    except DataError as error:
        if "has changed" in error.reason:
            grown = f"give {option('data', 'FILE')} with its name if it has grown"
            raise DataError(error.file, f"{error.reason.partition(';')[0]}; {grown}", error.place) from error
        raise
    assert isinstance(loaded, Series)
    if loaded.facts.statistics.get("steps") != facts.statistics.get("steps"):
        raise RunError(f"{trained.path}: an earlier version of rru split its data differently; train it again")
    return loaded


def held_out_model(trained: Trained) -> Recurrent:
    """Return the model with the weights of its best epoch, which the test part had no part in."""
    if trained.epoch is None or not _refitted(trained):
        return trained.model
    model = copy.deepcopy(trained.model)
    model.load_state_dict(Run(trained.path).best(trained.epoch, limited(model.state_dict())))
    return model.eval()


def _refitted(trained: Trained) -> bool:
    """Return whether the weights in use were trained on all data of the run."""
    if trained.epoch is None:
        return refits(trained.config)
    return weights_run(Run(trained.path)).path != trained.path


def _new(trained: Trained, data: Source, horizon: int) -> Ground:
    """Return the steps of a new table that the weights in use have not seen."""
    facts, refitted = trained.facts, _refitted(trained)
    assert isinstance(facts, SeriesFacts)
    table = table_of(data, facts.layout)
    all_series = read_series(table, facts.layout, facts.filling_season).values()
    ends = _ends(trained, table.path, facts, refitted=refitted)
    found = [_unseen(each, facts, trained.config.task.context, horizon, ends) for each in all_series]
    known = [each.name for each in found if each.name in ends]
    if known and not any(each.first < len(each.values) - 1 for each in found):
        last = max(_shown(_at(facts, ends[name][0], ends[name][1])) for name in known)
        advice = f"leave out {option('data')} to test on the test part"
        raise DataError(table.path, f"has no values after {last}, the end of the training data; {advice}")
    seen = "weights as exported" if trained.epoch is None else f"weights of epoch {trained.epoch}"
    seen = "weights trained on all data of the run" if refitted else seen
    notes: tuple[str, ...] = ()
    if not known and any(not each.new for each in found):
        notes = (f"{table.path} has no times: all of it is taken to come after the training data",)
    return Ground(found, trained.model, f"{seen}; what is forecast comes after it", str(table.path), notes)


def _ends(trained: Trained, path: Path, facts: SeriesFacts, *, refitted: bool) -> dict[str, tuple[int, int]]:
    """Return the number of each series of the training data, and the last of its steps that the weights have seen.

    Empty if the series have no times, so that steps of another file cannot be told from those.
    """
    own = trained.config.data
    grown = own is not None and path.exists() and own.path.exists() and path.samefile(own.path)
    if not facts.starts and not grown:
        return {}
    if not facts.splits:
        raise RunError(f"{trained.path}: an earlier version of rru did not keep where its data ends; train it again")
    lasts = [split[2 if refitted else 1] - 1 for split in facts.splits]
    return {name: (number, last) for number, (name, last) in enumerate(zip(facts.series, lasts, strict=True))}


def _unseen(
    each: RegularSeries, facts: SeriesFacts, context: int, horizon: int, ends: Mapping[str, tuple[int, int]]
) -> Unseen:
    """Return a series of a new table with the first origin whose forecast the weights have not seen."""
    length = len(each.values)
    first, held = min(context, max(length - horizon, 1)) - 1, max(length // 10, horizon)
    if each.name in ends:
        number, seen = ends[each.name]
        if each.start is not None:
            last = facts.layout.whens_at(_started(facts, number), np.array([seen]))
            seen = int(np.floor(facts.layout.positions(last, each.start)[0] + 1e-9))
        first = seen if seen >= 0 else first
        held = length - 1 - first
    inputs = facts.layout.standardized(each.inputs[:length])
    new = each.name not in facts.series
    return Unseen(each.name, facts.layout, each.start, each.values, each.observed, inputs, first, held, new)


def _at(facts: SeriesFacts, number: int, step: int) -> When | None:
    """Return the time of a step of a series of the training data; None without times."""
    return facts.layout.whens_at(_started(facts, number), np.array([step]))[0] if facts.starts else None


def _shown(when: When | None) -> str:
    if when is None:
        return "the last step"
    return str(when.astype("datetime64[m]")).removesuffix("T00:00") if isinstance(when, np.datetime64) else str(when)


def _started(facts: SeriesFacts, number: int) -> When:
    when = _when(facts, facts.starts[number])
    assert when is not None
    return when


def _when(facts: SeriesFacts, start: str | None) -> When | None:
    """Return the time of the first step that facts have as text."""
    if start is None:
        return None
    return np.int64(start) if facts.layout.step else np.datetime64(start, "us")
