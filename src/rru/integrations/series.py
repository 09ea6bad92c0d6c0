"""Train on series in memory and forecast them, for estimators: `rru.fit` and its models, without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rru.data import from_frame
from rru.data.own.data_json import SeriesFacts
from rru.inference import Trained, fit
from rru.inference.forecasting import forecast
from rru.integrations.scratch import scratch_folder
from rru.tasks import QUANTILES

MEDIAN = QUANTILES.index(0.5)
MIN_TRAINING = 4  # steps that a series needs besides three horizons: to train, validate and test
ID, STEP, VALUE = "series", "step", "value"


@dataclass(frozen=True)
class SeriesData:
    """One series.

    **Arguments:**

    - `steps`: (T,), integers that count the steps, in order; some may be left out.
    - `values`: (T,), NaN where missing.
    - `known_steps`, `known`: (K,) and (K, k), inputs that are known in advance, and their steps.
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    known_steps: NDArray[np.int64]
    known: NDArray[np.float64]

    @property
    def end(self) -> int:
        """The last step."""
        return int(self.steps[-1])

    def followed_by(self, values: NDArray[np.float64]) -> SeriesData:
        """Return the series with further values after its end."""
        steps = np.concatenate([self.steps, self.end + 1 + np.arange(len(values))])
        return SeriesData(steps, np.concatenate([self.values, values]), self.known_steps, self.known)

    def columns(self, name: str, horizon: int) -> dict[str, NDArray[np.generic]]:
        """Return a table with the inputs of `horizon` steps ahead; those after the last given repeat it."""
        inputs = dict[str, NDArray[np.generic]]()
        steps = self.steps
        if self.known.shape[1]:
            steps = np.arange(self.steps[0], self.end + horizon + 1)
            places = np.searchsorted(self.known_steps, steps, side="right") - 1
            rows = self.known[np.maximum(places, 0)]
            inputs = {f"x{number}": column for number, column in enumerate(rows.T)}
        values = np.full(len(steps), np.nan)
        values[np.searchsorted(steps, self.steps)] = self.values
        return {ID: np.full(len(steps), name), STEP: steps, VALUE: values, **inputs}


Panel = Mapping[str, SeriesData]
"""Series by name."""


def fit_series(
    panel: Panel,
    horizon: int,
    *,
    cell: str,
    frequency: str | None,
    season: int | None,
    settings: Mapping[str, object],
    seed: int,
) -> Trained:
    """Train one model on all series, as `rru train` does.

    If all series are too short to hold out two horizons, the horizon is reduced; `quantiles_of` forecasts further.

    **Arguments:** `frequency`: what a step is, such as `M`, which gives the season; others as for `rru.fit`.
    """
    longest = max(each.end - int(each.steps[0]) + 1 for each in panel.values())
    horizon = max(min(horizon, (longest - MIN_TRAINING) // 3), 1)
    known = [f"x{number}" for number in range(next(iter(panel.values())).known.shape[1])]
    with scratch_folder() as folder:
        return fit(
            from_frame(
                _table(panel, 0),
                target=VALUE,
                id=ID,
                time=STEP,
                known=known or None,
                horizon=horizon,
                frequency=frequency,
                season=season,
            ),
            cell=cell,
            settings=settings,
            seed=seed,
            folder=folder / "run",
            progress=False,
        )


def horizon_of(trained: Trained) -> int:
    """Return the number of steps that a model of series forecasts."""
    assert isinstance(trained.facts, SeriesFacts)
    return trained.facts.horizon


def inputs_of(trained: Trained) -> int:
    """Return the number of inputs that a model of series must know in advance."""
    assert isinstance(trained.facts, SeriesFacts)
    return len(trained.facts.layout.known)


def quantiles_of(trained: Trained, panel: Panel, steps: Mapping[str, int]) -> dict[str, NDArray[np.float64]]:
    """Return quantiles (steps, 5), see `rru.tasks.QUANTILES`, of the steps after the end of each series.

    Beyond the horizon of the model, forecasts go on from its medians. Their intervals grow with the square root of the
    number of horizons, as those of a random walk do.

    **Arguments:** `steps`: how many to forecast, by the name of the series.
    """
    found = {name: np.empty((0, len(QUANTILES))) for name in panel}
    going_on, block = dict(panel), 0
    while going_on:
        block += 1
        for each in forecast(trained, _table(going_on, horizon_of(trained))):
            median = each.quantiles[:, [MEDIAN]]
            wide = median + (each.quantiles - median) * np.sqrt(block)
            found[each.name] = np.concatenate([found[each.name], wide])
            going_on[each.name] = going_on[each.name].followed_by(median[:, 0])
        going_on = {name: each for name, each in going_on.items() if len(found[name]) < steps[name]}
    return {name: quantiles[: steps[name]] for name, quantiles in found.items()}


def at_levels(quantiles: NDArray[np.float64], levels: Sequence[float]) -> NDArray[np.float64]:
    """Return other quantiles (steps, levels), from those that models give (steps, 5).

    Between these, and beyond them, distances from the median grow as those of a normal distribution do.
    """
    places, wanted = _normal_quantiles(QUANTILES), _normal_quantiles(levels)
    right = np.clip(np.searchsorted(places, wanted), 1, len(places) - 1)
    share = (wanted - places[right - 1]) / (places[right] - places[right - 1])
    return np.asarray(quantiles[:, right - 1] * (1 - share) + quantiles[:, right] * share)


def _normal_quantiles(levels: Sequence[float]) -> NDArray[np.float64]:
    return np.asarray(torch.special.ndtri(torch.tensor(levels, dtype=torch.float64)).numpy())


def _table(panel: Panel, horizon: int) -> dict[str, NDArray[np.generic]]:
    """Return series as a table of columns, with the inputs of the next `horizon` steps."""
    tables = [each.columns(name, horizon) for name, each in panel.items()]
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
