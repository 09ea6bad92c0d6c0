"""Describe a trained model: in a line, and for notebooks with what it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rru import data
from rru.inference import notebook
from rru.inference.music import compose
from rru.inference.score import bar
from rru.inference.writing import write
from rru.kinds import kind_of
from rru.nn import count_parameters

if TYPE_CHECKING:
    from rru.inference.trained import Trained
    from rru.training import Result

SAMPLE_TOKENS, SAMPLE_BARS = 200, 2
MAX_FILE = 16 << 20  # bytes of a table that is read only to show a forecast


def facts(trained: Trained) -> dict[str, str]:
    """Return what is known about a model, by name."""
    summary = f": {trained.facts.summary}" if trained.facts is not None and trained.facts.summary else ""
    rows = {
        "model": f"{trained.config.model.cell}, {count_parameters(trained.model):,} parameters",
        "data": f"{trained.config.title}, {kind_of(trained.kind).noun}{summary}",
        **training(trained.result),
        "folder": str(trained.path),
        "verbs": ", ".join(trained.verbs),
    }
    if trained.result is None:
        rows["training"] = "exported" if trained.epoch is None else f"not ended; weights of epoch {trained.epoch}"
    return rows


def training(result: Result | None) -> dict[str, str]:
    """Return how training ended, by name."""
    if result is None:
        return {}
    ended = f"{result.status}, {result.reason}; best epoch {result.best_epoch} of {result.epochs}"
    scores = {"validation": scored(result.validation), "test": scored(result.test)}
    return {"training": ended, **{split: text for split, text in scores.items() if text}}


def scored(scores: Mapping[str, float]) -> str:
    """Return scores in words; empty if there are none."""
    return ", ".join(f"{name} {value:.4g}" for name, value in scores.items() if value is not None)


def line(trained: Trained) -> str:
    """Describe a model in a line."""
    result = trained.result
    parts = [f"{trained.config.model.cell} on {trained.config.title} ({kind_of(trained.kind).noun})"]
    parts.append(f"{count_parameters(trained.model):,} parameters")
    if trained.epoch is not None:
        parts.append(f"epoch {trained.epoch}")
    if result is not None and (score := result.test.get(result.metric)) is not None:
        parts.append(f"test {result.metric} {score:.4g}")
    return f"<Trained {', '.join(parts)}; {', '.join(trained.verbs)}; {trained.path}>"


def page(trained: Trained) -> str:
    """Return the facts, the learning curve and a sample as HTML."""
    curve = trained.plot().svg if trained.history else ""
    try:
        sample = _sample(trained)
    except Exception:  # what cannot be shown must not hide the rest: data may be gone, Pillow not installed, ...
        sample = ""
    return notebook.facts(facts(trained)) + curve + sample


def _sample(trained: Trained) -> str:
    """Return something that the model makes: a text, a piece of music with its sound, or a forecast; else nothing."""
    match kind_of(trained.kind).commands[0]:
        case "write":
            return notebook.text("".join(write(trained, "", SAMPLE_TOKENS)))
        case "compose":
            opening = data.load("bach").test[0][:1]
            return compose(trained, opening, SAMPLE_BARS * bar(trained))._repr_html_()
        case "forecast" if (
            trained.epoch is not None and trained.config.data is not None
        ):  # no file that an export names
            if trained.config.data.path.stat().st_size <= MAX_FILE:
                return trained.forecast()._repr_html_()
    return ""
