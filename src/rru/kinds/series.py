"""Series, to forecast, from users' tables."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from rru.data import SPLITS, Series
from rru.data.own import series
from rru.data.own.data_json import SeriesFacts, Statistics
from rru.data.own.frames import table_from
from rru.data.own.resampling import read_series
from rru.data.own.scaling import AVERAGE, AVERAGED, GROWTH, LAST, MEAN, SEASONAL
from rru.kinds import sizes
from rru.kinds.kind import Card, Kind, TrainedOn
from rru.kinds.sizes import Tables
from rru.kinds.sources import Source
from rru.tasks import Recurrent, SeriesTask, TaskSettings

MAX_WINDOWS = 8_000  # in an epoch
INPUTS = (
    "(context + horizon, batch, features) float32, made of a series as the code does; logits are the 2.5, 10, 50, 90 "
    "and 97.5 % quantiles of each step, from which the code computes those in the units of the file. The logits of the "
    "steps of the context have no meaning. Where a value of the history is missing, repeat the one before it and set "
    "`known` to 0"
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
steps = np.arange(1 - context, horizon + 1)  # relative to the last known one
places = len(scaled) - 1 + steps
known = (places >= 0) & (steps <= 0)
places = places.clip(0, len(scaled) - 1)
mean = scaled[-max(season, 8) :].mean()
START
values, before = scaled[places], scaled[np.maximum(places - season, 0)]
change = np.where(known, values - before, 0)
values[context:] = start
parts = [
    (values - mean) / scaling["spread"],
    change / scaling["unit"],
    known,
    steps > 0,
    np.maximum(steps, 0) / horizon,
    np.full(len(steps), np.tanh((mean - scaling["centre"]) / scaling["deviation"])),
]
inputs = np.stack(parts, axis=-1).clip(-20, 20).astype(np.float32)[:, None]  # (context + horizon, 1, 6)
"""
MORE = """
# The NUMBER other inputs of each step: facts["layout"]["past"], 0 after the last known step, "known" and "calendar",
# less their "means", divided by their "deviations". Here all are at their mean.
others = np.zeros((len(steps), 1, NUMBER), np.float32)
inputs = np.concatenate([inputs, others], axis=-1)
"""
SEASON = """ahead = np.arange(1, horizon + 1)
cycles = -(-ahead // season)


def seasons_before(count):  # NaN before the history
    places = len(scaled) - 1 + ahead - count * season
    return np.where(places < 0, np.nan, scaled[np.maximum(places, 0)])


start = seasons_before(cycles)
start = np.where(np.isnan(start), scaled[-1], start)
"""
GROWTH_START = """if len(scaled) >= 2 * season:
    start += cycles * (scaled[-season:].mean() - scaled[-2 * season : -season].mean())
"""
STARTS = {
    LAST: "start = np.full(horizon, scaled[-1])\n",
    MEAN: "start = np.full(horizon, mean)\n",
    SEASONAL: SEASON,
    AVERAGE: SEASON
    + f"start = np.nanmean([start, *(seasons_before(cycles + back) for back in range(1, {AVERAGED}))], axis=0)\n",
    GROWTH: SEASON + GROWTH_START,
}
"""Code for the simple forecast that a model starts from, for each base; see `simple_forecasts`."""
QUANTILES = """quantiles = logits[context:, 0] * scaling["unit"] + start[:, None]  # (horizon, 5)
if scaling["floor"] is not None:
    quantiles = np.exp(np.minimum(quantiles, 700))
print("forecast of", facts["layout"]["target"], "and its 80 % interval")
for low, middle, high in quantiles[:, 1:4]:
    print(f"{middle:.5g} ({low:.5g} to {high:.5g})")
"""


def _card(trained: TrainedOn, model: Recurrent) -> Card:
    facts = trained.facts
    assert isinstance(facts, SeriesFacts)  # every model of series has them
    prepare = FEATURES.replace("START\n", STARTS[facts.base]).replace("CONTEXT", str(trained.settings.context))
    more = MORE.replace("NUMBER", str(facts.layout.size)) if facts.layout.size else ""
    return Card(prepare + more, QUANTILES)


def _auto(statistics: Statistics) -> Tables:
    steps, horizon, inputs = statistics["steps"][0], statistics["horizon"], statistics["inputs"]
    longest, windows = max(steps // statistics["series"] - horizon, 1), min(steps, MAX_WINDOWS)
    task = {
        "context": min(sizes.between(2 * max(statistics["season"], horizon), 16, 400), longest),
        "batch_size": sizes.power_of_two(steps / 8, 8, sizes.MAX_BATCH // 2),
        **({"limit": MAX_WINDOWS} if steps > MAX_WINDOWS else {}),
    }
    budget = max(sizes.between(10 * steps, 4_000, 100_000) + 50 * inputs, sizes.room(inputs, 16))
    dropout = sizes.by_size(steps, (5_000, 0.5), (50_000, 0.3), (0, 0.1))
    schedule = {"epochs": sizes.between(60_000 // windows, 20, 60), "patience": 12}
    return {**sizes.tables(windows, task, {"budget": sizes.rounded(budget), "dropout": dropout}), "schedule": schedule}


def _steps(statistics: Statistics, split: int, settings: TaskSettings) -> float | None:
    """Count the steps of all windows: one ends at each step."""
    if "steps" not in statistics:
        return None
    windows = settings.limited(statistics["steps"][split], SPLITS[split])
    return float(windows * (settings.context + statistics["horizon"]))


def _read(trained: TrainedOn, source: Source, labels: Iterable[object] | None) -> Series:
    """Read a table of series. Windows with a whole context, where it is there, are scored."""
    facts = trained.facts
    assert isinstance(facts, SeriesFacts)  # every model of series has them
    if labels is not None:
        raise TypeError("series to evaluate on have no labels; their table has what comes true")
    all_series = read_series(table_from(source, index=facts.layout.time or "time"), facts.layout).values()
    starts = [min(trained.settings.context, max(len(each.values) - facts.horizon, 1)) for each in all_series]
    return Series(
        np.concatenate([each.values for each in all_series]),
        np.concatenate([each.observed for each in all_series]),
        np.concatenate([facts.layout.standardized(each.inputs[: len(each.values)]) for each in all_series]),
        np.array([len(each.values) for each in all_series], np.int64),
        np.array([(start, start) for start in starts], np.int64),
        replace(facts, series={each.name: facts.scaling(each.name, each.values) for each in all_series}),
    )


SERIES = Kind(
    format=series.FORMAT,
    task=SeriesTask,
    noun="series",
    commands=("forecast",),
    steps=_steps,
    inputs=INPUTS,
    card_of=_card,
    auto=_auto,
    read=_read,
    cells=sizes.SMALL_CELLS,
    figure="forecasts",
)
