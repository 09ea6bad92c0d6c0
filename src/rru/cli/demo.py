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
from rru.cli.display import TrainingBars
from rru.cli.places import ROOT, Root
from rru.cli.train import Seed, Threads, set_threads
from rru.files import own_folder, write_file
from rru.inference import score
from rru.inference.engine import web_page
from rru.report import formatting
from rru.report.identify import CELLS
from rru.settings import presets
from rru.settings.cells import PAPER_CELLS
from rru.training import Evaluated, Event, Result, Run, RunStatus, run_folder, stop_on_signals, train_config
from rru.training.run_files import WEB_PAGE, has_config

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
        _show(results, {cell: Run(folder) for cell, folder in folders.items()}, configs["rru"].schedule.epochs)
        best = next(iter(_ranked(results)), None)
        played = [_web_page(folders["rru"])] if "rru" in _ranked(results) else []
        music = _compose(best, folders[best]) if best else []
        page = report.write([root]).files[0]
        for name, paths in {"play": played, "report": [page], "music": music, "runs": folders.values()}.items():
            for number, path in enumerate(paths):
                line(f"{'' if number else name:<7}{path}")
        if best:  # not latest, which is the cell that was trained last
            next_command("compose", str(folders[best]), "--from-test", "3")
            next_command("export", str(folders[best]), "-o", "model")


def _row(bars: TrainingBars, row: TaskID, cell: str) -> Callable[[Event], None]:
    """Return a watcher that updates the row of one cell."""

    def watch(event: Event) -> None:
        bars.follow(row, event, lambda done: f"validation NLL {done.validation['nll']:.3f}")
        if isinstance(event, Evaluated) and not err.is_terminal:
            line(f"{cell}: epoch {event.epoch}, validation NLL {event.validation['nll']:.4f}")

    return watch


def _ranked(results: Mapping[str, Result]) -> dict[str, float]:
    """Return the test scores by cell, best first; without cells that have none."""
    scores = {cell: nll for cell, result in results.items() if (nll := _nll(result)) is not None}
    return dict(sorted(scores.items(), key=lambda item: item[1]))


def _show(results: Mapping[str, Result], runs: Mapping[str, Run], epochs: int) -> None:
    """Print a table of the results, best first, what it says in words, and the learning curves.

    **Arguments:** `results`, `runs`: by cell; `epochs`: the most that a run has.
    """
    # The finite validation NLLs, the untrained model's first, then one per epoch.
    curves = {
        cell: [epoch.validation["nll"] for epoch in run.epochs() if "nll" in epoch.validation]
        for cell, run in runs.items()
    }
    known = [value for curve in curves.values() for value in curve[1 + len(curve) // FIRST :]]
    ranked = _ranked(results)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("cell")
    for name in ("test NLL", "parameters", "best epoch"):
        table.add_column(name, justify="right")
    for cell in [*ranked, *(cell for cell in results if cell not in ranked)]:
        result, nll = results[cell], ranked.get(cell)
        style = "bold green" if nll is not None and nll == min(ranked.values()) else ""
        names = Text(cell, style), Text(result.status if nll is None else f"{nll:.3f}", style)
        table.add_row(*names, f"{result.parameters:,}", f"{result.best_epoch} of {result.epochs}")
    out.print(table)
    if ranked:
        line(_in_words(ranked), style="bold")
    prose(
        "NLL is the negative log-likelihood of the next chord, in nats; lower is better. This is one seed, and the "
        f"settings are not tuned for these chorales. A run has at most {epochs} epochs, and stops early if it does not "
        "get better on the validation pieces; the test uses its best epoch."
    )
    prose(
        "These chorales are not the JSB Chorales of the paper, and the models predict whole chords: do not compare "
        "these scores with the paper's."
    )
    if known:
        line(f"Validation NLL by epoch (bottom {min(known):.2f}, top {max(known):.2f} or more):")
        for cell, curve in curves.items():
            line(f"  {cell:<9} {sparkline(curve[1:], min(known), max(known))}")


def _in_words(ranked: Mapping[str, float]) -> str:
    """Return which cell predicts best, such as `RRU predicts best: 5.29; GRU 5.44`."""
    first, *others = ranked
    after = ", ".join(f"{CELLS[cell]} {ranked[cell]:.2f}" for cell in others)
    return f"{CELLS[first]} predicts best: {ranked[first]:.2f}" + (f"; {after}" if after else "")


def _compose(cell: str, folder: Path) -> Sequence[Path]:
    """Compose sixteen bars with a cell, in its run's folder. Return the files."""
    trained = inference.load(folder)
    piece = score.continued(trained, score.prompt(trained, None, 0, 0), BARS)
    files = score.write(piece, own_folder(folder / "music") / "chorale.mid")
    line(f"The {CELLS[cell]} continued two bars of a chorale it has never seen. Listen: {files[-1]}")
    return files


def _web_page(folder: Path) -> Path:
    """Write the page that composes with a model in the browser, in its run's folder. Return the file."""
    path = own_folder(folder) / WEB_PAGE
    write_file(path, web_page(inference.load(folder), int8=True))
    line(f"Play a few notes in your browser, and the RRU goes on: {path}")
    return path


def _nll(result: Result) -> float | None:
    """Return the test score; None if there is none, or if it was not finite."""
    return result.test.get("nll")


def sparkline(values: list[float], low: float, high: float) -> str:
    """Draw values as blocks of eight heights, from `low` to `high`."""
    scale = (len(LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(LEVELS[round((min(value, high) - low) * scale)] for value in values)
