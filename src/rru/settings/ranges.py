"""Search ranges: the paper's (Appendix 4), and ranges scaled around the preset where the paper did not tune.

A setting's range is declared with the setting, in `tables.py` or in the cell's constructor. `ranges.toml` has the
budget's range for each task, and the factors of the scaled ranges.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from rru.settings.config import Config, Setting

BUDGET = "model.budget"
PAPER = "paper"
DIGITS = 4  # significant digits of bounds and proposed values: more would only make commands longer


@dataclass(frozen=True)
class Range:
    """The values a setting may take.

    **Arguments:**

    - `low`, `high`: the smallest and largest value; if both are ints, only integers are drawn.
    - `log`: draw uniformly in the logarithm instead of the value.
    """

    low: float
    high: float
    log: bool = False


def ranges(config: Config, preset: str) -> dict[str, Range]:
    """Return the search ranges for a config's task and cell, by full name.

    Optuna draws in this order, so changing it would change what a seed proposes.

    **Arguments:**

    - `config`: the config, from `rru.settings.presets.load`.
    - `preset`: the preset it was loaded with.
    """
    known, table, task = config.settings, _read(), config.task.name
    declared = {name: setting.declared.option for name, setting in known.items()}
    searched = {name: Range(*each.search, each.log) for name, each in declared.items() if each.search is not None}
    searched = {name: replace(each, low=tidied(each.low), high=tidied(each.high)) for name, each in searched.items()}
    ordered = {name: searched[name] for name in sorted(searched, key=lambda name: name.startswith("model."))}
    if preset == PAPER and task in table[PAPER]:
        return ordered | {BUDGET: Range(**table[PAPER][task])}
    times: dict[str, list[float]] = {}
    for who in ("all", config.kind, task, preset):
        times |= table["times"].get(who, {})
    scaled = {name: each for name, each in times.items() if name in {BUDGET, *ordered}}
    return ordered | {name: _around(_value(config, known[name]), each) for name, each in scaled.items()}


def _value(config: Config, setting: Setting) -> float:
    value: float = config.tables()[setting.table].get(setting.declared.name, setting.declared.default)
    return value


def _around(value: float, times: Sequence[float]) -> Range:
    """Return the range from `times[0]` to `times[1]` times a value, tidied; for an int, of ints of at least 1."""
    low, high = (tidied(max(round(value * each), 1) if isinstance(value, int) else value * each) for each in times)
    return Range(low, high)


def tidied(value: float) -> float:
    """Round a value to `DIGITS` significant digits; an int stays one."""
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if isinstance(value, int) else rounded


@cache
def _read() -> dict[str, Any]:
    return tomllib.loads(resources.files("rru.settings").joinpath("ranges.toml").read_text(encoding="utf-8"))
