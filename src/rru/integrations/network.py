"""The network of rru's forecasts, for libraries that train networks themselves: darts and neuralforecast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rru.data.own.seasons import find_seasons
from rru.kinds.series import CELLS
from rru.nn import Layer, layer_class
from rru.tasks.cross_entropy import full_precision
from rru.tasks.forecaster import Forecaster, WindowShape
from rru.tasks.linear_start import StartSeries, fit_start
from rru.tasks.models import Architecture

MAX_PATCH, MIN_PATCHES = 32, 4
MIN_SCALE = 1e-7  # deviation of a window; below, it is taken as constant
MIN_SERIES = 4  # steps beyond the horizon that a series needs to say something about the linear forecast


@dataclass(frozen=True)
class NetworkOptions:
    """How a `WindowNetwork` is built.

    **Arguments:**

    - `cell`, `hidden_size`, `num_layers`, `dropout`: of the recurrent layers.
    - `patch`: steps that the layers read at once; must divide the context. Default: at most 32, at least four patches.
    - `season`: steps after which a pattern repeats. Default: found in the series.
    """

    cell: str = "rru"
    hidden_size: int = 64
    num_layers: int = 1
    dropout: float = 0.1
    patch: int | None = None
    season: int | None = None

    def layers(self, input_size: int, *, batch_first: bool = False) -> Layer:
        """Return recurrent layers for so many inputs, with the options of `rru train` on series."""
        more: Mapping[str, Any] = CELLS.get(self.cell, {}).get("model", {})
        return layer_class(self.cell)(
            input_size,
            self.hidden_size,
            num_layers=self.num_layers,
            dropout=self.dropout,
            batch_first=batch_first,
            **more,
        )


class WindowNetwork(Forecaster):
    """A linear forecast from a window, and what recurrent layers that read patches add to it; see `Forecaster`.

    Its outputs are the parameters of whatever the library forecasts: values, quantiles, or a distribution.

    **Arguments:** `shape`: of windows; `located`: for each parameter, whether the linear forecast is added to it;
    `options`: of the layers.
    """

    def __init__(self, shape: WindowShape, located: Sequence[bool], options: NetworkOptions) -> None:
        layers = options.layers(shape.patch_features)
        outputs = shape.horizon * len(located)
        super().__init__(layers, Architecture(WindowNetwork, outputs, zero_head=True, window=shape))
        self.located = tuple(located)
        self.season = options.season

    def outputs(self, values: Tensor, known: Tensor, past: Tensor | None, future: Tensor | None) -> Tensor:
        """Return the parameters of each step (B, H, parameters).

        **Arguments:**

        - `values`: (B, C), those of the context, in any units.
        - `known`: (B, C), 1 where a value is known, 0 where it was filled in.
        - `past`: (B, C, past), inputs of the context.
        - `future`: (B, C + H, known), inputs that are known in advance.
        """
        shape = self.shape
        scale = values.std(dim=1, keepdim=True)
        scale = torch.where(scale > MIN_SCALE, scale, torch.ones_like(scale))  # (B, 1)
        values = values / scale
        inputs = values.new_zeros(len(values), shape.context + shape.horizon, shape.step_features)
        inputs[:, : shape.context, 0], inputs[:, : shape.context, 1] = values, known
        if past is not None and shape.past:
            inputs[:, : shape.context, 2 : 2 + shape.past] = past
        if future is not None and shape.known:
            inputs[:, :, 2 + shape.past :] = future
        start, centred, context, ahead = self.linear(inputs.transpose(0, 1))  # (C + H, B, features)
        raw, _ = self.raw(centred, context, ahead, None)  # (H, B, parameters)
        with full_precision(values.device):
            forecast = start + self.change @ centred  # (H, B)
        located = torch.tensor(self.located, device=raw.device)
        restored = (raw + forecast.unsqueeze(-1)) * scale.unsqueeze(0)  # (H, B, parameters)
        return torch.where(located, restored, raw).transpose(0, 1)

    def fit_linear(self, series: Sequence[NDArray[np.float64]], shift: int = 0) -> None:
        """Find the linear forecast that the network starts from.

        It does not depend on the level and the size of values, so that windows may be scaled in any way.

        **Arguments:** `series`: values (T,); NaN is missing. `shift`: steps between a context and what is forecast.
        """
        shape = replace(self.shape, horizon=self.shape.horizon + shift, past=0, known=0)
        scaled = [_scaled(values) for values in series if len(values) >= shape.horizon + MIN_SERIES]
        scaled = [values for values in scaled if np.ptp(values)]
        if not scaled:
            return
        seasons, _ = find_seasons(None, scaled, self.season)
        parts = [StartSeries(values, np.zeros((len(values), 0), np.float32)) for values in scaled]
        start = fit_start(parts, shape, seasons)
        self.level.copy_(torch.from_numpy(start.level))
        self.start.copy_(torch.from_numpy(start.forecast[shift:]))


def patch_of(context: int) -> int:
    """Return the steps of a patch: the most that divide the context, at most 32, so that there are at least four."""
    fitting = [size for size in range(1, MAX_PATCH + 1) if context % size == 0 and context // size >= MIN_PATCHES]
    return max(fitting, default=1)


def window_shape(context: int, horizon: int, options: NetworkOptions, past: int, known: int) -> WindowShape:
    """Return the shape of windows; raise ValueError if the patch does not divide the context."""
    patch = patch_of(context) if options.patch is None else options.patch
    if patch < 1 or context % patch:
        raise ValueError(f"patch must divide the {context} steps of the context, got {patch}")
    return WindowShape(context, horizon, patch, options.season or 1, past, known)


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values (T,) with mean 0 and deviation 1; a missing one is the value before."""
    places = np.maximum.accumulate(np.where(np.isnan(values), 0, np.arange(len(values))))
    filled = values[places]
    filled = np.where(np.isnan(filled), np.nanmean(values), filled)
    return np.asarray((filled - filled.mean()) / (filled.std() or 1.0), np.float64)
