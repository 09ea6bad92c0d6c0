"""Forecasting: predict the next steps of a series, with intervals."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.data import SPLITS, Facts, Series
from rru.data.own.data_json import SeriesFacts
from rru.data.own.scaling import LAST, SEASONAL
from rru.tasks.batches import Batch, Batches, groups, shuffled, spaced
from rru.tasks.metrics import MASE
from rru.tasks.models import Architecture, LayerState, SequenceModel, device_of
from rru.tasks.settings import TaskSettings
from rru.tasks.task import Task
from rru.tasks.windows import SERIES_FEATURES, SeriesPart, Windows

QUANTILES = (0.025, 0.1, 0.5, 0.9, 0.975)
"""The limits of the 95 % and 80 % intervals, and the median."""
MEDIAN = 2
INTERVALS = {80: (1, 3), 95: (0, 4)}
"""The intervals by their percentage: the places of their limits in QUANTILES."""
BASELINES = (LAST, SEASONAL)
MAX_FANS, FAN_HISTORY, MAX_HISTORY = 6, 4, 400  # series, horizons and steps that the report shows
EVALUATED = 2000  # windows of a split, evenly spaced
EVALUATION_BATCH = 256


class QuantileHead(nn.Linear):
    """Return quantiles in increasing order.

    Outside training the intervals are `widening` times as wide as learned, see `SeriesTask.calibrate`.
    """

    widening: Tensor  # (2,), of the 80 % and 95 % intervals

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.register_buffer("widening", torch.ones(len(INTERVALS)))

    def forward(self, features: Tensor) -> Tensor:
        """Return quantiles (..., Q) of features (..., p)."""
        raw = super().forward(features)
        median = raw[..., MEDIAN : MEDIAN + 1]
        below = self._distances(raw[..., :MEDIAN].flip(-1)).flip(-1)
        above = self._distances(raw[..., MEDIAN + 1 :])
        return torch.cat([median - below, median, median + above], dim=-1)

    def _distances(self, raw: Tensor) -> Tensor:
        """Return how far the limits of the intervals (..., 2) are from the median on one side."""
        learned = F.softplus(raw).cumsum(-1)
        if self.training:
            return learned
        wide = learned * self.widening
        return torch.cat([wide[..., :1], wide.amax(-1, keepdim=True)], dim=-1)


class SeriesTask(Task):
    """Forecast the next `horizon` steps of series, as quantiles.

    The model reads `context` steps of a series, then the steps to be forecast, which have a simple forecast in place
    of the values. At those steps it outputs how far the quantiles are from the simple forecast.

    Metrics: `mase` is the mean absolute error of the median, divided for each series by that of repeating the season
    before in the training part; `mae`, `rmse` and `pinball` (mean over the quantiles) are in the units of the file;
    `coverage_80` and `coverage_95` are percentages of values inside the intervals. With `_last` and `_seasonal` they
    are those of repeating the last value and the last season, on the same windows.

    **Arguments:**

    - `series`: the series.
    - `settings`: `context` is the known steps in a window; `limit` and `evaluation_limit` count windows in an epoch,
      and for validation and test each. They are evenly spaced. Default: all, and 2,000.
    """

    metric = MASE
    starts_well = True

    def __init__(self, series: Series, settings: TaskSettings, *, own: bool = False) -> None:
        super().__init__(series, settings, own=own)
        self.facts = series.facts
        self.architecture = self.architecture_of(settings, series.facts, None)
        ends = np.cumsum(series.lengths)[:-1]
        arrays = (np.split(array, ends) for array in (series.values, series.observed, series.inputs))
        parts = [SeriesPart(*each) for each in zip(*arrays, series.facts.series.values(), strict=True)]
        self.windows = Windows(parts, series.facts, settings.context)
        self._limits = {split: settings.limited(10**9 if split == "train" else EVALUATED, split) for split in SPLITS}
        self._series = series
        self._places: dict[str, NDArray[np.int64]] = {}

    @classmethod
    def architecture_of(cls, settings: TaskSettings, facts: Facts | None, tokens: int | None) -> Architecture:
        """Return the architecture; before training the model forecasts what its simple forecast does."""
        if not isinstance(facts, SeriesFacts):
            raise ValueError("a model of series needs the facts of its data: columns and scalings")
        size = SERIES_FEATURES + facts.layout.size
        return Architecture(SequenceModel, len(QUANTILES), size, head=QuantileHead, zero_head=True)

    def _windows_of(self, split: str) -> NDArray[np.int64]:
        """Return the windows (W, 2) of a split; raise ValueError if it has none. They are found when first used."""
        if split not in self._places:
            self._places[split] = _places(self._series, split, self._limits[split])
        return self._places[split]

    def steps_per_epoch(self) -> int:
        return len(groups(len(self._windows_of("train")), self.batch_size))

    def epoch(self, generator: torch.Generator) -> Batches:
        order = shuffled(len(self._windows_of("train")), self.batch_size, generator)
        return Batches(len(order), lambda number: self._batch(self._windows_of("train")[order[number]]))

    def _batch(self, places: NDArray[np.int64]) -> Batch:
        series, origins = places.T
        inputs = torch.from_numpy(self.windows.features(series, origins))  # (T + H, B, m)
        targets = torch.from_numpy(self.windows.targets(series, origins))  # (H, B)
        return Batch(inputs, targets, None, fresh=True, tokens=inputs.shape[0] * inputs.shape[1])

    def _loss(self, model: nn.Module, batch: Batch, state: LayerState) -> tuple[Tensor, LayerState]:
        quantiles, _ = model(batch.inputs, skip=len(batch.inputs) - len(batch.targets))  # (H, B, Q)
        there = ~batch.targets.isnan()
        losses = pinball(quantiles, batch.targets.nan_to_num().to(quantiles.dtype))
        return losses.mean(-1).where(there, 0).sum() / there.sum().clamp(min=1), None

    def _calibrate(self, model: nn.Module) -> None:
        """Set how much wider than learned the intervals are: so that they hold their share of the known values.

        This is split conformal prediction. A value's score is its distance from the median, in widths of the interval
        on that side; an interval is widened to the quantile of the scores at its share. It must hold its share of the
        validation part, which the weights were not fitted to, and of the training part, since the validation part
        of a short series may happen to be calm.
        """
        head = model.head
        assert isinstance(head, QuantileHead)
        head.widening.fill_(1.0)
        head.widening.copy_(torch.maximum(*(self._widening(model, split) for split in ("valid", "train"))))

    def _widening(self, model: nn.Module, split: str) -> Tensor:
        """Return the quantiles (2,) of the scores of a split."""
        scores = torch.cat([self._interval_scores(model, places) for places in self._evaluated(split)])  # (n, 2)
        steps = self.windows.steps_ahead(*self._windows_of(split).T)
        count = len(np.unique(steps[self.windows.observed[steps]]))  # overlapping windows do not make more values
        levels = [min(math.ceil((count + 1) * share / 100) / count, 1.0) for share in INTERVALS]
        widenings = [
            np.quantile(column, level, method="higher") for column, level in zip(scores.T.cpu(), levels, strict=True)
        ]
        return scores.new_tensor(widenings)

    def _interval_scores(self, model: nn.Module, places: NDArray[np.int64]) -> Tensor:
        """Return the scores (n, 2) of the known values in windows, for both intervals."""
        quantiles, targets = self._outputs(model, places)
        median = quantiles[..., MEDIAN]
        scores = []
        for low, high in INTERVALS.values():
            below, above = median - quantiles[..., low], quantiles[..., high] - median
            scores.append(torch.maximum((median - targets) / below, (targets - median) / above))
        return torch.stack(scores, dim=-1)[~targets.isnan()]

    def _evaluated(self, split: str) -> Iterator[NDArray[np.int64]]:
        """Yield the windows of a split, at most `EVALUATED`, a batch at a time."""
        places = self._windows_of(split)[spaced(len(self._windows_of(split)), EVALUATED)]
        for start in range(0, len(places), EVALUATION_BATCH):
            yield places[start : start + EVALUATION_BATCH]

    def _outputs(self, model: nn.Module, places: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the quantiles (H, B, Q) that the model outputs for windows, and the targets (H, B)."""
        batch = self._batch(places).to(device_of(model))
        quantiles, _ = model(batch.inputs, skip=self.context)
        return quantiles, batch.targets

    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        sums: dict[str, float] = {}
        count, loss = 0, 0.0
        for places in self._evaluated(split):
            outputs, targets = self._outputs(model, places)
            losses = pinball(outputs, targets.nan_to_num().to(outputs.dtype)).mean(-1)[~targets.isnan()]
            series, origins = places.T
            forecasts = self.windows.forecasts(series, origins, outputs.double().cpu().numpy())  # (H, B, Q)
            actual = self.windows.actual(*places.T)  # (B, H)
            there = ~np.isnan(actual)
            naive = np.broadcast_to(self.windows.scale("naive", places[:, 0]), actual.shape)[there]
            scores = _errors(forecasts[..., MEDIAN].T[there] - actual[there], naive)
            quantiles = torch.from_numpy(forecasts.transpose(1, 0, 2)[there])
            scores["pinball"] = pinball(quantiles, torch.from_numpy(actual[there])).mean(-1).numpy()
            for share, (low, high) in INTERVALS.items():
                inside = (quantiles[:, low].numpy() <= actual[there]) & (actual[there] <= quantiles[:, high].numpy())
                scores[f"coverage_{share}"] = np.where(inside, 100.0, 0.0)
            for base in BASELINES:
                errors = self.windows.simple(base, *places.T)[there] - actual[there]
                scores |= {f"{name}_{base}": values for name, values in _errors(errors, naive).items()}
            count, loss = count + int(there.sum()), loss + float(losses.double().sum())
            for name, values in scores.items():
                sums[name] = sums.get(name, 0.0) + float(values.sum())
        means = {name: value / max(count, 1) for name, value in sums.items()}
        means |= {name: means[name] ** 0.5 for name in means if name.startswith("rmse")}
        return {**means, "loss": loss / max(count, 1)}

    def _details(self, model: nn.Module) -> dict[str, object]:
        """Return the last forecasts of the test part of a few series, with what came before and what came true."""
        test = self._windows_of("test")
        last = np.array([test[test[:, 0] == number][-1] for number in np.unique(test[:, 0])[:MAX_FANS]])
        outputs, _ = self._outputs(model, last)
        forecasts = self.windows.forecasts(last[:, 0], last[:, 1], outputs.double().cpu().numpy())  # (H, B, Q)
        actual = self.windows.actual(*last.T)  # (B, H)
        baselines = {base: self.windows.simple(base, *last.T) for base in BASELINES}  # (B, H) each
        names = list(self.facts.series)
        fans = []
        for number, (series, origin) in enumerate(last.tolist()):
            first = max(origin + 1 - min(FAN_HISTORY * self.windows.horizon, MAX_HISTORY), 0)
            places = self.windows.starts[series] + np.arange(first, origin + 1)
            history = np.where(self.windows.observed[places], self.windows.values[places], np.nan)
            fans.append(
                {
                    "name": names[series],
                    "times": self._times(series, first, origin + 1 + min(self.windows.horizon, MAX_HISTORY)),
                    "history": _plain(history),
                    "actual": _plain(actual[number][:MAX_HISTORY]),
                    "quantiles": [_plain(row) for row in forecasts[:MAX_HISTORY, number]],
                    **{base: _plain(values[number][:MAX_HISTORY]) for base, values in baselines.items()},
                }
            )
        return {"target": self.facts.layout.target, "fans": fans}

    def _times(self, series: int, first: int, end: int) -> list[str]:
        """Return the times of the steps of a series from `first` up to `end`; empty without times."""
        if self.facts.layout.frequency is None or not self.facts.starts:
            return []
        start = np.datetime64(self.facts.starts[series], "us")
        return [_short_time(time) for time in self.facts.layout.frequency.times(start, np.arange(first, end))]


def _plain(values: NDArray[np.float64]) -> list[float | None]:
    """Return numbers with six digits as JSON values, None for NaN."""
    return [None if np.isnan(value) else float(f"{value:.6g}") for value in values.tolist()]


def _short_time(time: np.datetime64) -> str:
    """Format a time without the parts that are zero: `2026-01-31`, `2026-01-31 13:00`."""
    text = str(time.astype("datetime64[us]")).removesuffix(".000000").removesuffix(":00").removesuffix("T00:00")
    return text.replace("T", " ")


def pinball(quantiles: Tensor, values: Tensor) -> Tensor:
    """Return the pinball loss (..., Q) of quantiles (..., Q) for values (...)."""
    levels = quantiles.new_tensor(QUANTILES)
    above = values[..., None] - quantiles
    return torch.maximum(levels * above, (levels - 1) * above)


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


def _errors(errors: NDArray[np.float64], naive: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    size = np.abs(errors)
    return {"mase": size / naive, "mae": size, "rmse": errors**2}


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
