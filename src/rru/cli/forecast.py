"""`rru forecast`: forecast series with a trained model."""

from pathlib import Path
from typing import Annotated

import typer

from rru import inference, tasks
from rru.cli.console import line, plain_errors, warn
from rru.cli.inference import loaded
from rru.cli.places import with_run
from rru.inference import forecasting


@with_run
def forecast(
    folder: Path,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The series to forecast. Default: the file that the run was trained on."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The CSV file to write.")] = Path(
        "forecast.csv"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
) -> None:
    """Forecast series with a model trained on series, with 80 % and 95 % intervals.

    Write a table and, next to it, a picture (.png). Print a warning if the model does not beat both baselines.
    """
    with plain_errors():
        trained = loaded(folder)
        trained.check_command("forecast")
        files = forecasting.places(output, force=force)
        forecasts = inference.forecast(trained, data)
        forecasting.write_forecasts(forecasts, files)
        steps = len(forecasts[0].quantiles)
        many = f"{len(forecasts):,} series, {steps} steps each" if len(forecasts) > 1 else f"{steps} steps"
        line(f"{many} of {forecasts[0].target!r} with 80 % and 95 % intervals: {', '.join(map(str, files))}")
        context, shortest = trained.config.task.context, min(forecasts, key=lambda each: len(each.history))
        if len(shortest.history) < context:
            which = f"series {shortest.name!r}" if shortest.name else "the series"
            warn(f"{which} has {len(shortest.history):,} steps, the model reads {context:,}: expect larger errors")
        if trained.result is not None and (baselines := tasks.verdict(trained.result.test)):
            (line if tasks.beats_baselines(trained.result.test) else warn)(f"on the test split: {baselines}")
