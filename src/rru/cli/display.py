"""Show training: bars in a terminal, else one line per epoch."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich import progress
from rich.console import RenderableType
from rich.constrain import Constrain
from rich.progress import Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from rru.cli.console import Bars, err, line, warn
from rru.cli.results import named_score, shown_score, summary
from rru.report.formatting import clock, counted, duration, score
from rru.tasks import from_loss
from rru.training import Ended, Evaluated, Event, Notice, Refitted, Result, Run, Started, Stepped

MARGIN = 4  # free columns, so that the terminal's ^C does not wrap to a new line and displace the bars


class Times(progress.ProgressColumn):
    """The elapsed time of a row, and the time left at its speed since it started."""

    def render(self, task: Task) -> Text:
        """Return both times; empty while the row waits."""
        elapsed = task.finished_time if task.finished else task.elapsed
        if elapsed is None:
            return Text("")
        done = task.completed - task.fields.get("before", 0)
        if task.total is None or done <= 0 or task.finished or task.stop_time is not None:
            return Text(clock(elapsed), style="progress.elapsed")
        remaining = (task.total - task.completed) * elapsed / done
        bound = task.fields.get("bound", "")
        return Text(f"{clock(elapsed)}, {bound}{clock(remaining)} left", style="progress.elapsed", no_wrap=True)


class TrainingBars(Bars):
    """Rows with a name, a bar, a count, times and a text."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            progress.BarColumn(bar_width=None),
            progress.MofNCompleteColumn(table_column=Column(no_wrap=True)),
            Times(Column(no_wrap=True)),
            TextColumn("{task.fields[says]}", markup=False, table_column=Column(no_wrap=True)),
        )

    def get_renderable(self) -> RenderableType:
        """Return the rows, a little narrower than the terminal."""
        return Constrain(super().get_renderable(), max(err.width - MARGIN, 1))

    def add(
        self, name: str, total: float | None = None, *, before: float = 0, bound: str = "", says: str = ""
    ) -> TaskID:
        """Add a row.

        **Arguments:**

        - `name`: its description.
        - `total`: the count at which it ends; None if it waits for its turn.
        - `before`: the count reached in earlier sessions, which is not used to estimate the speed.
        - `bound`: a word in front of the time left, such as `≤ `.
        - `says`: the text at its end.
        """
        return self.add_task(
            name, total=total, completed=int(before), start=total is not None, before=before, bound=bound, says=says
        )

    def follow(self, row: TaskID, event: Event, says: Callable[[Evaluated], str]) -> None:
        """Update the row of a run that waited for its turn; `says` returns the text to show after an epoch."""
        match event:
            case Started():
                self.start_task(row)
                self.update(row, total=event.epochs, completed=event.epoch, before=event.epoch, bound="≤ ", says="")
            case Stepped():
                self.update(row, completed=event.epoch - 1 + event.index / event.steps)
            case Evaluated():
                self.update(row, completed=event.epoch, says=says(event))


def download_bars() -> Bars:
    """Return bars for downloads."""
    numbers = (progress.DownloadColumn(), progress.TransferSpeedColumn(), progress.TimeRemainingColumn())
    return Bars(TextColumn("{task.description}", markup=False), progress.BarColumn(bar_width=None), *numbers)


def file_bar() -> Bars:
    """Return a bar that counts files."""
    return Bars(progress.BarColumn(), TextColumn("{task.completed}/{task.total} {task.description}", markup=False))


