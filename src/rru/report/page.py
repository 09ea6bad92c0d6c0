"""Render the page: one file that loads nothing else. Nothing from a run's folder can become code in it."""

import base64
import hashlib
import itertools
import os
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import rru
from rru.inference import picture, sound
from rru.inference.engine.page import part as theme
from rru.report import descriptions, formatting, glossary
from rru.report.figures import Figure, figure
from rru.report.gather import SENTENCE, WORD, RunRecord
from rru.report.identify import line_of, origin
from rru.report.results import Report
from rru.report.samples import Media, media_of
from rru.report.sentences import opening
from rru.report.stories import stories
from rru.report.tables import ResultsTable, tables
from rru.settings import toml

PLAYER = {"left": picture.LEFT, "right": picture.RIGHT, "tail": sound.TAIL}
"""Where the music is in the picture of a piece (pixels), and how long its sound goes on after it (seconds)."""
MAX_TEXT, MAX_FACTS = 4000, 60  # characters of a config, facts of an environment


@dataclass(frozen=True)
class Chapter:
    """The tables of one preset, and its figures except for learning curves, which stories have."""

    preset: str
    tables: list[ResultsTable]
    figures: list[Figure]

    @property
    def slug(self) -> str:
        """Its name in ids of the page."""
        return self.preset.replace(" ", "-")


def chapters(report: Report) -> list[Chapter]:
    """Return the chapter of each preset that has runs."""
    return [
        Chapter(
            preset,
            tables(sections),
            [figure(section) for section in sections if section.plan.shows in ("grid", "curve")],
        )
        for preset, sections in report.sections.items()
    ]


def render(report: Report, made: datetime, every: float | None = None, place: Path | None = None) -> str:
    """Return the page as HTML.

    **Arguments:**

    - `report`: what to show.
    - `made`: the time to show as its date.
    - `every`: seconds after which the page reloads itself; None: never.
    - `place`: the folder that it will be in; without it there are no links to the pages of models.
    """
    environment = Environment(
        loader=PackageLoader("rru.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["explained"] = glossary.explained
    script, style = _part("page.js"), page_style()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "media-src data:; base-uri 'none'; form-action 'none'"
    )
    media = {run.folder: media_of(run) for run in report.runs if run.music}
    told = stories(report, media)
    shown = {each.run.folder for story in told for each in story.samples}
    return environment.get_template("template.html").render(
        policy=policy,
        script=Markup(script),  # from the package, like the style
        style=Markup(style),
        report=report,
        opening=opening(report),
        stories=told,
        chapters=chapters(report),
        rows=_rows(report, media, shown),
        run_ids={run.folder: f"run-{number}" for number, run in enumerate(report.runs, start=1)},
        statuses=statuses(report),
        made=made,
        every=every,
        version=rru.__version__,
        formatting=formatting,
        descriptions=descriptions,
        glossary=glossary,
        line_of=line_of,
        web_pages=_web_pages(report, place),
        player=PLAYER,
    )


def _web_pages(report: Report, place: Path | None) -> dict[Path, str]:
    """Return the addresses, from a folder, of the pages that run models, by the folder of their run."""
    found = {run.folder: run.web_page for run in report.runs if run.web_page is not None}
    if place is None:
        return {}
    return {folder: quote(Path(os.path.relpath(page, place)).as_posix()) for folder, page in found.items()}


def statuses(report: Report) -> dict[str, int]:
    """Return the number of runs of each status."""
    all_statuses = [run.status for run in report.runs]
    return {status: all_statuses.count(status) for status in sorted(set(all_statuses))}


def _rows(report: Report, media: Mapping[Path, Media], shown: Container[Path]) -> list[dict[str, object]]:
    """Return the rows of all runs, without the best of all epochs if no run has tested them all.

    **Arguments:** `media`: the pictures and sounds of runs; `shown`: the runs whose media the page shows already.
    """
    hidden = () if any(run.best_test is not None for run in report.runs) else (descriptions.BEST_BY_TEST,)
    rows = []
    for number, run in enumerate(report.runs, start=1):
        of_run = media.get(run.folder, Media())
        row = _row(number, run, of_run.problems, hidden)
        rows.append({**row, "media": () if run.folder in shown else of_run.files})
    return rows


def _row(number: int, run: RunRecord, unread: Iterable[str], hidden: Container[str]) -> dict[str, object]:
    """Return what the page shows of a run, without the hidden numbers; `unread` are media that cannot be shown."""
    came_from, problems = origin(run), [*run.problems, *unread]
    if run.duplicate_of is not None:
        problems.append(f"does not count: {run.duplicate_of} has the same settings and seed")
    return {
        "id": f"run-{number}",
        "run": run,
        "line": line_of(run) or formatting.NONE,
        "preset": came_from.preset or formatting.NONE,
        "changes": came_from.text,
        "numbers": {name: entry for name, entry in descriptions.numbers(run).items() if name not in hidden},
        "config": _config(run.config),
        "environment": dict(itertools.islice(_flat(run.environment), MAX_FACTS)),
        "account": descriptions.account(run),
        "problems": problems,
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


def page_style() -> str:
    """Return the style of the page: the theme that it shares with the pages of models, and its own."""
    return theme("theme.css") + _part("page.css")


def _part(name: str) -> str:
    return resources.files("rru.report").joinpath("assets", name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
