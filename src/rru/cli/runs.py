"""`rru runs`: list runs."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from rru.cli.console import columns, line, next_command, out, plain_errors, shown, warn_damaged
from rru.cli.places import ROOT, Root, by_date, is_run, shortest_name
from rru.cli.results import named_score, shown_score
from rru.report.formatting import NONE
from rru.report.gather import RunRecord, gather
from rru.report.identify import origin
from rru.training.run_files import last_change

HEAD = [
    "task",
    "cell",
    "preset",
    "seed",
    "status",
    "epochs",
    "validation",
    "test",
    "changed settings",
    "date",
    "folder",
]
RIGHT = (3, 5, 6, 7)
SHORT = 8  # columns that fit a narrow terminal; the others go to a second line


def runs(
    given: Annotated[Path | None, typer.Argument(metavar="FOLDER", help="The same as --runs.")] = None,
    root: Root = ROOT,
) -> None:
    """List all runs: settings, status, best validation score and test score.

        rru runs
        rru runs other/runs

    The preset is the one that a run's settings are closest to; changed settings are those that differ from it. The date
    is that of the last change. Scores are by the task's metric: lower is better, except for accuracy.
    """
    with plain_errors():
        if given is not None and not given.exists() and is_run(str(given), root):
            raise ValueError(f"FOLDER must be a folder of runs; {given} is a run, for commands such as rru use {given}")
        root = given or root
        records = gather([root]) if root.is_dir() else []
        for run in records:
            for problem in run.located_problems:
                warn_damaged(problem)
        rows = [_row(run) for run in records if run.config]
        if not rows:
            line(f"no runs in {root}; `rru train bach --preset smoke` makes one")
            return
        _print(rows)
        next_command("use", *shortest_name(by_date(root)[0], root))


def _print(rows: Sequence[list[str]]) -> None:
    """Print one line per run, or two if the terminal is too narrow."""
    table = [HEAD, *rows]
    if not any(row[SHORT] for row in rows):
        table = [[*row[:SHORT], *row[SHORT + 1 :]] for row in table]
    lines = columns(table, right=RIGHT)
    if out.is_terminal and max(map(len, lines)) > out.width:
        first = [part.rstrip() for part in columns([[*row[:SHORT], ""] for row in table], right=RIGHT)]
        second = ["  ".join(part for part in row[SHORT:] if part) for row in table]
        line(first[0], style="bold")
        for upper, lower in zip(first[1:], second[1:], strict=True):
            line(upper)
            line(f"    {lower}", style="dim")
        return
    line(lines[0], style="bold")
    for each in lines[1:]:
        line(each)


def _row(run: RunRecord) -> list[str]:
    """Return the values of a run in the order of `HEAD`."""
    came_from = origin(run)
    seed = NONE if run.seed is None else str(run.seed)
    names = [run.task, run.cell, came_from.preset or NONE, seed]
    epochs = str(run.epochs or 0)
    validation = NONE
    if run.validation is not None and run.metric:
        validation = named_score(run.metric.key, run.validation)
    scores = [epochs, validation, shown_score(run.metric.key if run.metric else "", run.test)]
    values = [*names, run.status, *scores, came_from.text, _date(run.folder), str(run.folder)]
    return [shown(value, keep="") for value in values]


def _date(folder: Path) -> str:
    """Return when a run was last changed."""
    changed = last_change(folder)
    try:
        return NONE if changed is None else datetime.fromtimestamp(changed).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # not a date
        return NONE
