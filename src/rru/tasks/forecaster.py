"""The model that forecasts series: a linear forecast, and what recurrent layers that read patches add to it."""

import copy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rru.nn import Layer
from rru.tasks.cross_entropy import full_precision, head_logits
from rru.tasks.models import Architecture, LayerState, Recurrent
from rru.tasks.windows import STEP_FEATURES

QUANTILES = (0.025, 0.1, 0.5, 0.9, 0.975)
"""The limits of the 95 % and 80 % intervals, and the median."""
MEDIAN = 2
PATCH_FEATURES = 2
"""Features of a patch besides its values and inputs: the share of known values, and the variability of the window."""
MAX_FEATURE = 20.0
MIN_VARIABILITY = 0.01
KNOWN_UNITS = 32  # of the layer for inputs that are known in advance


@dataclass(frozen=True)
class WindowShape:
    """The steps and features of a window.

    **Arguments:**

    - `context`, `horizon`: known steps, and steps to forecast.
    - `patch`: steps of the context that the layers read at once; divides `context`.
    - `season`: steps after which a pattern repeats.
    - `past`, `known`: the number of inputs that are not known in advance, and that are.
    - `series`: the number of series that the model is trained on.
    """

    context: int
    horizon: int
    patch: int
    season: int
    past: int = 0
    known: int = 0
    series: int = 1

    @property
    def step_features(self) -> int:
        """The number of features of a step."""
        return STEP_FEATURES + self.past + self.known

    @property
    def patch_features(self) -> int:
        """The number of features of a patch."""
        return self.patch + PATCH_FEATURES + self.past + self.known


