"""Runs as one web page: tables beside the paper's, figures, and every run with how its number came about.

```python
from pathlib import Path

from rru import report

summary = report.write([Path("runs")], Path("report.html"))
```
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rru.report.export import to_csv, to_markdown
from rru.report.page import render, statuses
from rru.report.results import Report, build
from rru.training import RunError
from rru.training.files import write_file

__all__ = ["Summary", "keep_writing", "write"]


@dataclass(frozen=True)
class Summary:
    """What was written, and of what.

    **Arguments:**

    - `files`: the files written, the page first.
    - `statuses`: how many runs there are of each status.
    - `shown`: the tables and figures, each with its preset, and what is missing from it.
    - `problems`: what could not be read or counted, and why.
    """

    files: tuple[Path, ...]
    statuses: Mapping[str, int]
    shown: tuple[str, ...]
    problems: tuple[str, ...]


def write(
    roots: Iterable[Path | str],
    output: Path | str,
    *,
    csv: Path | str | None = None,
    markdown: Path | str | None = None,
) -> Summary:
    """Writes a page of all runs below some folders; they are only read.

    **Arguments:**

    - `roots`: the folders.
    - `output`: the page, one file that loads nothing.
    - `csv`, `markdown`: files for the same numbers.

    **Returns:** what was written. If there is no run at all, a RunError says so and nothing is.
    """
    return _Targets.of(output, csv, markdown).write(build(map(Path, roots)))


def keep_writing(
    roots: Iterable[Path | str],
    output: Path | str,
    *,
    csv: Path | str | None = None,
    markdown: Path | str | None = None,
    every: float,
    stop: Callable[[], bool],
    tell: Callable[[Summary | RunError], None],
) -> None:
    """Writes the page again whenever something about the runs has changed; it loads itself again in the browser.

    **Arguments:**

    - `roots`, `output`, `csv`, `markdown`: as for `write`.
    - `every`: seconds from one look to the next.
    - `stop`: asked several times a second; once it says True, the page is written a last time, as one that no longer
      loads itself.
    - `tell`: is called whenever the page was written, or that there are no runs yet.
    """
    folders, targets = [Path(root) for root in roots], _Targets.of(output, csv, markdown)
    before: Report | RunError | None = None
    ended = False
    while not ended:
        try:
            now: Report | RunError = build(folders)
        except RunError as error:
            now = error
        if isinstance(now, Report) and now != before:
            tell(targets.write(now, every))
        elif isinstance(now, RunError) and not isinstance(before, RunError):
            tell(now)
        before = now
        ended = _asked(stop, every)
    if isinstance(before, Report):
        targets.write(before)


def _asked(stop: Callable[[], bool], seconds: float) -> bool:
    """Whether it is asked to stop, now or within so many seconds."""
    end = time.monotonic() + seconds
    while not stop():
        left = end - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, 0.1))
    return True


def _printable(text: str) -> str:
    """Text without what no terminal or file takes, such as half a character."""
    return text.encode(errors="replace").decode()


@dataclass(frozen=True)
class _Targets:
    """The files to write."""

    output: Path
    csv: Path | None
    markdown: Path | None

    @classmethod
    def of(cls, output: Path | str, csv: Path | str | None, markdown: Path | str | None) -> "_Targets":
        return cls(Path(output), Path(csv) if csv else None, Path(markdown) if markdown else None)

    def write(self, report: Report, every: float | None = None) -> Summary:
        texts = {self.output: render(report, datetime.now().astimezone(), every)}
        if self.csv is not None:
            texts[self.csv] = to_csv(report)
        if self.markdown is not None:
            texts[self.markdown] = to_markdown(report)
        for path, text in texts.items():
            path.absolute().parent.mkdir(parents=True, exist_ok=True)
            write_file(path, _printable(text).encode())
        sections = [section for sections in report.sections.values() for section in sections]
        shown = tuple(f"{section.preset}: {section.heading}. {section.progress}".strip() for section in sections)
        problems = [
            _printable(problem if problem.startswith(str(run.folder)) else f"{run.folder}: {problem}")
            for run in report.runs
            for problem in run.problems
        ]
        return Summary(tuple(texts), statuses(report), shown, (*report.notes, *problems))
