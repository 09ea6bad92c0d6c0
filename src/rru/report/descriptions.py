"""Describe runs and points of a plan in words, for tables, tooltips of figures and Markdown."""

from collections.abc import Mapping

from rru.report.formatting import NONE, duration, score, setting, whole
from rru.report.gather import RunRecord
from rru.report.results import Point, Section
from rru.tasks import beats_baselines, verdict
from rru.training import RunStatus

BEST_BY_TEST = "best of all epochs by test"
PRESETS = {
    "paper": "Exactly the paper's settings, so these numbers can be compared with the paper's.",
    "cpu": "Scaled down to about ten minutes on two cores, with the same parameter budget for all cells. Compare the "
    "cells with one another. The paper's numbers come from larger models that were trained longer.",
    "best": "Music with one network for all keys, of 250,000 parameters. These numbers compare with those of other "
    "models of whole chords, not with the paper's.",
    "nade": "Music with probabilities of whole chords, and the same million parameters for all cells. These numbers "
    "compare with those of other models of whole chords, not with the paper's.",
    "smoke": "A few steps of a tiny model, to check that everything works. The numbers say nothing about the cells.",
    "your-data": "Runs on your own files. Cells are ranked only if they share preset and settings, and so the budget.",
    "own settings": "Settings that no preset has; a title or a line names what differs from the closest preset. Cells "
    "are ranked only if they share all settings.",
    "demo": "The settings of rru demo: small models with the same parameter budget, not tuned for any cell.",
}
"""What to know about the numbers of a preset."""
AXES = {"optimiser.lr": "learning rate", "model.budget": "budget", "model.dropout": "dropout"}


def named(preset: str, terms: str = "") -> str:
    """Return the name of a preset in sentences, or of what stands in place of one; with what its runs share."""
    name = {"your-data": "your data", "own settings": "own settings"}.get(preset, f"preset {preset}")
    return f"{name}, {terms}" if terms else name


def mean(point: Point) -> str:
    """Return the mean test score over seeds with its standard deviation, or the score if there is only one."""
    if point.deviation is None:
        return score(point.test, 2)
    return f"{score(point.test, 2)} ± {score(point.deviation, 2)}"


def seeds(point: Point) -> str:
    """Return the number of seeds in a mean, and how many diverged; empty for a single finished run."""
    count = len(point.tests)
    parts = [f"{count} seeds"] if count > 1 else []
    if point.diverged:
        parts.append(RunStatus.DIVERGED if point.diverged == len(point.runs) else f"{point.diverged} diverged")
    if point.test is None and point.runs and not point.diverged:
        parts.append(point.state)
    return ", ".join(parts)


def facts(section: Section, point: Point) -> dict[str, str]:
    """Return everything known about a point, by name, most important first."""
    at = {AXES.get(name, name): setting(value) for name, value in point.at.items()}
    metric = section.metric.label
    return {
        "line": section.shown(point.line),
        **at,
        f"test {metric}": mean(point),
        f"validation {metric}": score(point.validation, 2),
        "best epoch": NONE if point.best_epoch is None else f"{point.best_epoch:g}",
        "epochs": " / ".join(whole(run.epochs) for run in point.runs) or NONE,
        "parameters": whole(point.parameters),
        "seeds": str(len(point.runs)),
        "status": point.state,
    }


def tip(facts: Mapping[str, str]) -> str:
    """Format facts as the lines of a tooltip; the first is its heading."""
    head, *rest = facts.items()
    return "\n".join([head[1], *(f"{name}: {value}" for name, value in rest)])


def numbers(run: RunRecord) -> dict[str, tuple[float | None, str]]:
    """Return the numbers that tables of runs show, by name, each as a number and as text."""
    return {
        "test": (run.test, score(run.test)),
        BEST_BY_TEST: (run.best_test, score(run.best_test)),
        "validation": (run.validation, score(run.validation)),
        "epochs": (run.epochs, whole(run.epochs)),
        "best epoch": (run.best_epoch, whole(run.best_epoch)),
        "parameters": (run.parameters, whole(run.parameters)),
        "time": (run.duration, duration(run.duration)),
        "tokens": (run.tokens, whole(run.tokens)),
    }


def other_scores(run: RunRecord) -> list[str]:
    """Return sentences on the other test scores: macro F1, or errors of forecasts and of their baselines."""
    scores, sentences = run.scores, []
    if "macro_f1" in scores:
        sentences.append(f"Macro F1 {score(scores['macro_f1'], 2)} %.")
    errors = {"MAE": "mae", "RMSE": "rmse", "pinball loss": "pinball"}
    if known_errors := [f"{name} {scores[key]:.4g}" for name, key in errors.items() if key in scores]:
        sentences.append(f"{', '.join(known_errors)}.")
    if {"coverage_80", "coverage_95"} <= set(scores):
        inside = f"{scores['coverage_80']:.0f} % of the values are in the 80 % interval"
        sentences.append(f"{inside}, {scores['coverage_95']:.0f} % in the 95 % interval.")
    if verdict(scores):
        baselines = f"last value {score(scores['mase_last'], 3)}, seasonal naive {score(scores['mase_seasonal'], 3)}"
        beaten = "" if beats_baselines(scores) else "; the model does not beat both"
        sentences.append(f"MASE of the baselines on the same windows: {baselines}{beaten}.")
    return sentences


def account(run: RunRecord) -> list[str]:
    """Return sentences that explain how a run got its test score."""
    if run.metric is None:
        return []
    label = run.metric.label
    lines = []
    if run.epochs is not None:
        detail = ", ".join(
            f"{whole(value)} {name}" for name, value in (("steps", run.steps), ("tokens", run.tokens)) if value
        )
        ended = f" It ended because: {run.reason}." if run.reason else " It has not ended."
        lines.append(f"Trained for {whole(run.epochs)} epochs{f' ({detail})' if detail else ''}.{ended}")
    if run.best_epoch and run.validation is not None:
        lines.append(f"Epoch {run.best_epoch} had the best validation {label}: {score(run.validation)}.")
    if run.test is not None:
        lines.append(
            " ".join([f"The weights of that epoch were tested: {label} {score(run.test)}.", *other_scores(run)])
        )
    if run.best_test is not None:
        lines.append(f"Best epoch by the test split, which the paper reports: {label} {score(run.best_test)}.")
    if run.duration:
        shares = [f"{name} {share / run.duration:.0%}" for name, share in run.seconds.items() if name != "total"]
        lines.append(f"It took {duration(run.duration)}: {', '.join(shares)}.")
    return lines
