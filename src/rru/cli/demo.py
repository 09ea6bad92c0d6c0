"""`rru demo`: the four cells learn Bach chorales, side by side."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.progress import Progress, TaskID
from rich.table import Table
from rich.text import Text

from rru import generate, report
from rru.cli.console import err, line, out, plain_errors
from rru.cli.display import bars, seconds
from rru.cli.train import ROOT, Threads, set_threads
from rru.experiments import execute, presets
from rru.experiments.own import CELLS
from rru.generate import score
from rru.training import Evaluated, Event, Result, Run, Started, Stepped, stop_on_signals

TASK = "bach"
LEVELS = "▁▂▃▄▅▆▇█"
BARS = 16
FIRST = 6  # the first sixth of all epochs does not count for the curves' scale: all cells fall steeply there


def demo(
    seed: Annotated[int, typer.Option(min=0, help="All randomness depends on it.")] = 0,
    root: Annotated[Path, typer.Option("--runs", help="The folder that runs are in.")] = ROOT,
    threads: Threads = None,
) -> None:
    """Train RRU, GRU, LSTM and Mogrifier LSTM on Bach chorales, with equally many parameters, in minutes."""
    with plain_errors():
        set_threads(threads)
        configs = {
            cell: presets.override(presets.load(TASK, cell, "demo"), [f"schedule.seed={seed}"]) for cell in CELLS
        }
        budget = configs["rru"]["model"]["budget"]
        line(f"Four cells learn Bach chorales: which notes come next? At most {budget:,} parameters each, seed {seed}.")
        folders = {cell: execute.run_folder(config, root) for cell, config in configs.items()}
        results: dict[str, Result] = {}
        with stop_on_signals() as stop, bars() as progress:
            rows = {cell: progress.add_task(f"{cell:<9}", total=None, start=False, says="waits") for cell in configs}
            for cell, config in configs.items():
                watch = _row(progress, rows[cell], cell)
                results[cell] = execute.start(config, folders[cell], watch=watch, stop=stop)
                if results[cell].status == "stopped":
                    break
        if stop():
            line("stopped; the same command goes on")
            raise typer.Exit(130)
        _show(results, {cell: Run(folder) for cell, folder in folders.items()})
        _compose(results, folders)
        report.write([root], root / "report.html")
        line(f"All of it as a page, curves and sound included: {root / 'report.html'}")


def _row(progress: Progress, row: TaskID, cell: str) -> Callable[[Event], None]:
    """A watcher that moves one cell's row."""

    def watch(event: Event) -> None:
        match event:
            case Started():
                progress.start_task(row)
                progress.update(row, total=event.epochs, completed=event.epoch, says="")
            case Stepped():
                progress.update(row, completed=event.epoch - 1 + event.index / event.steps)
            case Evaluated():
                progress.update(row, completed=event.epoch, says=f"validation NLL {event.validation['nll']:.3f}")
                if not err.is_terminal:
                    line(f"{cell}: epoch {event.epoch}, validation NLL {event.validation['nll']:.4f}")

    return watch


def _show(results: dict[str, Result], runs: dict[str, Run]) -> None:
    """Who did how well, in a table, with each cell's learning curve; and where to read more."""
    curves = {cell: _curve(run) for cell, run in runs.items()}
    known = [value for curve in curves.values() for value in curve[1 + len(curve) // FIRST :]]
    best = min((result.test["nll"] for result in results.values() if result.test), default=0.0)
    table = Table(box=box.SIMPLE_HEAD)
    for name, justify in (("cell", "left"), ("test NLL", "right"), ("parameters", "right"), ("seconds", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("best epoch", justify="right")
    for cell, result in sorted(results.items(), key=lambda item: item[1].test.get("nll", float("inf"))):
        nll = result.test.get("nll")
        shown = result.status if nll is None else f"{nll:.3f}"
        style = "bold green" if nll == best else ""
        numbers = [f"{result.parameters:,}", f"{seconds(result):.0f}", f"{result.best_epoch} of {result.epochs}"]
        table.add_row(Text(cell, style), Text(shown, style), *numbers)
    out.print(table)
    if known:
        line(f"Validation NLL, epoch by epoch, from {max(known):.2f} and more at the top to {min(known):.2f}:")
        for cell, curve in curves.items():
            line(f"  {cell:<9} {sparkline(curve[1:], min(known), max(known))}")
    line("NLL: nats for a step of 88 keys, lower is better; the best epoch by validation, tested once.")
    line("These are the chorales that ship with rru, not JSB Chorales; one seed, and settings not tuned for them.")
    line(f"Runs: {', '.join(str(run.path) for run in runs.values())}")


def _compose(results: dict[str, Result], folders: dict[str, Path]) -> None:
    """Sixteen bars by the cell that tested best, in its run's folder."""
    scores = {cell: result.test["nll"] for cell, result in results.items() if result.test}
    if not scores:
        return
    best = min(scores, key=scores.__getitem__)
    trained = generate.load(folders[best])
    piece = generate.compose(trained, score.prompt(trained, None, 0, 0), BARS * score.bar(trained))
    midi, picture, sound = score.write(piece, folders[best] / "music" / "chorale.mid")
    line(f"{best} goes on from two bars of a chorale it has never seen; listen: {sound} (notes: {midi}, {picture})")


def _curve(run: Run) -> list[float]:
    """The validation after each epoch, the untrained model's first; without what is not finite."""
    scores = [entry["validation"]["nll"] for entry in run.metrics() if entry.get("kind") == "epoch"]
    return [value for value in scores if value is not None]


def sparkline(values: list[float], low: float, high: float) -> str:
    """Values as blocks of eight heights, all from `low` to `high`."""
    scale = (len(LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(LEVELS[round((min(value, high) - low) * scale)] for value in values)
