"""What the runs of a plan look like while they train: bars in a terminal, a line for each run elsewhere."""

from collections.abc import Callable
from types import TracebackType

from rich.progress import TaskID

from rru.cli.console import err, line
from rru.cli.display import bars, seconds
from rru.experiments.plans import Entry
from rru.experiments.running import Began, Happening, Lost, Outcome, Told
from rru.training import Evaluated, Event, Notice, Started, Stepped

LONG = 100  # letters of a message; all of it is shown at the end


class Crew:
    """Shows what happens: a bar for all runs, and one for each that trains.

    **Arguments:** `total`: how many runs there are to do.
    """

    def __init__(self, total: int) -> None:
        self.progress = bars()
        self.total = total
        self.overall = self.progress.add_task("all runs", total=total, says="")
        self.rows: dict[str, TaskID] = {}
        self.metrics: dict[str, str] = {}
        self.done = 0
        self.stopping = False

    def __enter__(self) -> "Crew":
        self.progress.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.progress.stop()

    def noticing(self, stop: Callable[[], bool]) -> Callable[[], bool]:
        """The same question, that says so once the answer is yes."""

        def asked() -> bool:
            if stop() and not self.stopping:
                self.stopping = True
                line("stopping after the current steps; Ctrl-C again stops at once", style="yellow")
            return self.stopping

        return asked

    def __call__(self, happening: Happening) -> None:
        entry = happening.entry
        match happening:
            case Began():
                place = f" on {happening.place}" if happening.place else ""
                if not err.is_terminal:
                    line(f"{entry.name}: begins{place}")
                self.rows[entry.id] = self.progress.add_task(entry.name, total=1, says=f"begins{place}")
            case Told():
                self._told(entry, happening.event)
            case Lost():
                line(f"{entry.name}: {happening.reason}; another goes on with it", style="yellow")
                self._remove(entry)
            case Outcome():
                self._remove(entry)
                self._ended(happening)

    def _told(self, entry: Entry, event: Event) -> None:
        row = self.rows.get(entry.id)
        if row is None:
            return
        match event:
            case Started():
                self.metrics[entry.id] = event.metric
                self.progress.update(row, total=event.epochs, completed=event.epoch, says="")
            case Stepped():
                self.progress.update(row, completed=event.epoch - 1 + event.index / event.steps)
            case Evaluated():
                metric = self.metrics.get(entry.id, "loss")
                says = f"{metric} {event.validation.get(metric, float('nan')):.4f}, best {event.best:.4f}"
                self.progress.update(row, completed=event.epoch, says=says)
            case Notice():
                line(f"{entry.name}: {event.message}", style="yellow")

    def _remove(self, entry: Entry) -> None:
        if (row := self.rows.pop(entry.id, None)) is not None:
            self.progress.remove_task(row)

    def _ended(self, outcome: Outcome) -> None:
        self.done += outcome.status != "stopped"
        self.progress.update(self.overall, completed=self.done)
        message = outcome.message if len(outcome.message) < LONG else outcome.message[:LONG] + " ..."
        result, says = outcome.result, f": {message}"
        if result is not None and outcome.status != "stopped":
            test = result.test.get(result.metric)
            score = f", test {result.metric} {test:.4f}" if test is not None else ""
            says = f"{score}; {result.reason}; {result.epochs} epochs, {seconds(result):.0f} s"
        style = "red" if outcome.status == "failed" else None
        line(f"{self.done}/{self.total} {outcome.entry.name}: {outcome.status}{says}", style=style)
