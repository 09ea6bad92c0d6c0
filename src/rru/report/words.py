"""Numbers as people read them, the same on the page, in Markdown and in what a mark says."""

from collections.abc import Mapping

from rru.report.gather import Found, metric_of
from rru.report.results import Point, Section

NONE = "\N{EN DASH}"
AXES = {"optimiser.lr": "learning rate", "model.budget": "budget", "model.dropout": "dropout"}


def score(value: float | None, digits: int = 2) -> str:
    """A score; a dash where there is none."""
    return NONE if value is None else f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def blank(value: float | None) -> str:
    """A number as programs read it, nothing where there is none."""
    return "" if value is None else repr(value)


def signed(value: float) -> str:
    """A difference, with its sign; one that rounds to zero has none."""
    text = f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")
    return "0.00" if text[1:] == "0.00" else text


def whole(value: float | None) -> str:
    """A count."""
    return NONE if value is None else f"{value:,.0f}"


def setting(value: float) -> str:
    """A learning rate, budget or dropout rate, short."""
    if value >= 1000:
        return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k"
    return f"{value:g}"


def duration(seconds: float | None) -> str:
    """A time."""
    if seconds is None:
        return NONE
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def mean(point: Point) -> str:
    """A test's mean over seeds and its standard deviation, or the one test there is."""
    if point.deviation is None:
        return score(point.test)
    return f"{score(point.test)} ± {score(point.deviation)}"


def seeds(point: Point) -> str:
    """How many seeds a mean is of, and how many failed; nothing for a single one."""
    count = len(point.tests)
    parts = [f"{count} seeds"] if count > 1 else []
    if point.diverged:
        parts.append("diverged" if point.diverged == len(point.runs) else f"{point.diverged} diverged")
    if point.test is None and point.runs and not point.diverged:
        parts.append(point.state)
    return ", ".join(parts)


def facts(section: Section, point: Point) -> dict[str, str]:
    """All there is to say of a point, by name."""
    at = {AXES.get(name, name): setting(value) for name, value in point.at.items()}
    metric = section.metric.label
    return {
        "line": point.line,
        **at,
        "parameters": whole(point.parameters),
        f"test {metric}": mean(point),
        f"validation {metric}": score(point.validation),
        "best epoch": NONE if point.best_epoch is None else f"{point.best_epoch:g}",
        "epochs": " / ".join(whole(run.epochs) for run in point.runs) or NONE,
        "seeds": str(len(point.runs)),
        "status": point.state,
    }


def tip(told: Mapping[str, str]) -> str:
    """Facts as the lines that a mark shows; the first is its head."""
    head, *rest = told.items()
    return "\n".join([head[1], *(f"{name}: {value}" for name, value in rest)])


def numbers(run: Found) -> dict[str, tuple[float | None, str]]:
    """What the tables of runs show of one: by name, as a number and in words."""
    return {
        "parameters": (run.parameters, whole(run.parameters)),
        "epochs": (run.epochs, whole(run.epochs)),
        "best epoch": (run.best_epoch, whole(run.best_epoch)),
        "validation": (run.validation, score(run.validation, 4)),
        "test": (run.test, score(run.test, 4)),
        "time": (run.duration, duration(run.duration)),
        "tokens": (run.tokens, whole(run.tokens)),
    }


def account(run: Found) -> list[str]:
    """How a run's number came about."""
    if not run.known:
        return []
    label = metric_of(run.task).label
    lines = []
    if run.epochs is not None:
        detail = ", ".join(
            f"{whole(value)} {name}" for name, value in (("steps", run.steps), ("tokens", run.tokens)) if value
        )
        ended = f" It ended because: {run.reason}." if run.reason else " It has not ended."
        lines.append(f"Trained for {whole(run.epochs)} epochs{f' ({detail})' if detail else ''}.{ended}")
    if run.best_epoch and run.validation is not None:
        lines.append(f"Epoch {run.best_epoch} was the best on validation: {label} {score(run.validation, 4)}.")
    if run.test is not None:
        lines.append(f"Its weights were tested once: {label} {score(run.test, 4)}.")
    if run.duration:
        shares = [f"{name} {share / run.duration:.0%}" for name, share in run.seconds.items() if name != "total"]
        lines.append(f"It took {duration(run.duration)}: {', '.join(shares)}.")
    return lines
