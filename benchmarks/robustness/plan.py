"""Which runs to make, in an order in which a part of them is useful."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.robustness.problem import Problem

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Setting:
    """How to train, apart from the rate: layers, whether to clip gradients at norm 1, and the seed."""

    layers: int
    clip: bool
    seed: int


@dataclass(frozen=True)
class Run:
    """One run; equal runs give equal results."""

    problem: str
    contender: str
    rate: float
    layers: int
    clip: bool
    seed: int


def settings(problem: Problem, place: int, seeds: Sequence[int], full: bool) -> list[Setting]:
    """Return the settings of a problem for each rate and contender; `place` is its number in the list of problems.

    By default one for each seed: one layer, two layers, and without clipping one or two, alternating by problem. With
    `full`, all combinations for each seed.
    """
    if full:
        return [Setting(layers, clip, seed) for seed in seeds for layers in problem.layers for clip in (True, False)]
    fewest, most = problem.layers[0], problem.layers[-1]
    turns = [(fewest, True), (most, True), ((fewest, most)[place % 2], False)]
    return [Setting(*turns[seed % len(turns)], seed) for seed in seeds]


def runs(
    problems: Sequence[Problem], contenders: Sequence[str], rates: Sequence[float], seeds: Sequence[int], full: bool
) -> Iterator[Run]:
    """Yield all runs, seed by seed and then problem by problem."""
    for seed in seeds:
        for place, problem in enumerate(problems):
            for setting in settings(problem, place, [seed], full):
                for rate in rates:
                    for contender in contenders:
                        yield Run(problem.name, contender, rate, setting.layers, setting.clip, setting.seed)
