"""Forecasting: predict the next steps of a series, with intervals."""

import copy
from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.data import SPLITS, Facts, Series
from rru.data.own.data_json import SeriesFacts
from rru.data.own.scaling import seasonal_difference
from rru.tasks import stepwise
from rru.tasks.accuracy import Means, errors, measures, trimmed_mean
from rru.tasks.batches import Batch, Batches, groups, spaced
from rru.tasks.calibration import calibrate, widths_of_series
from rru.tasks.forecaster import QUANTILES, Ensemble, Forecaster, WindowShape, pinball, variability
from rru.tasks.linear_start import LinearStart, StartSeries, fit_start
from rru.tasks.metrics import MASE
from rru.tasks.models import Architecture, LayerState, Options, Recurrent, device_of
from rru.tasks.series_details import BASELINES, details
from rru.tasks.settings import SeriesSettings, TaskSettings
from rru.tasks.task import Task, evaluating
from rru.tasks.windows import SeriesPart, Windows

DRAWN = 12_800  # windows in an epoch, at most, unless `limit` says otherwise
EVALUATED = 2000  # windows of a split, evenly spaced
EVALUATION_BATCH = 256
CALM = 0.25  # windows count in the loss by their variability to the power of minus this


class SeriesTask(Task):
    """Forecast the next `horizon` steps of series, as quantiles. The model is a `Forecaster`.

    An epoch draws fresh windows: first a series, all with the same chance, then where the window ends.

    Metrics: `mase` is the mean absolute error of the median, divided for each series by that of repeating the season
    before in the training part; `mae`, `rmse` and `pinball` (mean over the quantiles) are in the units of the file;
    `smape` is in per cent; `coverage_80` and `coverage_95` are percentages of values inside the intervals. With `_last`
    and `_seasonal` they are those of repeating the last value and the last season, on the same windows. `loss`, by
    which epochs are compared, is the pinball loss in mean absolute seasonal differences, averaged over all but the
    hardest series.

    **Arguments:**

    - `series`: the series.
    - `settings`: `context` is the known steps in a window, `patch` those that the layers read at once; `limit` and
      `evaluation_limit` count windows in an epoch, and for validation and test each. Default: 12,800 and 2,000.
    """

    metric = MASE
    chosen_by = "loss"
    starts_well = True
    settings_class = SeriesSettings

    def __init__(self, series: Series, settings: TaskSettings, *, own: bool = False) -> None:
        super().__init__(series, settings, own=own)
        assert isinstance(settings, SeriesSettings)
        if settings.patch is None:
            raise ValueError("task.patch must be set: models of series of version 0.2 only forecast; train again")
        self.facts, self.everything = series.facts, settings.everything
        self.architecture = self.architecture_of(settings, series.facts, None)
        ends = np.cumsum(series.lengths)[:-1]
        arrays = (np.split(array, ends) for array in (series.values, series.observed, series.inputs))
        numbers = range(len(ends) + 1) if series.numbers is None else series.numbers.tolist()
        parts = [SeriesPart(*each) for each in zip(*arrays, series.facts.series.values(), numbers, strict=True)]
        self.windows = Windows(parts, series.facts, settings.context)
        self._limits = {split: settings.limited(DRAWN if split == "train" else EVALUATED, split) for split in SPLITS}
        self._series = series
        self._places: dict[str, NDArray[np.int64]] = {}
        self._differences = np.array([seasonal_difference(each, self.facts.season) for each in self._training_parts()])

    @classmethod
    def architecture_of(cls, settings: TaskSettings, facts: Facts | None, tokens: int | None) -> Architecture:
        """Return the architecture; before training the model forecasts what its linear forecast does."""
        if not isinstance(facts, SeriesFacts):
            raise ValueError("a model of series needs the facts of its data: columns and scalings")
        assert isinstance(settings, SeriesSettings)
        if (settings.patch is None) != bool(facts.base):
            raise ValueError("task.patch and the base of its data must be of the same version of rru")
        if settings.patch is None:
            return stepwise.architecture(facts)
        past = facts.layout.past_size
        sizes = (settings.context, facts.horizon, settings.patch, facts.season, past, facts.layout.size - past)
        window = WindowShape(*sizes, series=len(facts.series))
        outputs = facts.horizon * len(QUANTILES)
        model_class = Forecaster if settings.ensemble == 1 else Ensemble
        return Architecture(
            model_class, outputs, window.patch_features, zero_head=True, window=window, members=settings.ensemble
        )

    def model(self, cell: str, cell_options: Options, budget: int) -> Recurrent:
        model = super().model(cell, cell_options, budget)
        assert isinstance(model, Forecaster)
        start = self._start()
        for name, array in (("level", start.level), ("start", start.forecast), ("effects", start.effects)):
            getattr(model, name).copy_(torch.from_numpy(array))
        return model

    def _start(self) -> LinearStart:
        """Return the linear forecast that the model starts from, of the parts to train on."""
        shape = self.architecture.window
        assert shape is not None
        starts, ends = self.windows.starts, self.windows.starts + self._training_ends()
        known = [self._series.inputs[slice(*each), shape.past :] for each in zip(starts, ends, strict=True)]
        parts = [StartSeries(*each) for each in zip(self._training_parts(), known, strict=True)]
        return fit_start(parts, shape, (self.facts.season, *self.facts.longer_seasons))

    def _training_parts(self) -> Iterator[NDArray[np.float64]]:
        """Yield the values (T,) of each series to train on, scaled."""
        for number, (start, end) in enumerate(zip(self.windows.starts, self._training_ends(), strict=True)):
            yield self.windows.scaled(start + np.arange(end)[None], np.array([number]))[0]

    def _training_ends(self) -> NDArray[np.int64]:
        """Return the number of steps (S,) of each series to train on."""
        return self._series.lengths if self.everything else self._series.splits[:, 0]

    @cached_property
    def _origins(self) -> NDArray[np.int64]:
        """The series that have windows to train on, and their first and last origins, (3, S)."""
        ends = self._training_ends() - self.facts.horizon
        assert self.architecture.window is not None
        least = max(self.facts.season, self.architecture.window.patch)
        firsts = np.minimum(least, np.maximum(ends - 1, 1)) - 1
        numbers = np.flatnonzero(ends > 0)
        if not len(numbers):
            raise ValueError(f"train must have a window of {self.facts.horizon} steps with known values, has none")
        return np.stack([numbers, firsts[numbers], ends[numbers]])

    def _windows_of(self, split: str) -> NDArray[np.int64]:
        """Return the windows (W, 2) of a split; raise ValueError if it has none. They are found when first used."""
        if split not in self._places:
            self._places[split] = _places(self._series, split, self._limits[split])
        return self._places[split]

    def steps_per_epoch(self) -> int:
        _, firsts, ends = self._origins
        return len(groups(min(int((ends - firsts).sum()), self._limits["train"]), self.batch_size))

    def epoch(self, generator: torch.Generator) -> Batches:
        count = self.steps_per_epoch()
        windows = self.batch_size * self.architecture.members
        draws = torch.rand(2, count, windows, generator=generator, dtype=torch.float64).numpy()
        return Batches(count, lambda number: self._batch(self._drawn(draws[:, number])))

    def _drawn(self, draws: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return windows (B, 2) from random numbers (2, B): of the series, and of the origin."""
        numbers, firsts, ends = self._origins[:, (draws[0] * self._origins.shape[1]).astype(np.int64)]
        return np.stack([numbers, firsts + (draws[1] * (ends - firsts)).astype(np.int64)], axis=1)

    def _batch(self, places: NDArray[np.int64]) -> Batch:
        series, origins = places.T
        inputs = torch.from_numpy(self.windows.features(series, origins))  # (T + H, B, m)
        targets = torch.from_numpy(self.windows.targets(series, origins))  # (H, B)
        return Batch(inputs, targets, None, fresh=True, tokens=inputs.shape[0] * inputs.shape[1])

    def _loss(self, model: nn.Module, batch: Batch, state: LayerState) -> tuple[Tensor, LayerState]:
        quantiles, _ = model(batch.inputs)  # (H, B, Q)
        there = ~batch.targets.isnan()
        losses = pinball(quantiles, batch.targets.nan_to_num().to(quantiles.dtype)).mean(-1)
        values, known = batch.inputs[: self.context, :, 0], batch.inputs[: self.context, :, 1]
        weights = variability(values, known, self.facts.season) ** -CALM  # (B,)
        return (losses * weights).where(there, 0).sum() / there.sum().clamp(min=1), None

    def inherit(self, model: nn.Module, weights: Mapping[str, Tensor]) -> None:
        """Take over trust and widening; widths of series follow the test part too, which `weights` have not seen."""
        assert isinstance(model, Forecaster)
        scored = copy.deepcopy(model)
        scored.load_state_dict(weights)
        scored.widths.fill_(1.0)
        with evaluating(scored):
            model.widths.copy_(widths_of_series(self, scored, ("valid", "test")))
        for name in ("trust", "widening"):
            getattr(model, name).copy_(weights[name])

    def better(self, scores: Mapping[str, float], best: Mapping[str, float]) -> bool:
        return self.everything or super().better(scores, best)

    def _calibrate(self, model: nn.Module) -> None:
        assert isinstance(model, Forecaster)
        if not self.everything:
            calibrate(self, model)

    def window_losses(self, quantiles: Tensor, targets: Tensor, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the mean pinball loss (B,) of windows, in mean absolute seasonal differences of their series."""
        there = ~targets.isnan()
        losses = pinball(quantiles, targets.nan_to_num().to(quantiles.dtype)).mean(-1).where(there, 0)
        means = (losses.sum(0) / there.sum(0).clamp(min=1)).double().cpu().numpy()
        return np.asarray(means / self._differences[places[:, 0]])

    def known_steps(self, split: str) -> NDArray[np.int64]:
        """Return how many known steps (S,) of each series are forecast in the windows of a split."""
        steps = np.unique(self.windows.steps_ahead(*self._windows_of(split).T))
        series = np.searchsorted(self.windows.starts, steps[self.windows.observed[steps]], side="right") - 1
        return np.bincount(series, minlength=len(self.windows.starts))

    def evaluated(self, split: str) -> Iterator[NDArray[np.int64]]:
        """Yield the windows of a split, at most `EVALUATED`, a batch at a time."""
        places = self._windows_of(split)[spaced(len(self._windows_of(split)), EVALUATED)]
        for start in range(0, len(places), EVALUATION_BATCH):
            yield places[start : start + EVALUATION_BATCH]

    def outputs(self, model: nn.Module, places: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the quantiles (H, B, Q) that the model outputs for windows, and the targets (H, B)."""
        batch = self.batch(places, model)
        quantiles = model(batch.inputs)[0]
        if isinstance(model, Forecaster):
            quantiles = model.widened(quantiles, self.windows.numbers[places[:, 0]])
        return quantiles, batch.targets

    def batch(self, places: NDArray[np.int64], model: nn.Module) -> Batch:
        """Return windows (B, 2) as a batch on the device of a model."""
        return self._batch(places).to(device_of(model))

    def forecasts(self, model: nn.Module, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the quantiles (B, H, Q) of windows (B, 2), in the units of the file."""
        return self._restored(self.outputs(model, places)[0], places)

    def _restored(self, outputs: Tensor, places: NDArray[np.int64]) -> NDArray[np.float64]:
        series, origins = places.T
        return self.windows.forecasts(series, origins, outputs.double().cpu().numpy()).transpose(1, 0, 2)

    def measured(self, model: nn.Module, places: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """Return the measures (B, H) of a model on windows (B, 2), and of the baselines with `_last`, `_seasonal`."""
        return self._measured(self.forecasts(model, places), places)

    def _measured(self, quantiles: NDArray[np.float64], places: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        actual, naive = self.windows.actual(*places.T), self.windows.scale("naive", places[:, 0])
        found = measures(actual, quantiles, naive)
        for base in BASELINES:
            simple = errors(actual, self.windows.simple(base, *places.T), naive)
            found |= {f"{name}_{base}": each for name, each in simple.items()}
        return found

    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        means, losses, series = Means(), list[NDArray[np.float64]](), list[NDArray[np.int64]]()
        for places in self.evaluated(split):
            outputs, targets = self.outputs(model, places)
            losses.append(self.window_losses(outputs, targets, places))
            series.append(places[:, 0])
            means.add(self._measured(self._restored(outputs, places), places))
        loss = trimmed_mean(np.concatenate(losses), np.concatenate(series))
        return {**{name: float(mean[0]) for name, mean in means.means().items()}, "loss": loss}

    def _details(self, model: nn.Module) -> dict[str, object]:
        return details(self, model, self._windows_of("test"))


def verdict(scores: Mapping[str, float]) -> str:
    """Compare a model with the two baselines, in words, from its scores; empty if these are of no forecasts."""
    if any(scores.get(name) is None for name in ("mase", *(f"mase_{base}" for base in BASELINES))):
        return ""  # null in result.json is a score that was not finite
    text = (
        f"MASE {scores['mase']:.3f}; last value {scores['mase_last']:.3f}, seasonal naive {scores['mase_seasonal']:.3f}"
    )
    return text if beats_baselines(scores) else f"{text}: the model does not beat the simple forecasts; use those"


def beats_baselines(scores: Mapping[str, float]) -> bool:
    """Return whether the MASE of a model is below that of both baselines, from its scores."""
    return scores["mase"] < min(scores[f"mase_{base}"] for base in BASELINES)


def _places(series: Series, split: str, most: int) -> NDArray[np.int64]:
    """Return the windows (W, 2) of a split, as series and last known step; all forecast steps are in the split."""
    horizon = series.facts.horizon
    observed = np.split(series.observed, np.cumsum(series.lengths)[:-1])
    windows = []
    for number, (length, (valid, test)) in enumerate(zip(series.lengths.tolist(), series.splits.tolist(), strict=True)):
        first, end = {"train": (1, valid), "valid": (valid, test), "test": (test, length)}[split]
        origins = np.arange(first - 1, end - horizon)
        known = np.concatenate([[0], np.cumsum(observed[number])])
        origins = origins[known[origins + horizon + 1] > known[origins + 1]]
        windows.append(np.stack([np.full(len(origins), number), origins], axis=1))
    places = np.concatenate(windows)
    if not len(places):
        raise ValueError(f"{split} must have a window of {horizon} steps with known values, has none")
    return places[spaced(len(places), most)]
