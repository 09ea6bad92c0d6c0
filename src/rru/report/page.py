"""Render the page: one file that loads nothing else. Nothing from a run's folder can become code in it."""

import base64
import hashlib
import itertools
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import rru
from rru.files import FileError, read_file
from rru.report import descriptions, formatting
from rru.report.figures import Figure, figure
from rru.report.gather import SENTENCE, WORD, RunRecord
from rru.report.identify import line_of, origin
from rru.report.own import own_parts
from rru.report.results import Report
from rru.report.tables import ResultsTable, rankings, tables
from rru.settings import toml

DESCRIPTIONS = {
    "paper": "Exactly the paper's settings, so these numbers can be compared with the paper's.",
    "cpu": "Scaled down to about ten minutes on two cores, with the same parameter budget for all cells. Compare the "
    "cells with one another. The paper's numbers come from larger models that were trained longer.",
    "smoke": "A few steps of a tiny model, to check that everything works. The numbers say nothing about the cells.",
    "your-data": "Runs on your own files. Cells with the same settings have the same parameter budget.",
    "demo": "The settings of rru demo: small models with the same parameter budget, not tuned for any cell.",
}
MEDIA = {".png": ("image/png", 2 << 20), ".wav": ("audio/wav", 12 << 20)}  # type, maximum bytes
MAX_MEDIA = 8
MAX_TEXT, MAX_FACTS = 4000, 60  # characters of a config, facts of an environment


@dataclass(frozen=True)
class Chapter:
    """All tables and figures of one preset."""

    preset: str
    description: str
    tables: list[ResultsTable]
    figures: list[Figure]


def chapters(report: Report) -> list[Chapter]:
    """Return the chapter of each preset that has runs."""
    return [
        Chapter(
            preset,
            DESCRIPTIONS.get(preset, ""),
            tables(sections),
            [figure(section) for section in sections if section.plan.shows != "table"],
        )
        for preset, sections in report.sections.items()
    ]


def render(report: Report, made: datetime, every: float | None = None) -> str:
    """Return the page as HTML.

    **Arguments:**

    - `report`: what to show.
    - `made`: the time to show as its date.
    - `every`: seconds after which the page reloads itself; None: never.
    """
    environment = Environment(
        loader=PackageLoader("rru.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script, style = _part("page.js"), _part("page.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "media-src data:; base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("page.html").render(
        policy=policy,
        script=Markup(script),  # from the package, like the style
        style=Markup(style),
        report=report,
        chapters=chapters(report),
        rankings=rankings(report.sections),
        own=own_parts(report.runs),
        rows=_rows(report),
        statuses=statuses(report),
        made=made,
        every=every,
        version=rru.__version__,
        formatting=formatting,
        descriptions=descriptions,
    )


def statuses(report: Report) -> dict[str, int]:
    """Return the number of runs of each status."""
    all_statuses = [run.status for run in report.runs]
    return {status: all_statuses.count(status) for status in sorted(set(all_statuses))}


def _rows(report: Report) -> list[dict[str, object]]:
    """Return the rows of all runs, without the best of all epochs if no run has tested them all."""
    hidden = () if any(run.best_test is not None for run in report.runs) else (descriptions.BEST_BY_TEST,)
    return [_row(number, run, hidden) for number, run in enumerate(report.runs, start=1)]


def _row(number: int, run: RunRecord, hidden: Container[str]) -> dict[str, object]:
    """Return what the page shows of a run, without the hidden numbers."""
    (music, problems), came_from = _music(run), origin(run)
    if run.duplicate_of is not None:
        problems.append(f"does not count: {run.duplicate_of} has the same settings and seed")
    return {
        "id": f"run-{number}",
        "run": run,
        "task": run.known.title if run.known else run.task,
        "line": line_of(run) or formatting.NONE,
        "preset": came_from.preset or formatting.NONE,
        "changes": came_from.text,
        "metric": run.metric.label if run.metric else "",
        "numbers": {name: entry for name, entry in descriptions.numbers(run).items() if name not in hidden},
        "config": _config(run.config),
        "environment": dict(itertools.islice(_flat(run.environment), MAX_FACTS)),
        "account": descriptions.account(run),
        "problems": [*run.problems, *problems],
        "music": music,
    }


def _config(config: Mapping[str, object]) -> str:
    try:
        return toml.dumps(config)[:MAX_TEXT]
    except (ValueError, TypeError):  # another program may have written the file
        return repr(dict(config))[:MAX_TEXT]


def _flat(values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield names and plain values; names in inner tables are prefixed with the table's name. Skip deeper values."""
    for name, value in values.items():
        if name == "history" and isinstance(value, list):
            yield from _history(value)
            continue
        inner = (
            {f"{name} {below}": each for below, each in value.items()} if isinstance(value, Mapping) else {name: value}
        )
        for key, each in inner.items():
            yield key[:WORD], str(each)[:SENTENCE] if each is None or isinstance(each, str | int | float) else "..."


def _history(entries: list[object]) -> Iterator[tuple[str, str]]:
    """Yield what changed when a run was resumed, each time with the step it happened at."""
    for entry in entries:
        if isinstance(entry, Mapping):
            facts = _flat({name: value for name, value in entry.items() if name not in ("epoch", "step", "history")})
            text = "; ".join(f"{name} {value}" for name, value in itertools.islice(facts, MAX_FACTS))
            yield f"resumed at step {entry.get('step')}"[:WORD], text[:SENTENCE]


def _music(run: RunRecord) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Return name, type and content of the pictures and sounds in a run's folder; and what could not be read."""
    files, problems = [], []
    for path in run.music[:MAX_MEDIA]:
        kind, limit = MEDIA[path.suffix]
        try:
            content = base64.b64encode(read_file(path, limit)).decode()
        except (FileError, OSError) as error:
            problems.append(str(error))
        else:
            files.append((path.name, kind, f"data:{kind};base64,{content}"))
    if len(run.music) > MAX_MEDIA:
        problems.append(f"music/ has {len(run.music)} files; the first {MAX_MEDIA} are shown")
    return files, problems


def _part(name: str) -> str:
    return resources.files("rru.report").joinpath("assets", name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
