"""Make one web page from runs: who won on each data set, a sample, tables with the paper's numbers, and all runs.

```python
from rru import report

summary = report.write(["runs"])  # to runs/report.html
```
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rru.files import write_file
from rru.report.export import to_csv, to_markdown
from rru.report.page import render, statuses
from rru.report.results import Report, build
from rru.report.sentences import opening
from rru.training import RunError, stopped_within

__all__ = ["ReportFiles", "Summary", "default_page", "keep_writing", "write"]

PAGE = "report.html"


@dataclass(frozen=True)
class Summary:
    """A summary of a written report.

    **Arguments:**

    - `files`: the files written, the page first.
    - `statuses`: the number of runs of each status.
    - `opening`: the first sentence of the page: who won, and how sure that is.
    - `shown`: the tables and figures, each with its preset and what is still missing.
    - `problems`: what could not be read or counted, and why.
    """

    files: tuple[Path, ...]
    statuses: Mapping[str, int]
    opening: str
    shown: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class ReportFiles:
    """The files of a report: the page, a single file that loads nothing else; and the same numbers as text."""

    page: Path
    csv: Path | None = None
    markdown: Path | None = None

    def write(self, report: Report, every: float | None = None) -> Summary:
        """Write all files. With `every`, the open page reloads itself in the browser after so many seconds."""
        texts = {self.page: render(report, datetime.now().astimezone(), every, self.page.parent)}
        if self.csv is not None:
            texts[self.csv] = to_csv(report)
        if self.markdown is not None:
            texts[self.markdown] = to_markdown(report)
        for path, text in texts.items():
            path.absolute().parent.mkdir(parents=True, exist_ok=True)
            write_file(path, _printable(text).encode())
        sections = [section for sections in report.sections.values() for section in sections]
        shown = tuple(f"{section.plan.preset}: {section.heading}. {section.progress}".strip() for section in sections)
        problems = [_printable(problem) for run in report.runs for problem in run.located_problems]
        said = _printable(opening(report))
        return Summary(tuple(texts), statuses(report), said, shown, (*report.notes, *problems))


def default_page(roots: Iterable[Path | str]) -> Path:
    """Return where the page of some folders is written: in the first of them that exists."""
    places = [Path(root) for root in roots]
    return next((place for place in places if place.is_dir()), *places[:1] or [Path()]) / PAGE


def write(
    roots: Iterable[Path | str],
    output: Path | str | None = None,
    *,
    csv: Path | str | None = None,
    markdown: Path | str | None = None,
) -> Summary:
    """Write a page of all runs below some folders. The runs are not changed.

    **Arguments:**

    - `roots`: the folders.
    - `output`: the page to write, a single file that loads nothing else. Default: `report.html` in the first folder.
    - `csv`, `markdown`: files to write the same numbers to.

    **Returns:** a summary. If there are no runs, raises RunError and writes nothing.
    """
    folders = [Path(root) for root in roots]
    page = default_page(folders) if output is None else Path(output)
    files = ReportFiles(page, Path(csv) if csv else None, Path(markdown) if markdown else None)
    return files.write(build(folders))


def keep_writing(
    roots: Sequence[Path],
    files: ReportFiles,
    *,
    every: float,
    stop: Callable[[], bool],
    tell: Callable[[Summary | RunError], None],
) -> None:
    """Write the report again whenever a run has changed. The open page reloads itself in the browser.

    **Arguments:**

    - `roots`: the folders that runs are in.
    - `files`: the files to write.
    - `every`: seconds between checks for changes.
    - `stop`: called several times a second. Once it returns True, the page is written a last time, without reloading.
    - `tell`: called after the page is written, and if there are no runs yet.
    """
    before: Report | RunError | None = None
    ended = False
    while not ended:
        try:
            now: Report | RunError = build(roots)
        except RunError as error:
            now = error
        if isinstance(now, Report) and now != before:
            tell(files.write(now, every))
        elif isinstance(now, RunError) and not isinstance(before, RunError):
            tell(now)
        before = now
        ended = stopped_within(every, stop)
    if isinstance(before, Report):
        files.write(before)


def _printable(text: str) -> str:
    """Replace characters that cannot be encoded as UTF-8, such as half of a surrogate pair."""
    return text.encode(errors="replace").decode()
