"""Tell users' own data apart: the same file read in another way gives scores that cannot be compared."""

from collections.abc import Iterable

from rru.kinds import kind_of
from rru.report.formatting import setting
from rru.report.gather import RunRecord
from rru.settings.tables import INERT

INPUTS = ("columns", "known", "calendar")
"""Options that say what the model sees, not what it predicts: scores with other inputs can be compared."""
MAX_TITLE = 160  # characters

DataVariant = tuple[str, tuple[tuple[str, object], ...]]
"""The name of a task, and the data's options that decide what is predicted, by name."""


def data_variant(run: RunRecord) -> DataVariant | None:
    """Return what own data a run is on and how it is read; None if it is not on own data."""
    if run.known is None or run.known.data is None:
        return None
    options = run.known.tables()["data"].items()
    decisive = {name: value for name, value in options if name not in INPUTS and f"data.{name}" not in INERT}
    return run.task, tuple(sorted(decisive.items()))


def inputs(run: RunRecord) -> str:
    """Return the inputs that were asked for, such as `calendar=true`; empty if there are none."""
    table = run.known.tables().get("data", {}) if run.known else {}
    return " ".join(f"{name}={setting(table[name])}" for name in INPUTS if name in table)


def titles(runs: Iterable[RunRecord]) -> dict[DataVariant, str]:
    """Return a title for each variant: the name of the file, and what tells it from other variants of this name."""
    names: dict[DataVariant, str] = {}
    for run in runs:
        if (variant := data_variant(run)) is not None and run.known is not None:
            names.setdefault(variant, run.known.title)
    titled = {variant: f"{name}{_difference(variant, names)}"[:MAX_TITLE] for variant, name in names.items()}
    return dict(sorted(titled.items(), key=lambda item: item[1]))  # variants of a file stand together


def _difference(variant: DataVariant, names: dict[DataVariant, str]) -> str:
    task, options = variant[0], dict(variant[1])
    others = [dict(other[1]) for other in names if other[0] == task and names[other] == names[variant]]
    alike = [other for other in others if other["kind"] == options["kind"]]  # other kinds have other options
    differing = ["kind"] if len(alike) < len(others) else []
    differing += [name for name in options if len({str(other.get(name)) for other in alike}) > 1]
    texts = [text for name in differing if (text := _text(name, options.get(name)))]
    return f" ({', '.join(texts)})" if texts else ""


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if name == "kind":
        return kind_of(str(value)).reading or str(value)
    if name.endswith("hash"):
        return f"{name} {str(value)[:6]}"
    return "" if name.endswith("size") else f"{name}={setting(value)}"
