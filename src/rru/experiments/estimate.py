"""How long what is left of a plan may take, judged by the runs that are done."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rru.experiments.plans import Entry
from rru.experiments.running import ENDED, Standing
from rru.training import Result, Run, RunError


@dataclass(frozen=True)
class Estimate:
    """The time left.

    **Arguments:**

    - `seconds`: of the runs below, one after another.
    - `judged`: how many runs that is the time of.
    - `unknown`: how many are left of which no like one has ended.
    """

    seconds: float
    judged: int
    unknown: int


def time_left(entries: Sequence[Entry], standings: Sequence[Standing], root: Path) -> Estimate:
    """The time that runs without a result may take.

    A run is judged by those like it: of the same cell, task settings and schedule. Its seconds are their mean epochs,
    less those it has done, times their seconds for an epoch and parameter, times its budget of parameters.

    **Arguments:**

    - `entries`, `standings`: the runs, and how far each is.
    - `root`: where runs to judge by are.
    """
    left = [(entry, how) for entry, how in zip(entries, standings, strict=True) if how.state not in ENDED]
    rates = _rates(sorted({(entry.task, entry.cell) for entry, _ in left}), root)
    seconds, judged = 0.0, 0
    for entry, how in left:
        if (rate := rates.get(_kind(entry.config))) is not None:
            epochs, each = rate
            seconds += max(epochs - how.epoch, 0.0) * each * entry.config["model"]["budget"]
            judged += 1
    return Estimate(seconds, judged, len(left) - judged)


def _rates(cells: Iterable[tuple[str, str]], root: Path) -> dict[str, tuple[float, float]]:
    """By kind of run: the mean of epochs, and the seconds for an epoch and parameter."""
    results: dict[str, list[Result]] = {}
    for task, cell in cells:
        for path in sorted(root.glob(f"{task}/{cell}/*/result.json")):
            with suppress(RunError, OSError, KeyError):
                run = Run(path.parent)
                if content := run.result():
                    results.setdefault(_kind(run.config), []).append(Result.from_json(content))
    return {kind: rate for kind, found in results.items() if (rate := _rate(found)) is not None}


def _rate(results: Sequence[Result]) -> tuple[float, float] | None:
    work = sum(result.epochs * result.parameters for result in results)
    if not work:
        return None  # all diverged in their first epoch
    seconds = sum(result.seconds.get("total", 0.0) for result in results)
    return sum(result.epochs for result in results) / len(results), seconds / work


def _kind(config: dict[str, Any]) -> str:
    """What runs must share to take about as long, for their size."""
    schedule = {name: config["schedule"][name] for name in ("epochs", "patience")}
    return json.dumps([config["model"]["cell"], config["task"], schedule], sort_keys=True)
