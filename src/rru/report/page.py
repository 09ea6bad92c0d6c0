"""The page: one file, which loads nothing and in which nothing that a run's folder holds can become code."""

import base64
import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import rru
from rru.report import words
from rru.report.figures import Figure, figure
from rru.report.gather import SENTENCE, WORD, Found
from rru.report.results import ABOUT, Report, line_of, preset_of
from rru.report.tables import Table, tables
from rru.training import RunError, toml
from rru.training.files import read_file

MEDIA = {".png": ("image/png", 2 << 20), ".wav": ("audio/wav", 12 << 20)}  # type, most bytes
MOST_MEDIA = 8
MOST_TEXT, MOST_FACTS = 4000, 60  # characters of a config, facts of an environment


@dataclass(frozen=True)
class Chapter:
    """All of one preset."""

    preset: str
    about: str
    tables: list[Table]
    figures: list[Figure]


def chapters(report: Report) -> list[Chapter]:
    """What is to be shown of each preset that has results."""
    return [
        Chapter(
            preset,
            ABOUT.get(preset, ""),
            tables(sections),
            [figure(section) for section in sections if section.shows != "table"],
        )
        for preset, sections in report.sections.items()
    ]


def render(report: Report, made: datetime, every: float | None = None) -> str:
    """The page as HTML.

    **Arguments:**

    - `report`: what to show.
    - `made`: when.
    - `every`: after how many seconds the page is to load itself again; None: never.
    """
    environment = Environment(
        loader=PackageLoader("rru.report", "page"),
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
        script=Markup(script),  # the package's own, as is the style
        style=Markup(style),
        report=report,
        chapters=chapters(report),
        rows=[row(run) for run in report.runs],
        statuses=statuses(report),
        made=made,
        every=every,
        version=rru.__version__,
        words=words,
    )


def statuses(report: Report) -> dict[str, int]:
    """How many runs there are of each status."""
    found = [run.status for run in report.runs]
    return {status: found.count(status) for status in sorted(set(found))}


def row(run: Found) -> dict[str, Any]:
    """What the table of runs shows of one."""
    media, problems = _media(run)
    return {
        "run": run,
        "names": [line_of(run) or words.NONE, preset_of(run) or words.NONE],
        "numbers": words.numbers(run),
        "config": _config(run.config),
        "environment": dict(itertools.islice(_flat(run.environment), MOST_FACTS)),
        "account": words.account(run),
        "problems": [*run.problems, *problems, *_twin(run)],
        "media": media,
    }


def _twin(run: Found) -> list[str]:
    return [] if run.twin is None else [f"counts nowhere: {run.twin} has the same settings and seed"]


def _config(config: Mapping[str, Any]) -> str:
    try:
        return toml.dumps(config)[:MOST_TEXT]
    except (ValueError, TypeError):  # what another program wrote may hold more than our own files do
        return repr(dict(config))[:MOST_TEXT]


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and plain values, those of inner tables behind their table's name; what lies deeper is not ours."""
    for name, value in values.items():
        inner = (
            {f"{name} {below}": each for below, each in value.items()} if isinstance(value, Mapping) else {name: value}
        )
        for key, each in inner.items():
            yield key[:WORD], str(each)[:SENTENCE] if each is None or isinstance(each, str | int | float) else "..."


def _media(run: Found) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Name, kind and content of what a run's folder holds to look at and listen to; and what could not be read."""
    media, problems = [], []
    for path in run.music[:MOST_MEDIA]:
        kind, limit = MEDIA[path.suffix]
        try:
            content = base64.b64encode(read_file(path, limit)).decode()
        except (RunError, OSError) as error:
            problems.append(str(error))
        else:
            media.append((path.name, kind, f"data:{kind};base64,{content}"))
    if len(run.music) > MOST_MEDIA:
        problems.append(f"music/ holds {len(run.music)} files, of which the first {MOST_MEDIA} are shown")
    return media, problems


def _part(name: str) -> str:
    return resources.files("rru.report").joinpath("page", name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
