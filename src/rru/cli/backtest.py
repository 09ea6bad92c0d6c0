"""`rru backtest`: forecast from origins in the past, and compare with what came true."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from rru import inference
from rru.cli.console import columns, line, next_command, plain_errors, warn
from rru.cli.inference import loaded
from rru.cli.places import with_run
from rru.inference import backtest_scores
from rru.inference.backtest_scores import LABELS, Scores, table_rows
from rru.inference.forecasting import shown_times
from rru.inference.output import unused_paths
from rru.report.formatting import counted

SHOWN_STEPS, SHOWN_SERIES = 6, 3
SUFFIXES = (".csv", "-scores.csv")
CLEARLY = 0.98  # times the error of the model: a simple forecast with more is about as good
FEW = 20  # forecasts


@with_run
def backtest(
    folder: Path,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file with later values. Default: the test part of the run's own file."),
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Steps of each forecast. Default: as in training.")
    ] = None,
    origins: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Forecasts of each series. Default: as many as do not overlap."),
    ] = None,
    stride: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Steps between two origins. Default: the horizon.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The CSV file to write. Default: backtest-TASK.csv, -2, -3, ..."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Forecast from times in the past with a model trained on series, and compare with what came true.

        rru backtest latest
        rru backtest latest --data new.csv --origins 5 -o errors.csv

    Print the errors of the model and of simple forecasts, best first, and of AutoETS and AutoTheta if statsforecast is
    installed. Write all forecasts, and all scores next to them. The model is not trained again, and forecasts only
    what it has not seen: the test part, or what FILE has after the end of the training data.
    """
    with plain_errors():
        trained = loaded(folder)
        if output is None:
            (output,) = unused_paths(f"backtest-{trained.task}", SUFFIXES, force=force)
        backtest_scores.places(output, force=force)
        made = inference.backtest(trained, data, horizon=horizon, origins=origins, stride=stride)
        files = made.save(output, force=force)
        show(made)
        if len(made.windows) < FEW:
            more = "" if stride == 1 else "; --stride 1 makes one from every step, as the test score has it"
            line(f"{counted(len(made.windows), 'forecast')} are few to judge by{more}")
        line(f"forecasts and scores: {', '.join(map(str, files))}")
        next_command("forecast", str(folder))


def show(made: inference.Backtest) -> None:
    """Print what was forecast, and the scores: over all, by step of the horizon and by series."""
    line(f"{_forecasts(made)}: {made.data}")
    line(made.weights)
    for note in made.notes:
        warn(note)
    scores = made.scores
    _table([["best first", *LABELS.values()], *table_rows(scores)])
    if made.horizon > 1:
        _table(_steps(made.by_step(), list(scores)))
    if len(made.series) > 1:
        line(_series({name: each[made.model]["mase"] for name, each in made.by_series().items()}, made.model))
    best = next(iter(scores))
    if best != made.model and scores[best]["mase"] < CLEARLY * scores[made.model]["mase"]:
        warn(f"{best} is better than {made.model} here: use it, or train longer")


def _forecasts(made: inference.Backtest) -> str:
    """Return how many forecasts there are, of how many steps and series, and from when."""
    count, series = counted(len(made.windows), "forecast"), len(made.series)
    of = f"{series:,} series of {made.target!r}" if series > 1 else repr(made.target)
    whens = [window.times[0] for window in made.windows if window.times is not None]
    ends = [when.replace("T", " ") for when in shown_times(np.unique([min(whens), max(whens)]))] if whens else []
    return f"{count} of {counted(made.horizon, 'step')} of {of}{' from ' * bool(ends)}{' to '.join(ends)}"


def _table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of names and numbers, the numbers aligned to the right."""
    width = max(len(row[-1]) for row in rows)
    for text in columns([[*row[:-1], row[-1].rjust(width)] for row in rows], right=range(1, len(rows[0]))):
        line(text)


def _steps(steps: Sequence[Scores], methods: Sequence[str]) -> list[list[str]]:
    """Return rows of a table: the MASE of each method at some steps ahead."""
    last = len(steps) - 1
    count = min(SHOWN_STEPS, len(steps))
    chosen = sorted({round(number * last / (count - 1)) for number in range(count)})
    rows = [["MASE by step", *(str(step + 1) for step in chosen)]]
    return rows + [[name, *(f"{steps[step][name]['mase']:.3f}" for step in chosen)] for name in methods]


def _series(scores: Mapping[str, float], model: str) -> str:
    """Return the series that the model forecasts best, and worst."""
    ranked = sorted(scores, key=lambda name: scores[name])
    count = min(SHOWN_SERIES, len(ranked) // 2)

    def listed(names: Sequence[str]) -> str:
        return ", ".join(f"{name} {scores[name]:.3f}" for name in names)

    return f"MASE of {model} by series: best {listed(ranked[:count])}; worst {listed(ranked[::-1][:count])}"
