"""Settings derived from the size of a user's data, for the presets `auto` (docs/preset-auto.md) and `smoke`.

They depend only on the counts of the data, which a run keeps, so that the report can tell later what was changed.
"""

from collections.abc import Callable, Mapping

from rru.data import SPLITS
from rru.data.own.data_json import Statistics
from rru.tasks import TaskSettings

BATCHES = 100  # an epoch should have as many, if the data allows it
MIN_BATCH, MAX_BATCH = 4, 64
OUTPUT_SIZE = 128  # of the RRU

Tables = Mapping[str, Mapping[str, float | str]]
"""Settings by table and name."""


def _cells(output_size: int, rank: int, **more: str) -> Mapping[str, Tables]:
    return {
        "rru": {"model": {"expansion": 2.0, "relu_layers": 1, "output_size": output_size, **more}},
        "lstm": {"model": {"forget_bias": 1.0}},
        "mogrifier": {"model": {"rounds": 5, "rank": rank}},
    }


CELLS = _cells(output_size=OUTPUT_SIZE, rank=40)  # as in the paper's experiments without tuned values
BALANCED_CELLS = _cells(output_size=OUTPUT_SIZE, rank=40, init="balanced")
NARROW_CELLS = _cells(output_size=64, rank=20)
SMALL_CELLS = _cells(output_size=16, rank=4)
SMOKE_CELLS: Mapping[str, Tables] = {
    "rru": {"model": {"expansion": 1.0, "output_size": 16}},
    "mogrifier": {"model": {"rank": 4}},
}


def decaying(
    epochs: int, task: Mapping[str, float | str], model: Mapping[str, float]
) -> dict[str, dict[str, float | str]]:
    """Return settings in which the learning rate decays to zero over so many epochs, and weights are averaged.

    A run that has not improved for half of its epochs overfits, and ends.
    """
    return {
        "task": dict(task),
        "model": {"num_layers": 1, **model},
        "optimiser": {"lr": 0.003, "clip": 5.0, "ema": 0.99},
        "schedule": {"epochs": epochs, "patience": max(epochs // 2, 3), "decay": "cosine", "warmup": 0.05},
    }


def smoke(statistics: Statistics) -> Tables:
    """Return what the preset `smoke` changes: a few steps of a tiny model, to see that everything works."""
    return {
        "task": {"batch_size": 8, "limit": 32, "evaluation_limit": 16},
        "model": {"dropout": 0.1, "budget": 20_000},
        "optimiser": {"lr": 0.005},
        "schedule": {"epochs": 2},
    }


def smoke_tokens(statistics: Statistics, per_token: int) -> Mapping[str, float]:
    """Return the changes of `smoke` to models of tokens, with so many parameters for each token."""
    return {"dropout": 0.1, "embedding_size": 8, "budget": 20_000 + statistics["vocabulary"] * per_token}


def counted(steps: str, items: str) -> Callable[[Statistics, int, TaskSettings], float | None]:
    """Return what counts the time steps of a split, from the counts of `steps` and of `items`; a limit counts items."""

    def count(statistics: Statistics, split: int, settings: TaskSettings) -> float | None:
        if steps not in statistics:
            return None
        total = statistics[items][split]
        return float(statistics[steps][split] * settings.limited(total, SPLITS[split]) / total)

    return count


def scaled(budget: int, scale: float, inputs: int) -> int:
    """Return a multiple of a budget, with room for an RRU, whose size grows with the square of the number of inputs."""
    return max(int(budget * scale), 3 * (inputs + 16) * (inputs + 16 + OUTPUT_SIZE))


def between(value: int, low: int, high: int) -> int:
    """Return the value, within bounds."""
    return max(min(value, high), low)


def power_of_two(value: float, low: int, high: int) -> int:
    """Return the largest power of two that is at most `value`, within bounds."""
    power = 1
    while power * 2 <= value:
        power *= 2
    return between(power, low, high)


def by_size(steps: int, *rules: tuple[int, float]) -> float:
    """Return the value of the first rule whose size is above `steps`; the last rule has no size."""
    return next((value for size, value in rules if steps < size), rules[-1][1])


def rounded(budget: int, outside: int = 0) -> int:
    """Return the sum of the budgets for the recurrent layer and for embedding and head (`outside`).

    It is rounded to the second digit of `budget`, so that it reads well and the layer keeps its part.
    """
    digits = max(len(str(budget)) - 2, 0)
    return round(budget + outside, -digits)
