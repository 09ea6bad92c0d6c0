"""Series, to forecast, from users' tables."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from rru.data import SPLITS, Series
from rru.data.own import series
from rru.data.own.data_json import SeriesFacts, Statistics
from rru.data.own.frames import table_from
from rru.data.own.resampling import read_series
from rru.kinds import sizes
from rru.kinds.kind import Card, Kind, TrainedOn
from rru.kinds.sizes import Tables
from rru.kinds.sources import Source
from rru.tasks import Recurrent, SeriesTask, TaskSettings
from rru.tasks.series import DRAWN

MAX_CONTEXT = 800  # steps
MAX_PATCH, MAX_PATCHES = 32, 32  # steps of a patch, and patches of a context
TRAINED = 4_000  # batches of 128 windows, at most
INPUTS = (
    "(context + horizon, batch, features) float32, made of a series as the code does; logits are the 2.5, 10, 50, 90 "
    "and 97.5 % quantiles of each step, from which the code computes those in the units of the file. Where a value of "
    "the history is missing, put the one of a season before there and set `known` to 0"
)
FEATURES = """import json
from pathlib import Path

facts = json.loads(Path("data.json").read_text())
context, horizon, season = CONTEXT, facts["horizon"], facts["season"]
name, scaling = next(iter(facts["series"].items()))  # that of the first series
wave = np.sin(2 * np.pi * np.arange(context + 4 * season) / season)
history = scaling["centre"] + scaling["deviation"] * wave
if scaling["floor"] is not None:
    history = np.exp(history)
# Put the values of your series into `history`, in the units of the file. Those above are an example.

scaled = history if scaling["floor"] is None else np.log(np.maximum(history, scaling["floor"]))
scaled = (scaled - scaling["centre"]) / scaling["unit"]
steps = np.arange(1 - context, horizon + 1)  # relative to the last known one
places = len(scaled) - 1 + steps
known = (places >= 0) & (steps <= 0)
values = np.where(steps > 0, 0, scaled[places.clip(0, len(scaled) - 1)])
inputs = np.stack([values, known], axis=-1).astype(np.float32)[:, None]  # (context + horizon, 1, 2)
"""
MORE = """
# The NUMBER other inputs of each step: facts["layout"]["past"], 0 after the last known step, "known" and "calendar",
# less their "means", divided by their "deviations". Here all are at their mean.
others = np.zeros((len(steps), 1, NUMBER), np.float32)
inputs = np.concatenate([inputs, others], axis=-1)
"""
OUTPUT = """quantiles = logits[:, 0] * scaling["unit"] + scaling["centre"]  # (horizon, 5)
if scaling["floor"] is not None:
    quantiles = np.exp(np.minimum(quantiles, 700))
if scaling["least"] is not None:
    quantiles = np.maximum(quantiles, scaling["least"])
print("forecast of", facts["layout"]["target"], "and its 80 % interval")
for low, middle, high in quantiles[:, 1:4]:
    print(f"{middle:.5g} ({low:.5g} to {high:.5g})")
