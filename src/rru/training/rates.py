"""The learning rate of each step: a warm-up, then a decay over the planned steps."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rru.settings.tables import Schedule


def rate_share(step: int, planned: int, schedule: Schedule) -> float:
    """Return the share of its learning rate that a step is made with, from 0 to 1.

    It depends on the arguments alone, so that a resumed run needs no more than its step count. The warm-up rises in
    equal parts; the step after it has the whole rate. The decay reaches zero just after the last planned step, so that
    no step is without effect.

    **Arguments:**

    - `step`: the steps made before.
    - `planned`: the steps of all epochs in the schedule, at least 1.
    - `schedule`: its `decay` and `warmup` count.
    """
    warmup = min(round(schedule.warmup * planned), planned - 1)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if schedule.decay == "none":
        return 1.0
    done = min((step - warmup) / (planned - warmup), 1.0)
    return 1 - done if schedule.decay == "linear" else (1 + math.cos(math.pi * done)) / 2


@contextmanager
def scaled_rates(optimiser: torch.optim.Optimizer, share: float) -> Iterator[None]:
    """Multiply the learning rate of each parameter group by a share inside the `with` block.

    Afterwards each has its own rate again, so that checkpoints have that one.
    """
    rates = [group["lr"] for group in optimiser.param_groups]
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = rate * share
    try:
        yield
    finally:
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate
