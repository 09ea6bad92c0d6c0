"""Show the runs of a plan while they train: bars in a terminal, else one line per run."""

from rich.progress import TaskID

from rru.cli.console import err, line, warn
from rru.cli.display import TrainingBars, seconds
from rru.cli.results import named_score, shown_score
from rru.experiments.plans import PlannedRun
from rru.experiments.running import Outcome, PlanEvent, RunLost, RunReported, RunStarted
from rru.report.formatting import counted, duration
from rru.training import Evaluated, Event, Notice, RunStatus, Started

LONG = 100  # characters of a message; the full message is shown at the end


class PlanBars(TrainingBars):
    """Show a bar for all runs, and one for each run that trains.

    **Arguments:** `total`: how many runs there are to do.
    """

    def __init__(self, total: int) -> None:
        super().__init__()
        self.total = total
        self.overall = self.add("all runs", total)
        self.rows: dict[str, TaskID] = {}
        self.metrics: dict[str, str] = {}
        self.done = 0

    def __call__(self, event: PlanEvent) -> None:
        entry = event.run
        match event:
            case RunStarted():
                place = f" on {event.place}" if event.place else ""
                if not err.is_terminal:
                    line(f"{entry.name}: starts{place}")
                self.rows[entry.id] = self.add(entry.name, says=f"starts{place}")
            case RunReported():
                self._follow(entry, event.event)
            case RunLost():
                warn(f"{entry.name}: {event.reason}; another process resumes it")
                self._remove(entry)
            case Outcome():
                self._remove(entry)
                self._ended(event)

    def _follow(self, entry: PlannedRun, event: Event) -> None:
        row = self.rows.get(entry.id)
        if row is None:
            return
        if isinstance(event, Started):
            self.metrics[entry.id] = event.metric
        elif isinstance(event, Notice):
            warn(f"{entry.name}: {event.message}")
        metric = self.metrics.get(entry.id, "loss")
        self.follow(row, event, lambda done: _says(metric, done))

    def _remove(self, entry: PlannedRun) -> None:
        if (row := self.rows.pop(entry.id, None)) is not None:
            self.remove_task(row)

    def _ended(self, outcome: Outcome) -> None:
        self.done += outcome.status != RunStatus.STOPPED
        self.update(self.overall, completed=self.done)
        message = outcome.message if len(outcome.message) < LONG else outcome.message[:LONG] + " ..."
        result, says = outcome.result, f": {message}"
        if result is not None and outcome.status != RunStatus.STOPPED:
            test = result.test.get(result.metric)
            tested = f", test {named_score(result.metric, test)}" if test is not None else ""
            says = f"{tested}; {result.reason}; {counted(result.epochs, 'epoch')} in {duration(seconds(result))}"
        style = "red" if outcome.status == RunStatus.FAILED else None
        line(f"{self.done}/{self.total} {outcome.run.name}: {outcome.status}{says}", style=style)


def _says(metric: str, done: Evaluated) -> str:
    return f"{named_score(metric, done.validation.get(metric))}, best {shown_score(metric, done.best)}"
