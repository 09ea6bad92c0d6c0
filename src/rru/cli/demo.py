"""`rru demo`: the four cells learn Bach chorales, side by side."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import typer
from rich import box
from rich.progress import TaskID
from rich.table import Table
from rich.text import Text

from rru import inference, report
from rru.cli.console import err, line, next_command, out, plain_errors, prose, warn_stopping
from rru.cli.display import TrainingBars, seconds
from rru.cli.places import ROOT, Root
from rru.cli.train import Seed, Threads, set_threads
from rru.files import own_folder
from rru.inference import score
from rru.report import formatting
from rru.settings import presets
from rru.settings.cells import PAPER_CELLS
from rru.training import Evaluated, Event, Result, Run, RunStatus, run_folder, stop_on_signals, train_config
from rru.training.run_files import has_config

TASK = "bach"
LEVELS = "▁▂▃▄▅▆▇█"
BARS = 16
FIRST = 6  # the curves' scale ignores the first sixth of all epochs, where all cells fall steeply


def demo(seed: Seed = 0, root: Root = ROOT, threads: Threads = None) -> None:
    """Train RRU, GRU, LSTM and Mogrifier LSTM on Bach chorales in minutes, compare them, and compose a chorale.

        rru demo

    Needs no download. All cells have the same number of parameters. Run it again to resume, or to see the results.
    """
    with plain_errors():
        set_threads(threads)
        configs = {
            cell: presets.override(presets.load(TASK, cell, "demo"), [f"schedule.seed={seed}"]) for cell in PAPER_CELLS
        }
        budget = configs["rru"].model.budget
        line(f"Four cells learn Bach chorales, with {budget:,} parameters each (seed {seed}).")
        folders = {cell: run_folder(config, root) for cell, config in configs.items()}
        begun = {cell: Run(folder) for cell, folder in folders.items() if has_config(folder)}
        results = {cell: result for cell, run in begun.items() if (result := run.result())}
        if results:
            line(f"Trained before: {', '.join(results)}.")
        with stop_on_signals(warn_stopping) as stop, TrainingBars() as bars:
            rows = {cell: bars.add(f"{cell:<9}", says="waiting") for cell in configs if cell not in results}
            for cell, row in rows.items():
                watch = _row(bars, row, cell)
                results[cell] = train_config(configs[cell], folders[cell], watch=watch, stop=stop)
                if results[cell].status == RunStatus.STOPPED:
                    break
                bars.stop_task(row)
                bars.update(row, says=f"test NLL {formatting.score(results[cell].test.get('nll'), 3)}")
        if stop():
            line("Stopped. Run `rru demo` again to resume.")
            raise typer.Exit(130)
        _show(results, {cell: Run(folder) for cell, folder in folders.items()})
        music = _compose(results, folders)
        page = report.write([root]).files[0]
        for name, paths in {"runs": folders.values(), "music": music, "page": [page]}.items():
            for number, path in enumerate(paths):
                line(f"{'' if number else name:<7}{path}")
        if music:
            next_command("compose", str(music[0].parent.parent), "--bars", "32")


def _row(bars: TrainingBars, row: TaskID, cell: str) -> Callable[[Event], None]:
    """Return a watcher that updates the row of one cell."""

    def watch(event: Event) -> None:
        bars.follow(row, event, lambda done: f"validation NLL {done.validation['nll']:.3f}")
        if isinstance(event, Evaluated) and not err.is_terminal:
            line(f"{cell}: epoch {event.epoch}, validation NLL {event.validation['nll']:.4f}")

    return watch


def _show(results: Mapping[str, Result], runs: Mapping[str, Run]) -> None:
    """Print a table of the results, best first, and the learning curves."""
    # The finite validation NLLs, the untrained model's first, then one per epoch.
    curves = {
        cell: [epoch.validation["nll"] for epoch in run.epochs() if "nll" in epoch.validation]
        for cell, run in runs.items()
    }
    known = [value for curve in curves.values() for value in curve[1 + len(curve) // FIRST :]]
    best = min((nll for result in results.values() if (nll := _nll(result)) is not None), default=0.0)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("cell")
    for name in ("test NLL", "parameters", "time", "best epoch"):
        table.add_column(name, justify="right")
    for cell, result in sorted(results.items(), key=lambda item: (_nll(item[1]) is None, _nll(item[1]) or 0.0)):
        nll = _nll(result)
        style = "bold green" if nll == best else ""
        names = Text(cell, style), Text(result.status if nll is None else f"{nll:.3f}", style)
        numbers = formatting.duration(seconds(result)), f"{result.best_epoch} of {result.epochs}"
        table.add_row(*names, f"{result.parameters:,}", *numbers)
    out.print(table)
    prose(
        "NLL is the negative log-likelihood of the next notes, in nats per step; lower is better. "
        "This is one seed, and the settings are not tuned for these chorales."
    )
    if known:
        line(f"Validation NLL by epoch (bottom {min(known):.2f}, top {max(known):.2f} or more):")
        for cell, curve in curves.items():
            line(f"  {cell:<9} {sparkline(curve[1:], min(known), max(known))}")


def _compose(results: Mapping[str, Result], folders: Mapping[str, Path]) -> Sequence[Path]:
    """Compose sixteen bars with the best cell, in its run's folder. Return the files."""
    scores = {cell: nll for cell, result in results.items() if (nll := _nll(result)) is not None}
    if not scores:
        return []
    best = min(scores, key=scores.__getitem__)
    trained = inference.load(folders[best])
    piece = score.continued(trained, score.prompt(trained, None, 0, 0), BARS)
    files = score.write(piece, own_folder(folders[best] / "music") / "chorale.mid")
    line(f"{best} continued two bars of a chorale it has never seen; listen to {files[-1].name}.")
    return files


def _nll(result: Result) -> float | None:
    """Return the test score; None if there is none, or if it was not finite."""
    return result.test.get("nll")


def sparkline(values: list[float], low: float, high: float) -> str:
    """Draw values as blocks of eight heights, from `low` to `high`."""
    scale = (len(LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(LEVELS[round((min(value, high) - low) * scale)] for value in values)
