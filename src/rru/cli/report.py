"""`rru report`."""

from pathlib import Path
from typing import Annotated

import typer

from rru import report as pages
from rru.cli.console import line, plain_errors, prose, warn_damaged
from rru.cli.train import ROOT
from rru.report import Summary
from rru.report.formatting import counted
from rru.training import RunError, stop_on_signals


def report(
    roots: Annotated[
        list[Path] | None, typer.Argument(metavar="FOLDER", help="Folders that runs are in. Default: runs.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the numbers to this CSV file.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the tables to this Markdown file.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep the page up to date while runs train, until Ctrl-C.")
    ] = False,
    every: Annotated[float, typer.Option(min=1, help="With --watch: seconds between updates.")] = 10,
) -> None:
    """Make a web page of runs: rankings, music, tables with the paper's numbers, figures, and all runs.

    The page is one file that works offline. Runs are only read.
    """
    with plain_errors():
        folders = roots or [ROOT]
        if not watch:
            _show(pages.write(folders, output, csv=csv, markdown=markdown))
            return
        with stop_on_signals() as stop:
            files = pages.ReportFiles(output, csv, markdown)
            line(f"watching {', '.join(map(str, folders))}; Ctrl-C ends it")
            pages.keep_writing(folders, files, every=every, stop=stop, tell=_tell)


def _tell(event: Summary | RunError) -> None:
    if isinstance(event, RunError):
        line(f"{event}; waiting for one")
    else:
        line(f"{event.files[0]}: {_counted(event)}")


def _show(summary: Summary) -> None:
    for problem in summary.problems:
        warn_damaged(problem)
    for shown in summary.shown:
        prose(shown)
    line(f"{_counted(summary)}; written to {', '.join(map(str, summary.files))}")


def _counted(summary: Summary) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in summary.statuses.items())
    return f"{counted(sum(summary.statuses.values()), 'run')} ({counts})"