class Forecaster(Recurrent):
    """Forecast quantiles of the steps after a window.

    The values of a window are centred on their level, which is linear in them. The median is a linear forecast from
    the centred values, plus a correction: a trained linear map, and a head on the output of the recurrent layers, which
    read the context patch by patch. The linear forecast is fitted before training (`rru.tasks.linear_start`), so an
    untrained model forecasts as it does. Effects of inputs that are known in advance are taken off the values first,
    and added to the forecasts.

    Outside training, the correction counts `trust` times, and intervals are `widening` times as wide as learned;
    `widened` multiplies that by the width of each series. See `rru.tasks.calibration`.

    **Shapes:** C = context, H = horizon, Q = quantiles.
    """

    level: Tensor  # (C,), weights of the values whose sum is the level
    start: Tensor  # (H, C), the linear forecast
    effects: Tensor  # (known,), of the inputs that are known in advance
    trust: Tensor  # ()
    widening: Tensor  # (2,), of the 80 % and 95 % intervals
    widths: Tensor  # (S,), of the intervals of each series relative to those of all

    def __init__(self, layers: Layer, architecture: Architecture) -> None:
        super().__init__(layers, architecture)
        shape = architecture.window
        assert isinstance(shape, WindowShape)
        self.shape, self.step_outputs = shape, architecture.outputs // shape.horizon
        self.change = nn.Parameter(torch.zeros(shape.horizon, shape.context))
        self.register_buffer("level", F.one_hot(torch.tensor(shape.context - 1), shape.context).float())
        self.register_buffer("start", torch.zeros(shape.horizon, shape.context))
        self.register_buffer("effects", torch.zeros(shape.known))
        self.register_buffer("trust", torch.ones(()))
        self.register_buffer("widening", torch.ones(2))
        self.register_buffer("widths", torch.ones(shape.series))
        if shape.known:
            self.known_units = nn.Linear(layers.output_size + shape.known, KNOWN_UNITS)
            self.known_head = nn.Linear(KNOWN_UNITS, self.step_outputs)
            nn.init.zeros_(self.known_head.weight)
            nn.init.zeros_(self.known_head.bias)

    @property
    def window_steps(self) -> int:
        return self.shape.context + self.shape.horizon

    def example(self, *sizes: int) -> Tensor:
        return torch.zeros(*sizes, self.shape.step_features)

    def forward(
        self, inputs: Tensor, state: LayerState = None, *, lengths: Tensor | None = None, skip: int = 0
    ) -> tuple[Tensor, LayerState]:
        """Return scaled quantiles (H, B, Q) for windows (C + H, B, features), and the final state of the layers.

        The features of a step are those of `rru.tasks.Windows`. `lengths` and `skip` are not used.
        """
        start, correction, distances, last = self.parts(inputs, state)
        widening = torch.ones_like(self.widening) if self.training else self.widening
        median = start + (correction if self.training else self.trust * correction)
        return ordered(median, distances, widening), last

    def widened(self, quantiles: Tensor, numbers: NDArray[np.int64]) -> Tensor:
        """Return quantiles (H, B, Q) with intervals as wide as their series need them.

        **Arguments:** `numbers`: (B,), the places of the series among those trained on; -1 is any other.
        """
        widths = torch.cat([self.widths, self.widths.new_ones(1)])[torch.from_numpy(numbers)]  # the last is that of -1
        median = quantiles[..., MEDIAN, None]
        return median + (quantiles - median) * widths[:, None]

    def parts(self, inputs: Tensor, state: LayerState = None) -> tuple[Tensor, Tensor, Tensor, LayerState]:
        """Return the linear forecast (H, B), the correction (H, B), raw distances (H, B, 4), and the final state."""
        start, centred, context, future = self.linear(inputs)
        return start, *self.correct(centred, context, future, state)

    def linear(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the linear forecast (H, B), centred values (C, B), and the features of context and future."""
        shape = self.shape
        inputs = inputs.to(self.change.dtype)
        context, future = inputs[: shape.context], inputs[shape.context :]
        values, known = context[..., 0], slice(STEP_FEATURES + shape.past, None)
        with full_precision(inputs.device):
            if shape.known:  # ONNX Runtime leaves a product with no inputs uninitialised
                values = values - context[..., known] @ self.effects  # (C, B)
            level = self.level @ values  # (B,)
            centred = values - level
            start = self.start @ centred + level
            if shape.known:
                start = start + future[..., known] @ self.effects
        return start, centred, context, future

    def correct(
        self, centred: Tensor, context: Tensor, future: Tensor, state: LayerState
    ) -> tuple[Tensor, Tensor, LayerState]:
        """Return correction, raw distances and final state, from centred values (C, B) and the features of steps."""
        raw, last = self.raw(centred, context, future, state)
        distances = torch.cat([raw[..., :MEDIAN], raw[..., MEDIAN + 1 :]], dim=-1)
        with full_precision(centred.device):
            return raw[..., MEDIAN] + self.change @ centred, distances, last

    def raw(self, centred: Tensor, context: Tensor, future: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """Return what the heads give for each step (H, B, Q), and the final state; arguments as for `correct`."""
        shape = self.shape
        output, last = self.run(self._patches(centred, context), state, None)  # (patches, B, p)
        raw = head_logits(self.head, output[-1])  # (B, H Q)
        raw = raw.reshape(-1, shape.horizon, self.step_outputs).transpose(0, 1)  # (H, B, Q)
        if shape.known:
            raw = raw + self._known(output[-1], future[..., STEP_FEATURES + shape.past :])
        return raw, last

    def _patches(self, centred: Tensor, context: Tensor) -> Tensor:
        """Return the features (patches, B, m) that the layers read, of centred values (C, B)."""
        shape = self.shape
        patches = shape.context // shape.patch
        values = centred.clamp(-MAX_FEATURE, MAX_FEATURE).reshape(patches, shape.patch, -1).transpose(1, 2)
        size = variability(centred, context[..., 1], shape.season).log().expand(patches, -1)
        means = context[..., 1:].reshape(patches, shape.patch, *context[0, :, 1:].shape).mean(1)  # (patches, B, 1 + k)
        return torch.cat([values, size.unsqueeze(-1), means], dim=-1)

    def _known(self, output: Tensor, inputs: Tensor) -> Tensor:
        """Return what inputs (H, B, known) of the steps to forecast add to the quantiles."""
        joined = torch.cat([output.expand(len(inputs), -1, -1), inputs], dim=-1)
        added: Tensor = self.known_head(F.relu(self.known_units(joined)))
        return added


class Ensemble(Forecaster):
    """Several forecasters with the same linear forecast, whose corrections and intervals are averaged.

    In training, each reads its own part of the windows.
    """

    def __init__(self, layers: Layer, architecture: Architecture) -> None:
        super().__init__(layers, architecture)
        self.others = nn.ModuleList()
        for _ in range(architecture.members - 1):
            own = copy.deepcopy(layers)
            own.reset_parameters()
            self.others.append(Forecaster(own, architecture))

    def correct(
        self, centred: Tensor, context: Tensor, future: Tensor, state: LayerState
    ) -> tuple[Tensor, Tensor, LayerState]:
        members = 1 + len(self.others)
        shares: list[tuple[Tensor, Tensor, Tensor]] = [(centred, context, future)] * members
        if self.training:
            split = (each.tensor_split(members, dim=1) for each in (centred, context, future))
            shares = list(zip(*split, strict=True))
        results = [super().correct(*shares[0], state)]
        for other, share in zip(self.others, shares[1:], strict=True):
            assert isinstance(other, Forecaster)
            results.append(other.correct(*share, state))
        corrections, distances, states = zip(*results, strict=True)
        if self.training:
            return torch.cat(corrections, dim=1), torch.cat(distances, dim=1), states[0]
        return torch.stack(corrections).mean(0), torch.stack(distances).mean(0), states[0]


def variability(values: Tensor, known: Tensor, season: int) -> Tensor:
    """Return the mean absolute seasonal difference (B,) in windows (C, B), at least `MIN_VARIABILITY`."""
    lag = season if season < len(values) else 1
    if len(values) <= lag:
        return values.new_full(values.shape[1:], 1.0)
    both = known[lag:] * known[:-lag]
    differences = (values[lag:] - values[:-lag]).abs() * both
    return differences.sum(0) / both.sum(0).clamp(min=1) + MIN_VARIABILITY


def ordered(median: Tensor, distances: Tensor, widening: Tensor) -> Tensor:
    """Return quantiles (..., Q) in increasing order, from a median (...) and raw distances (..., Q - 1)."""
    below = _distances(distances[..., :MEDIAN].flip(-1), widening).flip(-1)
    above = _distances(distances[..., MEDIAN:], widening)
    median = median.unsqueeze(-1)
    return torch.cat([median - below, median, median + above], dim=-1)


def _distances(raw: Tensor, widening: Tensor) -> Tensor:
    """Return how far the limits of the intervals (..., 2) are from the median on one side."""
    wide = F.softplus(raw).cumsum(-1) * widening
    return torch.cat([wide[..., :1], wide.amax(-1, keepdim=True)], dim=-1)


def pinball(quantiles: Tensor, values: Tensor) -> Tensor:
    """Return the pinball loss (..., Q) of quantiles (..., Q) for values (...)."""
    levels = quantiles.new_tensor(QUANTILES)
    above = values[..., None] - quantiles
    return torch.maximum(levels * above, (levels - 1) * above)
