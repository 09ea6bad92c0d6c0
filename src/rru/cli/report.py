"""`rru report`."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from rru import report as pages
from rru.cli.console import line, plain_errors, prose, warn, warn_damaged
from rru.cli.train import ROOT
from rru.report import Summary
from rru.report.formatting import counted
from rru.training import RunError, stop_on_signals


def report(
    roots: Annotated[
        list[Path] | None, typer.Argument(metavar="FOLDER", help="Folders that runs are in. Default: runs.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The page to write. Default: report.html in the first folder."
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the numbers to this CSV file.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the tables to this Markdown file.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep the page up to date while runs train, until Ctrl-C.")
    ] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also name every table and figure, and what is missing in it.")
    ] = False,
    every: Annotated[float, typer.Option(min=1, help="With --watch: seconds between updates.")] = 10,
) -> None:
    """Make a web page of runs: who won on each data set, a sample, tables with the paper's numbers, and all runs.

    The page is one file that works offline. Runs are only read.
    """
    with plain_errors():
        folders = roots or [ROOT]
        page = output or pages.default_page(folders)
        if not watch:
            _show(pages.write(folders, page, csv=csv, markdown=markdown), verbose=verbose)
            if show:
                _open(page)
            return
        unopened = [page] if show else []

        def tell(event: Summary | RunError) -> None:
            line(f"{event}; waiting for one" if isinstance(event, RunError) else f"{page}: {_counted(event)}")
            if unopened and isinstance(event, Summary):
                _open(unopened.pop())

        with stop_on_signals() as stop:
            line(f"watching {', '.join(map(str, folders))}; Ctrl-C ends it")
            pages.keep_writing(folders, pages.ReportFiles(page, csv, markdown), every=every, stop=stop, tell=tell)


def _open(page: Path) -> None:
    if not webbrowser.open_new_tab(page.absolute().as_uri()):
        warn(f"there is no browser to open {page} with")


def _show(summary: Summary, *, verbose: bool) -> None:
    for problem in summary.problems:
        warn_damaged(problem)
    for shown in summary.shown if verbose else ():
        prose(shown)
    prose(f"{summary.opening}.")
    line(f"{_counted(summary)}; written to {', '.join(map(str, summary.files))}")


def _counted(summary: Summary) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in summary.statuses.items())
    return f"{counted(sum(summary.statuses.values()), 'run')} ({counts})"
