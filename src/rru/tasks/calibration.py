"""What is found after training, not trained: how much to trust a forecaster, and how wide its intervals are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rru.tasks.accuracy import INTERVALS, trimmed_mean
from rru.tasks.forecaster import MEDIAN, Forecaster, ordered

if TYPE_CHECKING:
    from rru.tasks.series import SeriesTask

TRUSTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # how much of its correction a model may be left
MIN_WIDTH = 1e-9  # of an interval that is to be widened
OWN_SHARE = 0.5  # how far the width of a series follows its own scores if it has many: the rest is that of all series
OWN_STEPS = 10  # of a series, with which it follows half as far
SMALL_SCORE = 0.1  # added to scores before their logarithm: how close a forecast happens to be says little
MAX_OWN = 0.7  # largest logarithm of the width of a series


def calibrate(task: SeriesTask, model: Forecaster) -> None:
    """Set the trust, the widths of series and the widening of a model.

    The trust is the one with the least loss on the validation part. With none of it, the model is the linear forecast
    that it started from. The widths are found by split conformal prediction: a value's score is its distance from the
    median, in widths of the interval on that side; an interval is widened to the quantile of the scores at its share.
    It must hold its share of the validation part, which the weights were not fitted to, and of the training part, since
    the validation part of a short series may happen to be calm. Series whose scores are higher than those of the others
    get wider intervals first.
    """
    model.widening.fill_(1.0)
    model.widths.fill_(1.0)
    losses = [_loss(task, model, trust) for trust in TRUSTS]
    model.trust.fill_(TRUSTS[int(np.argmin(losses))])
    model.widths.copy_(widths_of_series(task, model, ("valid",)))
    model.widening.copy_(torch.maximum(*(_widening(task, model, split) for split in ("valid", "train"))))


def widths_of_series(task: SeriesTask, model: Forecaster, splits: Sequence[str]) -> Tensor:
    """Return how wide the intervals of each series (S,) are to be relative to those of all series, 1 on average.

    A series follows its own scores the further the more of its steps are in the splits; 1 if none is.
    """
    count = len(task.windows.starts)
    sums, values = np.zeros(count), np.zeros(count)
    steps = np.zeros(count)
    for split in splits:
        for places in task.evaluated(split):
            scores = _scores(*task.outputs(model, places))[..., 0].double().cpu().numpy()  # (H, B), NaN where not known
            logs = np.log(np.maximum(scores, 0) + SMALL_SCORE)
            np.add.at(sums, places[:, 0], np.nansum(logs, axis=0))
            np.add.at(values, places[:, 0], (~np.isnan(logs)).sum(axis=0))
        steps += task.known_steps(split)
    there = values > 0
    own = np.where(there, sums / np.maximum(values, 1), 0.0)
    own = np.where(there, own - own[there].mean(), 0.0) if there.any() else own
    share = OWN_SHARE * steps / (steps + OWN_STEPS)
    return torch.from_numpy(np.exp(np.clip(share * own, -MAX_OWN, MAX_OWN))).to(model.widths)


def _loss(task: SeriesTask, model: Forecaster, trust: float) -> float:
    """Return the loss on the validation part if the correction counts `trust` times."""
    losses, series = [], []
    for places in task.evaluated("valid"):
        batch = task.batch(places, model)
        start, correction, distances, _ = model.parts(batch.inputs)
        quantiles = ordered(start + trust * correction, distances, model.widening)
        losses.append(task.window_losses(quantiles, batch.targets, places))
        series.append(places[:, 0])
    return trimmed_mean(np.concatenate(losses), np.concatenate(series))


def _widening(task: SeriesTask, model: Forecaster, split: str) -> Tensor:
    """Return the quantiles (2,) of the scores of a split."""
    found = [_scores(*task.outputs(model, places)) for places in task.evaluated(split)]
    scores = torch.cat([each[~each[..., 0].isnan()] for each in found])  # (n, 2)
    count = int(task.known_steps(split).sum())  # overlapping windows do not make more values
    levels = [min(math.ceil((count + 1) * share / 100) / count, 1.0) for share in INTERVALS]
    widenings = [
        np.quantile(column, level, method="higher") for column, level in zip(scores.T.cpu(), levels, strict=True)
    ]
    return scores.new_tensor(widenings)


def _scores(quantiles: Tensor, targets: Tensor) -> Tensor:
    """Return the scores (H, B, 2) of values (H, B) for both intervals; NaN where a value is not known."""
    median = quantiles[..., MEDIAN]
    scores = []
    for low, high in INTERVALS.values():
        widths = (median - quantiles[..., low], quantiles[..., high] - median)
        below, above = (width.clamp(min=MIN_WIDTH) for width in widths)
        scores.append(torch.maximum((median - targets) / below, (targets - median) / above))
    return torch.stack(scores, dim=-1)
