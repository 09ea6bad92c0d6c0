"""What the scores of a run say, in a line for people."""

from collections.abc import Mapping
from pathlib import Path

from rru.data.own.data_json import SeriesFacts
from rru.files import FileError
from rru.report.formatting import score
from rru.tasks import beats_baselines, verdict
from rru.training import Run
from rru.training.run_files import about_data

UNITS = {
    "nll": ("NLL ", " nats per step"),
    "bpc": ("", " bits per character"),
    "perplexity": ("perplexity ", " per word"),
}
PERCENT = ("accuracy", "macro_f1")
SECOND = 1_000_000  # microseconds
SEASONS = {
    ("us", 3_600 * SECOND): "the last hour",
    ("us", 86_400 * SECOND): "the last day",
    ("us", 7 * 86_400 * SECOND): "last week",
    ("us", 52 * 7 * 86_400 * SECOND): "last year",
    ("us", 365 * 86_400 * SECOND): "last year",
    ("B", 5): "last week",
    ("M", 12): "last year",
}
"""What a season is called, by the unit of its frequency and how many of it a season has."""


def named_score(metric: str, value: float | None, digits: int = 4) -> str:
    """Return a score with the name of its metric: `nll 8.1234`, `accuracy 96.3 %`."""
    return f"{metric} {shown_score(metric, value, digits)}"


def shown_score(metric: str, value: float | None, digits: int = 4) -> str:
    """Return a score for people: shares in percent, others with some digits."""
    if metric in PERCENT and value is not None:
        return f"{value:.1f} %"
    return score(value, digits)


def summary(metric: str, scores: Mapping[str, float], folder: Path, *, counts: bool = True) -> str:
    """Return scores in words: the error beside that of a simple forecast, or the share of right answers.

    **Arguments:**

    - `metric`: what the run is compared by.
    - `scores`: by name; None in place of those that are not finite.
    - `folder`: of the run, whose files name the season of its series and count its right answers.
    - `counts`: whether `scores` are those of the test split, to which the counts belong.
    """
    if text := verdict(scores):
        known = all(scores.get(name) is not None for name in ("mae", "mae_last", "mae_seasonal"))
        return _forecast(scores, folder) if known else text
    value = scores.get(metric)
    if metric == "accuracy" and value is not None:
        return f"{value:.1f} % right{_counts(value, folder) if counts else ''}"
    before, after = UNITS.get(metric, (f"{metric} ", ""))
    return f"{before}{score(value)}{after}"


def _forecast(scores: Mapping[str, float], folder: Path) -> str:
    """Compare the mean error with that of the better simple forecast: absolute, or that of several series scaled."""
    facts = _facts(folder)
    measure, name = ("mase", "MASE") if facts and len(facts.series) > 1 else ("mae", "mean absolute error")
    names = {"last": "repeating the last value", "seasonal": f"repeating {_season(facts)}"}
    best = min(names, key=lambda name: scores[f"{measure}_{name}"])
    error, simple = scores[measure], scores[f"{measure}_{best}"]
    text = f"{name} {error:.3g}; {names[best]} {simple:.3g}"
    better = f" ({100 * (1 - error / simple):.0f} % better)" if error < simple and simple > 0 else ""
    if beats_baselines(scores):
        return f"{text}{better}"
    return verdict(scores) if measure == "mase" else f"{text}{better}. {verdict(scores)}"


def _facts(folder: Path) -> SeriesFacts | None:
    """Return what is known about a run's series; None if that is damaged."""
    try:
        return SeriesFacts.of(about_data(folder))
    except (FileError, ValueError):
        return None


def _season(facts: SeriesFacts | None) -> str:
    """Return what to call the last season of series."""
    if facts is None:
        return "the last season"
    step = facts.layout.frequency
    name = SEASONS.get((step.unit, step.count * facts.season)) if step else None
    return name or ("the last value" if facts.season == 1 else f"the last {facts.season} steps")


def _counts(accuracy: float, folder: Path) -> str:
    """Return how many answers were right, of how many, and the share of the commonest class, which a model that has
    learnt nothing else gets right; empty if the run does not know it."""
    try:
        confusion = Run(folder).details().get("confusion")
    except FileError:
        return ""
    if not isinstance(confusion, list) or not all(isinstance(row, list) for row in confusion):
        return ""
    rows = [[value for value in row if type(value) is int] for row in confusion]
    right = sum(row[number] for number, row in enumerate(rows) if number < len(row))
    total = sum(map(sum, rows))
    matches = total and abs(100 * right / total - accuracy) < 1e-6
    commonest = 100 * max(map(sum, rows), default=0) / max(total, 1)
    return f" ({right:,} of {total:,}); the commonest class: {commonest:.0f} %" if matches else ""
