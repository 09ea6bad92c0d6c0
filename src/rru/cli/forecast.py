"""`rru forecast`: forecast series with a trained model."""

from pathlib import Path
from typing import Annotated

import typer

from rru import inference, tasks
from rru.cli.console import line, next_command, plain_errors, warn
from rru.cli.inference import loaded
from rru.cli.places import with_run
from rru.cli.results import summary
from rru.inference import forecasting
from rru.inference.output import unused_paths

SUFFIXES = (".csv", ".png")


@with_run
def forecast(
    folder: Path,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The series to forecast. Default: the file that the run was trained on."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The CSV file to write. Default: forecast-TASK.csv, -2, -3, ..."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Forecast series with a model trained on series, with 80 % and 95 % intervals.

        rru forecast latest
        rru forecast latest --data new.csv -o next.csv

    Write a table and, next to it, a picture (.png). Print a warning if the model does not beat both baselines.
    """
    with plain_errors():
        forecast_series(loaded(folder), data, output, force=force)
        next_command("export", str(folder), "-o", "model")


def forecast_series(trained: inference.Trained, data: Path | None, output: Path | None, *, force: bool) -> None:
    """Forecast the series in a file, by default the one trained on; write a table and a picture."""
    trained.check_command("forecast")
    (free,) = unused_paths(f"forecast-{trained.task}", SUFFIXES, force=force)
    files = forecasting.places(output or free, force=force)
    forecasts = inference.forecast(trained, data)
    forecasting.write_forecasts(forecasts, files)
    steps = len(forecasts[0].quantiles)
    many = f"{len(forecasts):,} series, {steps} steps each" if len(forecasts) > 1 else f"{steps} steps"
    line(f"{many} of {forecasts[0].target!r} with 80 % and 95 % intervals: {', '.join(map(str, files))}")
    context, shortest = trained.config.task.context, min(forecasts, key=lambda each: len(each.history))
    if len(shortest.history) < context:
        which = f"series {shortest.name!r}" if shortest.name else "the series"
        warn(f"{which} has {len(shortest.history):,} steps, the model reads {context:,}: expect larger errors")
    if trained.result is not None and tasks.verdict(scores := trained.result.test):
        text = f"on the test split: {summary(trained.result.metric, scores, trained.path)}"
        (line if tasks.beats_baselines(scores) else warn)(text)