"""


def _card(trained: TrainedOn, model: Recurrent) -> Card:
    facts = trained.facts
    assert isinstance(facts, SeriesFacts)  # every model of series has them
    if facts.base:
        raise ValueError("a model of series of version 0.2 cannot be exported; train again on its data")
    prepare = FEATURES.replace("CONTEXT", str(trained.settings.context))
    more = MORE.replace("NUMBER", str(facts.layout.size)) if facts.layout.size else ""
    return Card(prepare + more, OUTPUT)


def _auto(statistics: Statistics, scale: float = 1.0) -> Tables:
    horizon, season, inputs = statistics["horizon"], statistics["season"], statistics["inputs"]
    steps, longest = statistics["steps"][0], statistics["longest"]
    wanted = max(5 * season, 2 * statistics["longest_season"], 3 * horizon, 16)
    context = sizes.between(wanted, 4, max(min(MAX_CONTEXT, (longest - horizon) // 2), 4))
    patch = _patch(context, season)
    context = patch * max(context // patch, 1)
    windows = min(steps, DRAWN)
    batch = sizes.power_of_two(steps / 16, 8, 128)
    hidden = sizes.by_size(steps, (1_000, 16), (5_000, 32), (50_000, 64), (0, 128))
    features = patch + 2 + inputs
    layers = 2 * (features + hidden) * (features + 3 * hidden)  # an RRU whose output is as wide as its state
    budget = layers + horizon * (5 * hidden + context) + 50 * inputs
    epochs = sizes.between(TRAINED * 128 // windows, 20, 60)
    return {
        "task": {"context": context, "batch_size": batch, "patch": patch, "refit": True},
        "model": {
            "num_layers": 1,
            "budget": sizes.rounded(int(budget)),
            "dropout": sizes.by_size(steps, (5_000, 0.3), (0, 0.1)),
        },
        "optimiser": {"lr": 0.004, "clip": 5.0, "ema": 0.99},
        "schedule": {"epochs": epochs, "patience": epochs, "decay": "cosine", "warmup": 0.1},
    }


def _smoke(statistics: Statistics) -> Tables:
    """Return the changes of `smoke`; its model needs room for the linear forecast of all windows."""
    tables, context = sizes.smoke(statistics), int(_auto(statistics)["task"]["context"])
    room = statistics["horizon"] * (context + 100)
    return {**tables, "model": {**tables["model"], "budget": 20_000 + room}}


def _patch(context: int, season: int) -> int:
    """Return the steps that the layers read at once: parts of a season or several, at most `MAX_PATCHES` of them."""
    fitting = [steps for steps in range(1, min(season, MAX_PATCH, context) + 1) if season % steps == 0]
    patch = max(fitting) if season > 1 else max(context // 8, 1)
    while context // patch > MAX_PATCHES:
        patch *= 2
    return patch


def _steps(statistics: Statistics, split: int, settings: TaskSettings) -> float | None:
    """Count the steps of all windows: one ends at each step, and an epoch draws some of them."""
    if "steps" not in statistics:
        return None
    windows = settings.limited(min(statistics["steps"][split], DRAWN), SPLITS[split])
    return float(windows * (settings.context + statistics["horizon"]))


def _read(trained: TrainedOn, source: Source, labels: Iterable[object] | None) -> Series:
    """Read a table of series. Windows with a whole context, where it is there, are scored."""
    facts = trained.facts
    assert isinstance(facts, SeriesFacts)  # every model of series has them
    if labels is not None:
        raise TypeError("series to evaluate on have no labels; their table has what comes true")
    table = table_from(source, index=facts.layout.time or "time")
    all_series = read_series(table, facts.layout, facts.filling_season).values()
    starts = [min(trained.settings.context, max(len(each.values) - facts.horizon, 1)) for each in all_series]
    return Series(
        np.concatenate([each.values for each in all_series]),
        np.concatenate([each.observed for each in all_series]),
        np.concatenate([facts.layout.standardized(each.inputs[: len(each.values)]) for each in all_series]),
        np.array([len(each.values) for each in all_series], np.int64),
        np.array([(start, start) for start in starts], np.int64),
        replace(facts, series={each.name: facts.scaling(each.name, each.values, each.observed) for each in all_series}),
        np.array([facts.number(each.name) for each in all_series], np.int64),
    )


CELLS: Mapping[str, Tables] = {
    "rru": {"model": {"expansion": 2.0, "relu_layers": 1, "init": "balanced"}},
    "lstm": {"model": {"forget_bias": 1.0}},
    "mogrifier": {"model": {"rounds": 5, "rank": 16}},
}
SERIES = Kind(
    format=series.FORMAT,
    task=SeriesTask,
    noun="series",
    commands=("forecast", "backtest"),
    steps=_steps,
    inputs=INPUTS,
    card_of=_card,
    auto=_auto,
    smoke=_smoke,
    read=_read,
    cells=CELLS,
    figure="forecasts",
    page="series",
)
