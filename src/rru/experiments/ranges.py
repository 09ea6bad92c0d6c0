"""What a search may choose: the ranges of the paper's Appendix 4, and scaled ones for what the paper did not tune."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rru.experiments.schema import Config

BUDGET = "model.budget"
PAPER = "paper"


@dataclass(frozen=True)
class Range:
    """The values a setting may take.

    **Arguments:**

    - `low`, `high`: the least and the largest; whole numbers if only these are meant.
    - `log`: whether the logarithm is uniform, rather than the value.
    """

    low: float
    high: float
    log: bool = False


def ranges(config: Config, preset: str) -> dict[str, Range]:
    """The ranges for a config's task and cell, by the settings' names.

    **Arguments:**

    - `config`: as `rru.experiments.presets.load` gives it.
    - `preset`: the size it was loaded in.
    """
    table, task, cell = _read(), config["task"]["name"], config["model"]["cell"]
    found = {name: Range(**about) for name, about in {**table["all"], **table[cell]}.items()}
    if preset == PAPER and task in table[PAPER]:
        return found | {BUDGET: Range(**table[PAPER][task])}
    times: dict[str, list[float]] = {}
    for who in ("all", task, preset):
        times |= table["times"].get(who, {})
    return found | {name: _around(config, name, each) for name, each in times.items() if name in {BUDGET, *found}}


def _around(config: Config, name: str, times: Sequence[float]) -> Range:
    """From so many to so many times what the config has; where that is whole, these are too, and at least 1."""
    table, _, key = name.partition(".")
    value = config[table][key]
    low, high = (max(round(value * each), 1) if isinstance(value, int) else value * each for each in times)
    return Range(low, high)


@cache
def _read() -> dict[str, Any]:
    return tomllib.loads(resources.files("rru.experiments").joinpath("ranges.toml").read_text(encoding="utf-8"))