class RunBars(TrainingBars):
    """A watcher that shows one run: a bar for its epochs and one for the steps of the current epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.metric, self.best = "loss", "best"
        self.epochs: TaskID | None = None
        self.steps: TaskID | None = None
        self.whole: TaskID | None = None
        self.smooth: float | None = None
        self._restart_clock()

    @property
    def started(self) -> bool:
        """Whether the run was trained, rather than read because it had ended before."""
        return self.epochs is not None

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._start(event)
            case Stepped():
                self._step(event)
            case Evaluated():
                self._epoch(event)
            case Refitted():
                self._refit(event)
            case Notice():
                warn(event.message)
            case Ended():
                self.stop()

    def _start(self, event: Started) -> None:
        self.metric, self.best = event.metric, event.best
        line(f"{event.parameters:,} parameters; validation {self._loss(event.untrained_loss)} before training")
        if event.step:
            line(f"resuming after {counted(event.step, 'step')} ({counted(event.epoch, 'epoch')})")
        most, patience = counted(event.epochs, "epoch"), counted(event.patience, "epoch")
        early = event.patience < event.epochs
        line(f"at most {most}; ends after {patience} without improvement" if early else most)
        self.epochs = self.add("epochs", event.epochs, before=event.epoch, bound="≤ ")
        self._restart_clock()

    def _loss(self, nats: float | None, digits: int = 4) -> str:
        """Return a loss with its name, in the unit of the run's metric if that is a plain conversion."""
        value = None if nats is None else from_loss(self.metric, nats)
        return f"loss {score(nats, digits)}" if value is None else f"{self.metric} {score(value, digits)}"

    def _restart_clock(self) -> None:
        self.since, self.seen, self.tokens = time.monotonic(), 0, 0

    def _step(self, event: Stepped) -> None:
        assert self.epochs is not None
        if self.steps is None:
            self.steps = self.add("steps")
        if not self.seen:  # the first of an epoch, or since the run was resumed
            self.reset(self.steps, total=event.steps, completed=event.index - 1, before=event.index - 1, says="")
        self.smooth = event.loss if self.smooth is None else 0.9 * self.smooth + 0.1 * event.loss
        self.seen += 1
        self.tokens += event.tokens
        spent = max(time.monotonic() - self.since, 1e-6)
        says = f"{self._loss(self.smooth, 3)}, {self.tokens / spent:,.0f} tokens/s"
        if event.index == event.steps:
            says = "validating"
        self.update(self.steps, completed=event.index, says=says)
        self.update(self.epochs, completed=event.epoch - 1 + event.index / event.steps)

    def _epoch(self, event: Evaluated) -> None:
        value, digits = event.validation[self.metric], 3 if err.is_terminal else 4
        now, best = named_score(self.metric, value, digits), shown_score(self.metric, event.best, digits)
        best = f"{self.best} {best} (epoch {event.best_epoch})" if event.best_epoch else "none better yet"
        assert self.epochs is not None
        self.update(self.epochs, completed=event.epoch, says=f"{now}, {best}")
        if not err.is_terminal:
            line(f"epoch {event.epoch}: train {self._loss(event.train_loss)}, validation {now}, {best}")
        self._restart_clock()  # exclude validation from the speed of steps

    def _refit(self, event: Refitted) -> None:
        if self.whole is None:
            self.whole = self.add("on all data", event.epochs)
            if not err.is_terminal:
                line(f"training anew on all data, for {counted(event.epochs, 'epoch')}")
        self.update(self.whole, completed=event.epoch)


def show_result(result: Result, folder: Path, *, before: bool = False, verbose: bool = False) -> None:
    """Print the result of a run in a few lines.

    **Arguments:** `before`: whether it had ended before this command; `verbose`: print all scores.
    """
    line(f"{'already ' * before}{result.status}: {result.reason}")
    if result.test:
        line(f"test: {summary(result.metric, result.test, folder)}", style="bold")
    elif result.best is not None:
        line(f"validation: {named_score(result.metric, result.best)}")
    if verbose:
        for split, scores in (("validation", result.validation), ("test", result.test)):
            if scores:
                line(f"{split:<11}" + "  ".join(f"{name} {score(value)}" for name, value in scores.items()))
    best = f", best after epoch {result.best_epoch}" if result.best_epoch else ""
    took = f"{counted(result.steps, 'step')} in {duration(seconds(result))}{_threads(Run(folder).threads())}"
    line(f"{counted(result.epochs, 'epoch')}{best}; {took}")
    line(f"run folder: {folder}")


def _threads(numbers: Sequence[int]) -> str:
    """Return with how many threads a run was trained: its result depends on it."""
    return f", with {', then '.join(map(str, numbers))} thread{'s' * (numbers[-1] != 1)}" if numbers else ""


def seconds(result: Result) -> float:
    """Return the total time of a run."""
    return result.seconds.get("total", 0.0)
