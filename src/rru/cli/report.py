"""`rru report`."""

from pathlib import Path
from typing import Annotated

import typer

from rru import report as pages
from rru.cli.console import err, line, plain_errors
from rru.cli.train import ROOT
from rru.report import Summary
from rru.training import RunError, stop_on_signals


def report(
    roots: Annotated[
        list[Path] | None, typer.Argument(metavar="RUNS", help="Folders that runs are in. Default: runs.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    csv: Annotated[Path | None, typer.Option(help="Also write the numbers here, as CSV.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the numbers here, as Markdown.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep the page fresh while runs go on; Ctrl-C ends it.")
    ] = False,
    every: Annotated[float, typer.Option(min=1, help="With --watch: seconds from one look to the next.")] = 10,
) -> None:
    """Make one web page of runs: tables beside the paper's, figures, every run. Runs are only read."""
    with plain_errors():
        folders = roots or [ROOT]
        if not watch:
            _show(pages.write(folders, output, csv=csv, markdown=markdown))
            return
        with stop_on_signals() as stop:
            line(f"watching {', '.join(map(str, folders))}; Ctrl-C ends it")
            pages.keep_writing(folders, output, csv=csv, markdown=markdown, every=every, stop=stop, tell=_tell)


def _tell(event: Summary | RunError) -> None:
    if isinstance(event, RunError):
        line(f"{event}; waiting for one")
    else:
        line(f"{event.files[0]}: {_counted(event)}")


def _show(summary: Summary) -> None:
    for problem in summary.problems:
        err.print(problem, style="yellow", markup=False, soft_wrap=True)
    for shown in summary.shown:
        line(shown)
    line(f"{_counted(summary)}; in {', '.join(map(str, summary.files))}")


def _counted(summary: Summary) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in summary.statuses.items())
    total = sum(summary.statuses.values())
    return f"{total} run{'s' * (total != 1)} ({counts})"
