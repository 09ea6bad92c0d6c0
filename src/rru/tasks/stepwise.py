"""Forecasting models of version 0.2, which read a series step by step. They can be used, but no longer trained."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.data.own.data_json import SeriesFacts
from rru.data.own.scaling import recent_mean, simple_forecasts
from rru.tasks.models import Architecture, SequenceModel
from rru.tasks.windows import Places, SeriesPart, Windows

FEATURES = 6
"""Features of each step besides the inputs: value, change since the season before, whether it is known, whether it is
to be forecast, how far ahead it is, and the level of the window."""
MAX_FEATURE = 20.0
MEDIAN, QUANTILES = 2, 5


def architecture(facts: SeriesFacts) -> Architecture:
    """Return the architecture of a model of version 0.2."""
    size = FEATURES + facts.layout.size
    return Architecture(SequenceModel, QUANTILES, size, head=QuantileHead, zero_head=True)


class QuantileHead(nn.Linear):
    """Return quantiles (..., 5) in increasing order; the intervals are `widening` times as wide as learned."""

    widening: Tensor  # (2,), of the 80 % and 95 % intervals

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.register_buffer("widening", torch.ones(2))

    def forward(self, features: Tensor) -> Tensor:
        """Return quantiles (..., 5) of features (..., p)."""
        raw = super().forward(features)
        median = raw[..., MEDIAN : MEDIAN + 1]
        below = self._distances(raw[..., :MEDIAN].flip(-1)).flip(-1)
        above = self._distances(raw[..., MEDIAN + 1 :])
        return torch.cat([median - below, median, median + above], dim=-1)

    def _distances(self, raw: Tensor) -> Tensor:
        wide = F.softplus(raw).cumsum(-1) * self.widening
        return torch.cat([wide[..., :1], wide.amax(-1, keepdim=True)], dim=-1)


class StepwiseWindows(Windows):
    """Windows as such a model reads them: `context` steps, then those to be forecast, with a simple forecast there."""

    def __init__(self, series: Sequence[SeriesPart], facts: SeriesFacts, context: int) -> None:
        super().__init__(series, facts, context)
        self.base, self.skip = facts.base, context

    def features(self, series: Places, origins: Places) -> NDArray[np.float32]:
        last, starts = self._at(series, origins)
        places = np.clip(last[:, None] + self._steps, starts[:, None], last[:, None])  # (B, T + H)
        ahead = self._steps > 0
        there = (last[:, None] + self._steps >= starts[:, None]) & ~ahead
        centre = recent_mean(self._transformed, last, starts, self.season)[:, None]
        values = self._transformed[places]
        values[:, ahead] = self._start(last, starts)
        before = np.maximum(places - self.season, starts[:, None])
        change = np.where(there, self._transformed[places] - self._transformed[before], 0)
        level = np.tanh((centre - self.scale("centre", series)) / self.scale("deviation", series))
        parts = [
            (values - centre) / self.scale("spread", series),
            change / self.scale("unit", series),
            there & self.observed[places],
            np.broadcast_to(ahead, places.shape),
            np.broadcast_to(np.maximum(self._steps, 0) / self.horizon, places.shape),
            np.broadcast_to(level, places.shape),
        ]
        features = np.clip(np.stack(parts, axis=-1).astype(np.float32), -MAX_FEATURE, MAX_FEATURE)
        return np.concatenate([features, self._inputs(series, origins)], axis=-1).transpose(1, 0, 2)

    def forecasts(self, series: Places, origins: Places, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
        start = self._start(*self._at(series, origins))
        return self._restored(series, outputs * self._numbers["unit"][series][:, None] + start.T[..., None])

    def _start(self, last: Places, starts: Places) -> NDArray[np.float64]:
        """Return the forecast that the model starts from, (B, H), transformed."""
        return simple_forecasts(self.base, self._transformed, last, starts, self.horizon, self.season)
