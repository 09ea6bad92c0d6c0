"""`rru train`, `rru resume`, `rru evaluate`, `rru runs`."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich import box
from rich.table import Table

from rru.cli.console import line, out, plain_errors
from rru.cli.data import Folder
from rru.cli.display import show_result, watched
from rru.experiments import execute, presets
from rru.training import Run, joined, stop_on_signals

ROOT = Path("runs")

Device = Annotated[str, typer.Option(help="Where the model is: cpu, cuda, ...")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads to compute with. Default: as many as torch chooses.")]
RunPlace = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
Root = Annotated[Path, typer.Option("--runs", help="The folder that runs are in.")]


def train(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task: bach, jsb, ptb-words, ...")],
    cell: Annotated[str, typer.Option(help="rru, gru, lstm or mogrifier.")] = "rru",
    preset: Annotated[str, typer.Option(help="paper (exact), cpu (about ten minutes) or smoke (seconds).")] = "paper",
    seed: Annotated[int, typer.Option(min=0, help="All randomness depends on it.")] = 0,
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
) -> None:
    """Train a cell on a task. The same command again goes on where it was stopped, or shows what came of it."""
    with plain_errors():
        config = presets.override(presets.load(task, cell, preset), [*(changes or []), f"schedule.seed={seed}"])
        _run(config, run_dir or execute.run_folder(config, ROOT), device, threads, data_dir)


def resume(folder: RunPlace, device: Device = "cpu", threads: Threads = None, data_dir: Folder = None) -> None:
    """Go on with a run that was stopped or killed."""
    with plain_errors():
        _run(presets.checked(Run(folder).config), folder, device, threads, data_dir)


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
        found = execute.find_runs(root)
        if not found:
            line(f"no runs in {root}; `rru train bach --preset smoke` makes one")
            return
        table = Table(box=box.SIMPLE_HEAD)
        for name in ("task", "cell", "seed", "status"):
            table.add_column(name)
        for name in ("epochs", "best validation", "test"):
            table.add_column(name, justify="right")
        table.add_column("folder", overflow="fold")
        for run in found:
            table.add_row(*_row(run))
        out.print(table)


def _run(config: Mapping[str, Any], folder: Path, device: str, threads: int | None, data_dir: Path | None) -> None:
    set_threads(threads)
    with joined(device) as processes:
        if processes.first:
            together = f", {processes.count} processes" if processes.count > 1 else ""
            seed = config["schedule"]["seed"]
            line(f"{config['task']['name']}, {config['model']['cell']}, seed {seed}{together}: {folder}")
        with stop_on_signals() as stop, watched() if processes.first else nullcontext() as watch:
            result = execute.start(
                config, folder, data_dir=data_dir, device=device, watch=watch, stop=stop, processes=processes
            )
    if processes.first:
        show_result(result, folder)
        if result.status == "stopped":
            line(f"`rru resume {folder}` goes on" if processes.count == 1 else "the same command goes on")
    if result.status == "stopped":
        raise typer.Exit(130)


def set_threads(threads: int | None) -> None:
    """Has torch, and so the layers, compute with so many threads; None: as many as torch chooses."""
    if threads is not None:
        torch.set_num_threads(threads)


def _row(run: Run) -> list[str]:
    config, result = run.config, run.result()
    lines = [entry for entry in run.metrics() if entry.get("kind") == "epoch"]
    epochs = str(result["epochs"] if result else lines[-1]["epoch"] if lines else 0)
    metric = result["metric"] if result else ""
    best = f"{metric} {result['best']:.4f}" if result and result["best"] is not None else ""
    test = f"{metric} {result['test'][metric]:.4f}" if result and result["test"] else ""
    names = [config["task"]["name"], config["model"]["cell"], str(config["schedule"]["seed"])]
    return [*names, run.status, epochs, best, test, str(run.path)]
