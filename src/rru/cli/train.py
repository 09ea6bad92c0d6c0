"""`rru train`, `rru resume`, `rru evaluate`, `rru runs`."""

import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from rru.cli.console import columns, err, line, plain_errors
from rru.cli.data import Folder
from rru.cli.display import number, show_result, watched
from rru.experiments import execute, presets
from rru.training import Result, Run, RunError, joined, stop_on_signals, tensorboard

ROOT = Path("runs")
HEAD = ["task", "cell", "seed", "status", "epochs", "metric", "validation", "test", "folder"]
RIGHT = (2, 4, 6, 7)

Device = Annotated[str, typer.Option(help="Where the model is: cpu, cuda, ...")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads to compute with. Default: as many as torch chooses.")]
RunPlace = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events to the run's folder.")]
Root = Annotated[Path, typer.Option("--runs", help="The folder that runs are in.")]


def train(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task: bach, jsb, ptb-words, ...")],
    cell: Annotated[str, typer.Option(help="rru, gru, lstm, mogrifier, or one of `rru --cells FILE`.")] = "rru",
    preset: Annotated[str, typer.Option(help="paper (exact), cpu (about ten minutes) or smoke (seconds).")] = "paper",
    seed: Annotated[int | None, typer.Option(min=0, help="All randomness depends on it. Default: 0.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Changes a setting of the preset.")
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="The run's own folder. Default: runs/TASK/CELL/ID, ID being that of its settings."),
    ] = None,
    device: Device = "cpu",
    threads: Threads = None,
    data_dir: Folder = None,
    events: TensorBoard = False,
) -> None:
    """Train a cell on a task. The same command again goes on where it was stopped, or shows what came of it."""
    with plain_errors():
        seeded = [] if seed is None else [f"schedule.seed={seed}"]
        config = presets.override(presets.load(task, cell, preset), [*seeded, *(changes or [])])
        _run(config, run_dir or execute.run_folder(config, ROOT), device, threads, data_dir, events)


def resume(
    folder: RunPlace,
    device: Device = "cpu",
    threads: Threads = None,
    data_dir: Folder = None,
    events: TensorBoard = False,
) -> None:
    """Go on with a run that was stopped or killed."""
    with plain_errors():
        _run(presets.checked(Run(folder).config), folder, device, threads, data_dir, events)


def evaluate(
    folder: RunPlace,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    device: Device = "cpu",
    threads: Threads = None,
    data_dir: Folder = None,
) -> None:
    """Evaluate a run's best weights once more."""
    with plain_errors():
        set_threads(threads)
        for name, value in execute.evaluate(folder, split, data_dir=data_dir, device=device).items():
            line(f"{name} {value:.6g}")


def runs(root: Root = ROOT) -> None:
    """Show the runs there are, and what came of each."""
    with plain_errors():
        rows = [row for run in execute.find_runs(root, _left_out) if (row := _row(run))]
        if not rows:
            line(f"no runs in {root}; `rru train bach --preset smoke` makes one")
            return
        head, *body = columns([HEAD, *rows], right=RIGHT)
        line(head, style="bold")
        for each in body:
            line(each)


def _run(
    config: Mapping[str, Any], folder: Path, device: str, threads: int | None, data_dir: Path | None, events: bool
) -> None:
    set_threads(threads)
    with joined(device) as processes:
        if processes.first:
            together = f", {processes.count} processes" if processes.count > 1 else ""
            seed = config["schedule"]["seed"]
            line(f"{config['task']['name']}, {config['model']['cell']}, seed {seed}{together}: {folder}")
        with stop_on_signals() as stop, watched() if processes.first else nullcontext() as bars:
            watch = tensorboard(folder, bars) if events and bars else bars
            result = execute.start(
                config, folder, data_dir=data_dir, device=device, watch=watch, stop=stop, processes=processes
            )
    if processes.first:
        show_result(result, folder)
        if result.status == "stopped":
            again = f"`rru resume {shlex.quote(str(folder))}`" if processes.count == 1 else "the same command"
            line(f"{again} goes on")
    if result.status == "stopped":
        raise typer.Exit(130)


def set_threads(threads: int | None) -> None:
    """Has torch, and so the layers, compute with so many threads; None: as many as torch chooses."""
    if threads is not None:
        torch.set_num_threads(threads)


def _row(run: Run) -> list[str] | None:
    """What there is to say of a run, in the order of `HEAD`; None if what came of it cannot be read."""
    names = [run.config["task"]["name"], run.config["model"]["cell"], str(run.config["schedule"]["seed"])]
    try:
        ended = run.result()
        if ended is None:
            lines = [entry for entry in run.metrics() if entry.get("kind") == "epoch"]
            epochs = lines[-1].get("epoch") if lines else 0
            return [*names, run.status, str(epochs), "", "", "", str(run.path)]
        result = Result.from_json(ended)
    except RunError as error:
        _left_out(run.path, error)
        return None
    scores = [number(of_split.get(result.metric)) for of_split in (result.validation, result.test)]
    return [*names, result.status, str(result.epochs), result.metric, *scores, str(run.path)]


def _left_out(folder: Path, problem: RunError) -> None:
    err.print(f"left out: {problem}", style="yellow", markup=False, soft_wrap=True)
