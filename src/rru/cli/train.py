"""`rru train`, `rru evaluate`."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer

from rru.cli.console import line, next_command, plain_errors, warn_stopping
from rru.cli.data import Folder
from rru.cli.display import RunBars, show_result
from rru.cli.own import Given, with_own_data
from rru.cli.places import ROOT as ROOT
from rru.cli.places import Root, is_run, named_run, shortest_name, with_run
from rru.cli.results import summary
from rru.data import CATALOGUE, OwnData
from rru.kinds import kind_of
from rru.settings import Config, presets
from rru.settings.tables import FLOAT32
from rru.training import (
    Run,
    RunStatus,
    joined,
    run_folder,
    stop_on_signals,
    tensorboard,
    train_config,
    with_precision,
)
from rru.training import evaluate as evaluate_run
from rru.training.time_budget import Places, within

Task = Annotated[
    str,
    typer.Argument(
        metavar="FILE|TASK",
        help="What to learn: a file or folder of your own, or bach (needs no download), jsb, ... as `rru data list` "
        "lists them.",
    ),
]
Cell = Annotated[str, typer.Option(help="rru, gru, lstm, mogrifier, or one of your own (`rru --code FILE`).")]
Preset = Annotated[
    str | None,
    typer.Option(
        help="The settings to start from: paper (exact), cpu (ten minutes), smoke (seconds), best or nade (music). Own "
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
Precision = Annotated[
    str | None,
    typer.Option(
        metavar="float32|bf16|auto",
        help="Multiply in float32 or bfloat16 in training; auto: bfloat16 where it is faster. Default: float32.",
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="Choose the model's size and its epochs so that training takes about N minutes on this machine. For your "
        "own data.",
    ),
]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard files to the run's folder.")]


Verbose = Annotated[bool, typer.Option("--verbose", help="Print all scores.")]


@with_own_data
def train(
    task: Annotated[
        str,
        typer.Argument(
            metavar="FILE|TASK",
            help="What to learn: a file or folder of your own, or bach (needs no download), jsb, ... as in "
            "`rru data list`. Or a run to resume: latest, the start of its id, or its folder.",
        ),
    ],
    given: Given,
    cell: Annotated[
        str | None, typer.Option(help="rru, gru, lstm, mogrifier, or your own (`rru --code FILE`). Default: rru.")
    ] = None,
    preset: Preset = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Random seed. The same seed gives the same result, with as many threads. Default: 0."),
    ] = None,
    ensemble: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Train N forecasters together and average them. For series."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as lr=0.01 or budget=2M. Repeatable."),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="The run's own folder. Default: RUNS/TASK/CELL/ID, with an ID made from its settings.",
        ),
    ] = None,
    root: Root = ROOT,
    minutes: Minutes = None,
    precision: Precision = None,
    device: Device = "cpu",
    threads: Threads = None,
    data_dir: Folder = None,
    events: TensorBoard = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the data and the settings are, and train nothing.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Train a cell on a task or on your own data, or resume a run.

        rru train novel.txt
        rru train bach --preset smoke
        rru train energy.csv --target load --horizon 24

    Ctrl-C stops it. Run the same command again to resume; once the run has ended, that shows its result.
    """
    with plain_errors():
        where = _Where(root, device, threads, data_dir, events, verbose)
        if task not in CATALOGUE and is_run(task, root):
            fixed: dict[str, object] = {"--cell": cell, "--preset": preset, "--seed": seed, "--ensemble": ensemble}
            fixed |= {"--set": changes, "--run-dir": run_dir, "--precision": precision, "--minutes": minutes}
            _refuse(task, [name for name, value in fixed.items() if value is not None] + given.arguments[:1])
            folder = named_run(task, root)
            _run(Run(folder).config, folder, where)
            return
        named = {"schedule.seed": seed, "task.ensemble": ensemble}
        settings = [f"{name}={value}" for name, value in named.items() if value is not None]
        chosen = given.task(task)
        preset = presets.names(chosen)[0] if preset is None else preset
        all_changes = [*given.changes, *settings, *(changes or [])]

        def build(scale: float) -> Config:
            config = presets.override(presets.load(chosen, cell or "rru", preset, scale), all_changes)
            return with_precision(config, precision, device, run_dir)

        config = build(1.0)
        if minutes is not None:
            set_threads(threads)
            config = within(minutes, build, presets.changed(config, all_changes), Places(root, run_dir), device)
        if isinstance(chosen, OwnData) or dry_run:
            line(presets.described(config, preset))
        if dry_run:
            return
        _run(config, run_dir or run_folder(config, root), where)


def _refuse(run: str, options: Sequence[str]) -> None:
    """Raise ValueError if there is an option that the settings of a run decide."""
    for option in options:
        raise ValueError(f"{option} cannot be given with a run, whose settings are fixed; {run} is a run")


@with_run
def evaluate(
    folder: Path,
    split: Annotated[str, typer.Option(help="The data to evaluate on: train, validation or test.")] = "test",
    device: Device = "cpu",
    threads: Threads = None,
    data_dir: Folder = None,
    verbose: Verbose = False,
) -> None:
    """Evaluate a run's best weights again.

    rru evaluate latest
    rru evaluate latest --split validation --verbose
    """
    with plain_errors():
        set_threads(threads)
        scores = evaluate_run(folder, split, data_dir=data_dir, device=device)
        metric = kind_of(Run(folder).config.kind).metric.key
        line(f"{split}: {summary(metric, scores, folder, counts=split == 'test')}")
        if verbose:
            for name, value in scores.items():
                line(f"{name} {value:.6g}")
        next_command("use", *shortest_name(folder, ROOT))


@dataclass(frozen=True)
class _Where:
    """Where a run is trained, and what is shown of it."""

    root: Path
    device: str
    threads: int | None
    data_dir: Path | None
    events: bool
    verbose: bool


def _run(config: Config, folder: Path, where: _Where) -> None:
    set_threads(where.threads)
    device = where.device
    with joined(device) as processes:
        if processes.first:
            together = f", {processes.count} processes" if processes.count > 1 else ""
            names = f"{config.task.name}, {config.model.cell}, seed {config.schedule.seed}"
            narrow = "" if config.schedule.precision == FLOAT32 else f", {config.schedule.precision}"
            line(f"{names}{narrow}{together}: {folder}")
        tell, shown = (warn_stopping, RunBars()) if processes.first else (lambda: None, nullcontext())
        with stop_on_signals(tell) as stop, shown as bars:
            watch = tensorboard(folder, bars) if where.events and bars else bars
            result = train_config(
                config, folder, data_dir=where.data_dir, device=device, watch=watch, stop=stop, processes=processes
            )
    if processes.first:
        before = isinstance(bars, RunBars) and not bars.started
        show_result(result, folder, before=before, verbose=where.verbose)
        if result.status != RunStatus.STOPPED:
            next_command("use", *shortest_name(folder, where.root), *needed_input(config.kind))
        elif processes.count == 1:
            next_command("train", str(folder))  # not latest: another run may begin before it is resumed
        else:
            line("to resume: the same command again")
    if result.status == RunStatus.STOPPED:
        raise typer.Exit(130)


def needed_input(kind: str) -> list[str]:
    """Return what `rru use` needs besides the run: files, if its models classify."""
    return ["FILE"] if kind_of(kind).commands[:1] == ("classify",) else []


def set_threads(threads: int | None) -> None:
    """Set the number of threads that torch and the layers use; None keeps torch's default."""
    if threads is not None:
        torch.set_num_threads(threads)
