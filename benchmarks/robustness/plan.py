"""Which runs to make, in an order in which a part of them is useful."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.robustness.problem import Problem
from benchmarks.robustness.problems import PROBLEMS

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Run:
    """One run; equal runs give equal results. `clip` says whether gradients are clipped at norm 1."""

    problem: str
    contender: str
    rate: float
    layers: int
    clip: bool
    seed: int


def settings(problem: Problem, seed: int, full: bool) -> list[tuple[int, bool]]:
    """Return layers and clipping of a problem's runs with a seed.

    By default one for each seed: one layer, two layers, and without clipping one or two, alternating by problem. With
    `full`, all combinations.
    """
    if full:
        return [(layers, clip) for layers in problem.layers for clip in (True, False)]
    fewest, most = problem.layers[0], problem.layers[-1]
    place = list(PROBLEMS).index(problem.name)  # not among the chosen problems: a choice must not change the runs
    turns = [(fewest, True), (most, True), ((fewest, most)[place % 2], False)]
    return [turns[seed % len(turns)]]


def runs(
    problems: Sequence[Problem], contenders: Sequence[str], rates: Sequence[float], seeds: Sequence[int], full: bool
) -> Iterator[Run]:
    """Yield all runs, seed by seed and then problem by problem."""
    for seed in seeds:
        for problem in problems:
            for layers, clip in settings(problem, seed, full):
                for rate in rates:
                    for contender in contenders:
                        yield Run(problem.name, contender, rate, layers, clip, seed)
