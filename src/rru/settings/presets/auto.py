"""The preset `auto`: settings for a user's own data, derived from its size. docs/your-data.md explains the rules.

`settings` depends only on the kind of the data and on its counts, which a run keeps, so that the report can tell later
what was changed.
"""

from collections.abc import Mapping
from typing import Any

from rru.settings.tables import LANGUAGE

PRESETS = ("auto", "smoke")
MOST_WINDOWS = 8_000  # of series, in an epoch
BATCHES = 100  # an epoch should have as many, if the data allows it
LEAST_BATCH, MOST_BATCH = 4, 64

Tables = dict[str, dict[str, Any]]


def settings(kind: str, statistics: Mapping[str, Any]) -> Tables:
    """Returns the settings that all cells have in common.

    **Arguments:** `kind`: the kind of the data; `statistics`: its counts, see `rru.data.own.OwnData.statistics`.
    """
    rules = {"music": _music, "texts": _texts, "sequences": _sequences, "series": _series}
    rules |= dict.fromkeys(LANGUAGE, _text)
    return rules[kind](kind, statistics)


def _text(kind: str, statistics: Mapping[str, Any]) -> Tables:
    tokens, words = statistics["tokens"][0], kind == "words"
    context = _power_of_two(tokens / (4 * LEAST_BATCH), 8, 64 if words else 128)
    embedding = 64 if words else 32
    outside = statistics["vocabulary"] * (embedding + 129)  # embedding and head
    return _tables(
        steps=tokens,
        context=context,
        batch=_power_of_two(tokens / context / BATCHES, LEAST_BATCH, MOST_BATCH),
        budget=_between(tokens // 4, 60_000, 4_000_000),
        outside=outside,
        dropout=_by_size(tokens, (300_000, 0.5 if words else 0.4), (3_000_000, 0.4 if words else 0.2), (0, 0.1)),
        stateful=not words,
        embedding_size=embedding,
    )


def _music(kind: str, statistics: Mapping[str, Any]) -> Tables:
    steps, pieces = statistics["steps"][0], statistics["pieces"][0]
    context = _power_of_two(steps / max(pieces, 1) * 2, 32, 256)
    return _tables(
        steps=steps,
        context=context,
        batch=_power_of_two(steps / context * 2 / BATCHES, LEAST_BATCH, 16),
        budget=_between(steps * 20, 100_000, 1_500_000),
        dropout=_by_size(steps, (100_000, 0.6), (1_000_000, 0.4), (0, 0.2)),
    )


def _texts(kind: str, statistics: Mapping[str, Any]) -> Tables:
    words, texts = statistics["words"][0], statistics["texts"][0]
    embedding = 32
    return _tables(
        steps=words,
        context=_power_of_two(words / max(texts, 1) * 2, 16, 512),
        batch=_power_of_two(texts / BATCHES, LEAST_BATCH, MOST_BATCH),
        budget=_between(words // 20, 20_000, 300_000),
        outside=statistics["vocabulary"] * embedding,
        dropout=0.5,
        embedding_size=embedding,
    )


def _sequences(kind: str, statistics: Mapping[str, Any]) -> Tables:
    steps, sequences = statistics["steps"][0], statistics["sequences"][0]
    return _tables(
        steps=steps,
        context=statistics["longest"],
        batch=_power_of_two(sequences / 10, LEAST_BATCH, MOST_BATCH),
        budget=max(_between(steps * 2, 20_000, 300_000), _room(statistics.get("columns", 0), 128)),
        dropout=_by_size(steps, (100_000, 0.3), (0, 0.2)),
    )


def _series(kind: str, statistics: Mapping[str, Any]) -> Tables:
    steps, horizon = statistics["steps"][0], statistics["horizon"]
    longest = max(steps // statistics["series"] - horizon, 1)
    windows = min(steps, MOST_WINDOWS)
    found = _tables(
        steps=windows,
        context=min(_between(2 * max(statistics["season"], horizon), 16, 400), longest),
        batch=_power_of_two(steps / 8, 8, MOST_BATCH // 2),
        budget=max(_between(10 * steps, 4_000, 100_000) + 50 * statistics["inputs"], _room(statistics["inputs"], 16)),
        dropout=_by_size(steps, (5_000, 0.5), (50_000, 0.3), (0, 0.1)),
    )
    found["task"] |= {"limit": MOST_WINDOWS} if steps > MOST_WINDOWS else {}
    found["schedule"] = {"epochs": _between(60_000 // windows, 20, 60), "patience": 12}
    return found


def _tables(
    *,
    steps: int,
    context: int,
    batch: int,
    budget: int,
    outside: int = 0,
    dropout: float,
    stateful: bool | None = None,
    **model: Any,
) -> Tables:
    """Returns plain tables, with a schedule for the given number of training steps per epoch.

    The budget is the sum of `budget`, for the recurrent layer, and of `outside`, for the embedding and head.
    """
    epochs = _between(30_000_000 // max(steps, 1), 5, 200)
    task = {"context": context, "batch_size": batch} | ({} if stateful is None else {"stateful": stateful})
    return {
        "task": task,
        "model": {"budget": _rounded(budget, outside), "num_layers": 1, "dropout": dropout, **model},
        "optimiser": {"lr": 0.003, "clip": 5.0},
        "schedule": {"epochs": epochs, "patience": _between(epochs // 8, 3, 15)},
    }


OF_CELL: dict[str, dict[str, dict[str, Any]]] = {  # as in the paper's experiments without tuned values
    "rru": {"model": {"expansion": 2.0, "relu_layers": 1, "output_size": 128}},
    "lstm": {"model": {"forget_bias": 1.0}},
    "mogrifier": {"model": {"rounds": 5, "rank": 40}},
}
OF_SMALL_CELL: dict[str, dict[str, dict[str, Any]]] = {  # series need few parameters
    "rru": {"model": {"expansion": 2.0, "relu_layers": 1, "output_size": 16}},
    "lstm": {"model": {"forget_bias": 1.0}},
    "mogrifier": {"model": {"rounds": 5, "rank": 4}},
}


def of_cell(kind: str) -> Mapping[str, Mapping[str, Any]]:
    """Returns the settings that depend on the cell, by its name."""
    return OF_SMALL_CELL if kind == "series" else OF_CELL


SMOKE_OF_CELL: dict[str, dict[str, dict[str, Any]]] = {
    "rru": {"model": {"expansion": 1.0, "output_size": 16}},
    "mogrifier": {"model": {"rank": 4}},
}


def smoke(kind: str, statistics: Mapping[str, Any]) -> Tables:
    """Returns what the preset `smoke` changes: a few steps of a tiny model, to see that everything works."""
    language, embeds = kind in LANGUAGE, "vocabulary" in statistics
    model: dict[str, Any] = {"dropout": 0.1, "budget": 20_000}
    if embeds:
        model |= {"embedding_size": 8, "budget": 20_000 + statistics["vocabulary"] * (8 + 33 * language)}
    limits = {"limit": 2000, "evaluation_limit": 500} if language else {"limit": 32, "evaluation_limit": 16}
    task = {"context": 16, "batch_size": 8, **limits} if language else {"batch_size": 8, **limits}
    return {"task": task, "model": model, "optimiser": {"lr": 0.005}, "schedule": {"epochs": 2}}


def _room(inputs: int, outputs: int) -> int:
    """Returns a budget with room for the RRU, whose size grows with the square of the number of inputs."""
    return 3 * (inputs + 16) * (inputs + 16 + outputs)


def _between(value: int, low: int, high: int) -> int:
    return max(min(value, high), low)


def _power_of_two(value: float, low: int, high: int) -> int:
    """Returns the largest power of two that is at most `value`, within bounds."""
    power = 1
    while power * 2 <= value:
        power *= 2
    return _between(power, low, high)


def _by_size(steps: int, *rules: tuple[int, float]) -> float:
    """Returns the value of the first rule whose size is above `steps`; the last rule has no size."""
    return next((value for size, value in rules if steps < size), rules[-1][1])


def _rounded(budget: int, outside: int) -> int:
    """Returns the sum, rounded to the second digit of `budget`, so that it reads well and the layer keeps its part."""
    digits = max(len(str(budget)) - 2, 0)
    return round(budget + outside, -digits)
