"""What a run looks like while it trains: bars in a terminal, a line for each epoch elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rru.cli.console import err, line
from rru.training import Ended, Evaluated, Event, Notice, Result, Started, Stepped, Watch


def bars() -> Progress:
    """Rows with a name, a bar, times and a text; nothing where standard error is not a terminal."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[says]}", markup=False),
    )
    return Progress(*columns, console=err, disable=not err.is_terminal, expand=True)


@contextmanager
def watched() -> Iterator[Watch]:
    """A watcher that shows one run: a bar for its epochs and one for the steps of the current epoch."""
    with bars() as progress:
        yield _RunBars(progress)


class _RunBars:
    def __init__(self, progress: Progress) -> None:
        self.progress, self.metric = progress, "loss"
        self.epochs: TaskID | None = None
        self.steps: TaskID | None = None
        self.smooth, self.since, self.tokens = 0.0, time.monotonic(), 0
        self.seen = 0

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                line(f"{event.parameters:,} parameters; untrained loss {event.untrained_loss:.4f}")
                self.metric = event.metric
                self.epochs = self.progress.add_task("epochs", total=event.epochs, completed=event.epoch, says="")
                self.steps = self.progress.add_task("steps", total=1, says="")
            case Stepped():
                self._step(event)
            case Evaluated():
                self._epoch(event)
            case Notice():
                err.print(event.message, style="yellow", markup=False)
            case Ended():
                self.progress.stop()

    def _step(self, event: Stepped) -> None:
        self.smooth = event.loss if not self.seen else 0.9 * self.smooth + 0.1 * event.loss
        self.seen += 1
        self.tokens += event.tokens
        spent = max(time.monotonic() - self.since, 1e-6)
        says = f"loss {self.smooth:.4f}  {self.seen / spent:.1f} steps/s  {self.tokens / spent:,.0f} tokens/s"
        assert self.steps is not None
        self.progress.update(self.steps, completed=event.index, total=event.steps, says=says)

    def _epoch(self, event: Evaluated) -> None:
        now = event.validation[self.metric]
        best = f"best {event.best:.4f} after epoch {event.best_epoch}"
        assert self.epochs is not None
        self.progress.update(self.epochs, completed=event.epoch, says=f"{self.metric} {now:.4f}, {best}")
        if not err.is_terminal:
            line(f"epoch {event.epoch}: train loss {event.train_loss:.4f}, {self.metric} {now:.4f}, {best}")


def show_result(result: Result, folder: Path) -> None:
    """What came of a run, in a few lines."""
    line(f"{result.status}: {result.reason}")
    for split, scores in (("validation", result.validation), ("test", result.test)):
        if scores:
            line(f"{split:<11}" + "  ".join(f"{name} {value:.4f}" for name, value in scores.items()))
    spent = seconds(result)
    layers = result.seconds.get("model", 0.0)
    share = 1 - layers / spent if spent else 0.0
    line(
        f"{result.epochs} epochs (best: {result.best_epoch}), {result.steps:,} steps, {spent:.0f} s, "
        f"{share:.0%} of it outside the model; in {folder}"
    )


def seconds(result: Result) -> float:
    """How long a run took in all."""
    return result.seconds.get("total", 0.0)
