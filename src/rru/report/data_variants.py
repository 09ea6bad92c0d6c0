"""Tell users' own data apart: the same file read in another way gives scores that cannot be compared."""

from collections.abc import Iterable

from rru.report.formatting import setting
from rru.report.gather import FoundRun
from rru.settings.tables import LANGUAGE

INPUTS = ("columns", "known", "calendar")
"""Options that say what the model sees, not what it predicts: scores with other inputs can be compared."""
MAX_TITLE = 160  # characters

Reading = tuple[str, tuple[tuple[str, object], ...]]
"""The name of a task, and the data's options that decide what is predicted, by name."""


def reading(run: FoundRun) -> Reading | None:
    """Return what own data a run is on and how it is read; None if it is not on own data."""
    if run.known is None or run.known.data is None:
        return None
    rules = {name: one.rule for name, one in run.known.settings.items()}
    table = run.known.tables()["data"]
    kept = {name: value for name, value in table.items() if name not in INPUTS and not rules[f"data.{name}"].inert}
    return run.task, tuple(sorted(kept.items()))


def inputs(run: FoundRun) -> str:
    """Return the inputs that were asked for, such as `calendar=true`; empty if there are none."""
    table = run.known.tables().get("data", {}) if run.known else {}
    return " ".join(f"{name}={setting(table[name])}" for name in INPUTS if name in table)


def titles(runs: Iterable[FoundRun]) -> dict[Reading, str]:
    """Return a title for each reading: the name of the file, and what tells it from other readings of this name."""
    names: dict[Reading, str] = {}
    for run in runs:
        if (own := reading(run)) is not None and run.known is not None:
            names.setdefault(own, run.known.title)
    found = {one: f"{name}{_difference(one, names)}"[:MAX_TITLE] for one, name in names.items()}
    return dict(sorted(found.items(), key=lambda item: item[1]))  # readings of a file stand together


def _difference(one: Reading, names: dict[Reading, str]) -> str:
    mine = dict(one[1])
    others = [dict(options) for (task, options) in names if task == one[0] and names[task, options] == names[one]]
    alike = [options for options in others if options["kind"] == mine["kind"]]  # other kinds have other options
    differing = ["kind"] if len(alike) < len(others) else []
    differing += [name for name in mine if len({str(options.get(name)) for options in alike}) > 1]
    said = [text for name in differing if (text := _said(name, mine.get(name)))]
    return f" ({', '.join(said)})" if said else ""


def _said(name: str, value: object) -> str:
    if value is None:
        return ""
    if name == "kind":
        return f"by {value}" if value in LANGUAGE else str(value)
    if name.endswith("hash"):
        return f"{name} {str(value)[:6]}"
    return "" if name.endswith("size") else f"{name}={setting(value)}"
