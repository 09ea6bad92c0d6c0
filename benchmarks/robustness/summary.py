"""Compare the contenders: text tables of ranks, good runs and stuck problems."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.report import table
from benchmarks.robustness.contenders import GRU, LSTM, NAMES
from benchmarks.robustness.plan import Run
from benchmarks.robustness.problem import Problem
from benchmarks.robustness.records import Records, names
from rru.report.formatting import duration

GOOD = 0.05
"""A score is good if it is at most this part of the way from the problem's best score to chance. A part of the score
itself would mean little: solved problems have losses near zero."""
STUCK = 0.02
"""A run is stuck if its score is less than this part below chance."""

Cell = tuple[str, float, int, bool]
"""Problem, rate, layers, clipping."""


@dataclass(frozen=True)
class Results:
    """Scores by cell and contender, each the median over seeds; lower is better."""

    problems: list[Problem]
    contenders: list[str]
    scores: Mapping[tuple[Cell, str], float]
    chance: Mapping[str, float]

    @classmethod
    def of(cls, records: Records, problems: Mapping[str, Problem]) -> "Results":
        """Take the medians of records."""
        seeds: dict[tuple[Cell, str], list[float]] = defaultdict(list)
        for run, record in records.items():
            seeds[(run.problem, run.rate, run.layers, run.clip), run.contender].append(record["score"])
        return cls(
            [problem for name, problem in problems.items() if name in names(records, "problem")],
            sorted(names(records, "contender"), key=lambda name: NAMES.index(name) if name in NAMES else len(NAMES)),
            {key: statistics.median(scores) for key, scores in seeds.items()},
            {run.problem: record["chance"] for run, record in records.items()},
        )

    @property
    def rates(self) -> list[float]:
        """All learning rates."""
        return sorted({cell[1] for cell, _ in self.scores})

    @property
    def shared_cells(self) -> list[Cell]:
        """The cells in which every contender has a score; only these are compared."""
        cells = dict.fromkeys(cell for cell, _ in self.scores)
        return [cell for cell in cells if all((cell, name) in self.scores for name in self.contenders)]

    def of_rate(self, problem: str, contender: str, rate: float) -> list[float]:
        """Return the scores of a contender with one rate: of each number of layers and clipping."""
        return [
            score
            for (cell, name), score in self.scores.items()
            if (cell[0], cell[1], name) == (problem, rate, contender)
        ]

    def best(self, problem: str, contender: str | None = None) -> float:
        """Return the best score of a contender, or of all; chance if there is none."""
        scores = [s for (cell, name), s in self.scores.items() if cell[0] == problem and contender in (None, name)]
        return min(scores, default=self.chance[problem])

    def gap(self, problem: str, score: float) -> float:
        """Map a score to 0 for the problem's best up to 1 for chance."""
        best, chance = self.best(problem), self.chance[problem]
        return (score - best) / (chance - best) if chance > best else 0.0

    def is_stuck(self, problem: str, score: float) -> bool:
        """Whether a score is no better than chance."""
        return score > (1 - STUCK) * self.chance[problem]

    def mean_rank(self, contender: str) -> float:
        """Return the mean rank over shared cells; equal scores share a rank."""

        def rank(cell: Cell) -> float:
            own = self.scores[cell, contender]
            others = [self.scores[cell, name] for name in self.contenders if name != contender]
            return 1 + sum(score < own for score in others) + sum(score == own for score in others) / 2

        return statistics.fmean(map(rank, self.shared_cells)) if self.shared_cells else float("nan")

    def good_share(self, contender: str) -> float:
        """Return the share of shared cells with a good score."""
        good = [self.gap(cell[0], self.scores[cell, contender]) <= GOOD for cell in self.shared_cells]
        return statistics.fmean(good) if good else float("nan")

    def mean_gap(self, contender: str) -> float:
        """Return the mean part of the way from best to chance over shared cells."""
        gaps = [self.gap(cell[0], self.scores[cell, contender]) for cell in self.shared_cells]
        return statistics.fmean(gaps) if gaps else float("nan")

    def good_rates(self, problem: str, contender: str) -> int:
        """Return the number of rates whose median score is good."""
        scores = [self.of_rate(problem, contender, rate) for rate in self.rates]
        return sum(self.gap(problem, statistics.median(group)) <= GOOD for group in scores if group)

    def stuck_problems(self, contender: str) -> list[str]:
        """Return the problems on which it is stuck with every rate, although nn.LSTM or nn.GRU learns."""
        return [
            problem.name
            for problem in self.problems
            if self.is_stuck(problem.name, self.best(problem.name, contender))
            and any(not self.is_stuck(problem.name, self.best(problem.name, name)) for name in (LSTM, GRU))
        ]

    def stuck_cells(self, contender: str) -> int:
        """Return the number of shared cells in which it is stuck, although nn.LSTM learns in the same cell."""
        if LSTM not in self.contenders:
            return 0
        return sum(
            self.is_stuck(cell[0], self.scores[cell, contender]) and not self.is_stuck(cell[0], self.scores[cell, LSTM])
            for cell in self.shared_cells
        )


def text(results: Results) -> str:
    """Format the comparison of all contenders, the best scores and the numbers of good rates."""
    counted = f"{len(results.shared_cells)} cells of problem, rate, layers and clipping in which all have a score"
    head = ["contender", "mean rank", "good cells", "mean gap", "good rates", "stuck cells", "stuck problems"]
    rows = [_row(results, name) for name in results.contenders]
    best = [
        [problem.name, f"{results.chance[problem.name]:.4f}"]
        + [_best(results, problem.name, name) for name in results.contenders]
        for problem in results.problems
    ]
    notes = (
        f"gap: 0 is the problem's best score of all runs, 1 is chance; good: gap at most {GOOD:g}; good rates: of "
        f"{len(results.rates)}, mean over problems\nstuck: less than {STUCK:.0%} below chance although {LSTM} is not "
        f"in the same cell (cells), or {LSTM} or {GRU} is not at any rate (problems)"
    )
    title = "Best score (number of good rates); ! is stuck at every rate"
    scores = table(["problem", "chance", *results.contenders], best)
    return "\n".join([counted, "", table(head, rows), notes, "", title, scores])


def _row(results: Results, contender: str) -> list[str]:
    width = statistics.fmean(results.good_rates(problem.name, contender) for problem in results.problems)
    return [
        contender,
        f"{results.mean_rank(contender):.2f}",
        f"{results.good_share(contender):.0%}",
        f"{results.mean_gap(contender):.3f}",
        f"{width:.1f}",
        str(results.stuck_cells(contender)),
        ", ".join(results.stuck_problems(contender)) or "0",
    ]


def _best(results: Results, problem: str, contender: str) -> str:
    score = results.best(problem, contender)
    mark = "!" if results.is_stuck(problem, score) else ""
    return f"{mark}{score:.4f} ({results.good_rates(problem, contender)})"


def times(runs: Sequence[Run], seconds: Callable[[Run], float]) -> str:
    """Format the mean time of a run by problem and contender, and the time of all runs."""
    contenders, problems = names(runs, "contender"), names(runs, "problem")
    rows = []
    for problem in problems:
        groups = [[seconds(r) for r in runs if (r.problem, r.contender) == (problem, name)] for name in contenders]
        total = sum(map(sum, groups))
        rows.append([problem, *(f"{statistics.fmean(group):.1f}" for group in groups), f"{total / 60:.1f}"])
    whole = duration(sum(map(seconds, runs)))
    return f"Seconds of a run\n{table(['problem', *contenders, 'minutes of all'], rows)}\nAll runs: {whole}"
