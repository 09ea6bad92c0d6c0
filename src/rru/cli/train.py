"""`rru train`, `rru resume`, `rru evaluate`."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import torch
import typer

from rru.cli.console import command, line, plain_errors, warn_stopping
from rru.cli.data import Folder
from rru.cli.display import RunBars, show_result
from rru.cli.own import Given, show_settings, with_own_data
from rru.cli.places import ROOT as ROOT
from rru.cli.places import with_run
from rru.data import OwnData
from rru.settings import Config, presets
from rru.training import Run, RunStatus, joined, run_folder, stop_on_signals, tensorboard, train_config
from rru.training import evaluate as evaluate_run

Task = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="What to learn: a file or folder of your own, or bach (needs no download), jsb, ... `rru data list` lists "
        "all.",
    ),
]
Cell = Annotated[str, typer.Option(help="rru, gru, lstm, mogrifier, or one of your own (`rru --cells FILE`).")]
Preset = Annotated[
    str | None,
    typer.Option(
        help="The settings to start from: paper (exact), cpu (ten minutes), smoke (seconds), best (music). Own "
        "data: auto (chosen by its size) or smoke. Default: paper or auto."
    ),
]
Seed = Annotated[
    int, typer.Option(min=0, help="Random seed. The same seed gives the same result, with as many threads.")
]
Device = Annotated[str, typer.Option(help="The device to use: cpu, cuda, cuda:1, ...")]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Number of CPU threads. Another number changes results. Default: torch's choice."),
]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard files to the run's folder.")]


@with_own_data
def train(
    task: Task,
    given: Given,
    cell: Cell = "rru",
    preset: Preset = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Random seed. The same seed gives the same result, with as many threads. Default: 0."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as lr=0.01 or budget=2M. Repeatable."),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The run's own folder. Default: runs/TASK/CELL/ID, with an ID made from its settings.",
        ),
    ] = None,
    device: Device = "cpu",
    threads: Threads = None,
    data_dir: Folder = None,
    events: TensorBoard = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the data and the settings are, and train nothing.")
    ] = False,
) -> None:
    """Train a cell on a task or on your own data: a text, MIDI files, a table.

    Ctrl-C stops it. Run the same command again to resume; once the run has ended, that shows its result.
    """
    with plain_errors():
        seeded = [] if seed is None else [f"schedule.seed={seed}"]
        chosen = given.task(task)
        preset = presets.names(chosen)[0] if preset is None else preset
        changes = [*given.changes, *seeded, *(changes or [])]
        config = presets.override(presets.load(chosen, cell, preset), changes)
        if isinstance(chosen, OwnData) or dry_run:
            show_settings(config, preset)
        if dry_run:
            return
        _run(config, run_dir or run_folder(config, ROOT), device, threads, data_dir, events)


@with_run
def resume(
    folder: Path,
    device: Device = "cpu",
    threads: Threads = None,
    data_dir: Folder = None,
    events: TensorBoard = False,
) -> None:
    """Resume a run that was stopped or killed."""
    with plain_errors():
        _run(Run(folder).config, folder, device, threads, data_dir, events)


@with_run
def evaluate(
    folder: Path,
    split: Annotated[str, typer.Option(help="The data to evaluate on: train, valid or test.")] = "test",
    device: Device = "cpu",
    threads: Threads = None,
    data_dir: Folder = None,
) -> None:
    """Evaluate a run's best weights again."""
    with plain_errors():
        set_threads(threads)
        for name, value in evaluate_run(folder, split, data_dir=data_dir, device=device).items():
            line(f"{name} {value:.6g}")


def _run(config: Config, folder: Path, device: str, threads: int | None, data_dir: Path | None, events: bool) -> None:
    set_threads(threads)
    with joined(device) as processes:
        if processes.first:
            together = f", {processes.count} processes" if processes.count > 1 else ""
            names = f"{config.task.name}, {config.model.cell}, seed {config.schedule.seed}"
            line(f"{names}{together}: {folder}")
        tell, shown = (warn_stopping, RunBars()) if processes.first else (lambda: None, nullcontext())
        with stop_on_signals(tell) as stop, shown as bars:
            watch = tensorboard(folder, bars) if events and bars else bars
            result = train_config(
                config, folder, data_dir=data_dir, device=device, watch=watch, stop=stop, processes=processes
            )
    if processes.first:
        show_result(result, folder)
        if result.status == RunStatus.STOPPED:
            again = command("resume", str(folder)) if processes.count == 1 else "the same command again"
            line(f"to resume: {again}")
    if result.status == RunStatus.STOPPED:
        raise typer.Exit(130)


def set_threads(threads: int | None) -> None:
    """Set the number of threads that torch and the layers use; None keeps torch's default."""
    if threads is not None:
        torch.set_num_threads(threads)
