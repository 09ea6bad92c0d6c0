"""Show the state of a plan's runs as tables, once or live."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rru.cli.console import columns, err, line, out, shown
from rru.cli.results import named_score
from rru.experiments import plans
from rru.experiments.plans import Plan, PlannedRun
from rru.experiments.running import RunState, run_state
from rru.experiments.running.estimate import Estimate, Speed, time_left
from rru.report.formatting import counted, duration, score
from rru.training import ENDED, RunStatus, stopped_within

MAX_ROWS = 60  # a plan with more runs is summarized
COLOURS = {  # in the order that runs are shown in
    RunStatus.RUNNING: "cyan",
    RunStatus.FAILED: "red",
    RunStatus.DAMAGED: "red",
    RunStatus.STOPPED: "yellow",
    RunStatus.FINISHED: "green",
    RunStatus.DIVERGED: "magenta",
    RunStatus.MISSING: "dim",
}
STATUSES = list(COLOURS)
MAX_TASKS = 3  # tasks whose time left is named
AROUND = 9  # lines of the live view that are not runs


@dataclass(frozen=True)
class PlanView:
    """A plan and how its runs are found.

    **Arguments:**

    - `plan`: the plan.
    - `root`, `results`: as for `run_state`.
    - `speed`: measures this machine's speed.
    """

    plan: Plan
    root: Path
    speed: Speed
    results: Sequence[Path] = ()

    @property
    def heading(self) -> str:
        """The title of the plan, and the folders that its runs are in."""
        places = " and ".join(map(str, (self.root, *self.results)))
        return f"{self.plan.title}; preset {self.plan.preset}, runs in {places}"

    def look(self) -> list[RunState]:
        """Return the current state of each run."""
        return [run_state(entry, self.root, self.results) for entry in self.plan.runs]

    def table(self, states: Sequence[RunState]) -> Table:
        """Return a table with one row per run."""
        return _rows(self.plan, list(zip(self.plan.runs, states, strict=True)))

    def summary(self, states: Sequence[RunState]) -> Table:
        """Return a table with one row per task and line: the number of runs in each state, and the best score."""
        groups: dict[tuple[str, str], list[RunState]] = {}
        for entry, state in zip(self.plan.runs, states, strict=True):
            groups.setdefault((entry.task, entry.line), []).append(state)
        shown = [status for status in STATUSES if any(state.status == status for state in states)]
        table = Table(box=box.SIMPLE_HEAD)
        for name in ("task", "cell or version"):
            table.add_column(name)
        for name in ("runs", *shown, "test score of the best"):
            table.add_column(name, justify="right")
        for (task, label), group in groups.items():
            counts = Counter(state.status for state in group)
            numbers = [Text(str(counts[status] or "-"), COLOURS[status]) for status in shown]
            table.add_row(task, label, str(len(group)), *numbers, _best(group))
        return table

    def means(self, states: Sequence[RunState]) -> list[str]:
        """Return a line for each task and cell or version: the mean test score of its runs, the best first."""
        groups: dict[tuple[str, str], list[RunState]] = {}
        for entry, state in zip(self.plan.runs, states, strict=True):
            if state.score is not None:
                groups.setdefault((entry.task, entry.line), []).append(state)
        rows = []
        for (task, label), group in groups.items():
            result = group[0].result
            assert result is not None  # it has a score
            mean = sum(state.score or 0.0 for state in group) / len(group)
            order = (task, -mean if result.higher_is_better else mean)
            rows.append((order, [task, label, named_score(result.metric, mean), counted(len(group), "run")]))
        return columns([row for _, row in sorted(rows)]) if rows else []

    def left(self, states: Sequence[RunState]) -> list[str]:
        """Describe how many runs are left and how long they may take."""
        have = sum(state.status in ENDED for state in states)
        sentences = [f"{have} of {counted(len(states), 'run')} done, {len(states) - have} left."]
        if have < len(states):
            sentences += time_text(self.plan, states, self.root, self.speed)
        return sentences

    def watch(self, every: float, stop: Callable[[], bool]) -> None:
        """Show the progress until all runs end or `stop` returns True: live in a terminal, else a line per change."""
        before: list[RunState] = []
        with Live(console=out, auto_refresh=False) if out.is_terminal else nullcontext() as live:
            while True:
                states = self.look()
                if live is not None:
                    live.update(self._view(states), refresh=True)
                else:
                    self._changes(before, states)
                before = states
                if all(state.status in ENDED for state in states) or stopped_within(every, stop):
                    return

    def _view(self, states: Sequence[RunState]) -> RenderableType:
        """Return the live view, with as many rows as fit: training runs, failed runs, then results."""
        begun = [pair for pair in zip(self.plan.runs, states, strict=True) if pair[1].status != RunStatus.MISSING]
        begun.sort(key=lambda pair: STATUSES.index(pair[1].status))
        room = max(out.height - AROUND, 3)
        counts = Counter(state.status for state in states)
        text = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
        head = Text(self.heading, style="bold")
        more = [Text(f"and {len(begun) - room} more", style="dim")] if len(begun) > room else []
        ended = all(state.status in ENDED for state in states)
        end = [] if ended else [Text("Ctrl-C closes this view; the runs continue.", style="dim")]
        table = [_rows(self.plan, begun[:room])] if begun else []
        return Group(head, Text(text), *table, *more, *map(Text, self.left(states)), *end)

    def _changes(self, before: Sequence[RunState], now: Sequence[RunState]) -> None:
        old = before or [RunState(RunStatus.MISSING)] * len(now)
        changed = False
        for entry, was, state in zip(self.plan.runs, old, now, strict=True):
            if state_text(was) != state_text(state):
                line(f"{entry.name}: {state_text(state)}")
                changed = True
        if changed or not before:
            for text in self.left(now):
                line(text)


def _rows(plan: Plan, pairs: Sequence[tuple[PlannedRun, RunState]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    axes = list(dict.fromkeys(name for entry in plan.runs for name in entry.point))
    for name in ("task", "cell or version"):
        table.add_column(name)
    for name in (*(axis.rpartition(".")[2] for axis in axes), "seed"):
        table.add_column(name, justify="right")
    table.add_column("state", overflow="fold")
    for entry, state in pairs:
        point = [plans.number_text(entry.point[axis]) for axis in axes]
        colour = COLOURS[state.status]
        table.add_row(entry.task, entry.line, *point, str(entry.seed), Text(state_text(state), colour))
    return table


def _best(group: Iterable[RunState]) -> str:
    """Return the test score of the run with the best validation; choosing by test score would be biased."""
    tested = [
        (state.result.best, state.score, state.result) for state in group if state.result and state.score is not None
    ]
    if not tested:
        return ""
    result = tested[0][2]
    _, best, _ = (max if result.higher_is_better else min)(tested, key=lambda entry: entry[0] or 0.0)
    return escape(shown(named_score(result.metric, best), keep=""))


def state_text(state: RunState) -> str:
    """Describe the state of a run in words."""
    if state.result is not None:
        tested = "" if state.score is None else f": {named_score(state.result.metric, state.score)}"
        return shown(f"{state.status}{tested} after {counted(state.epoch, 'epoch')}", keep="")
    if state.status in (RunStatus.MISSING, RunStatus.DAMAGED):
        return state.status
    best = "" if state.best is None else f", best {score(state.best)}"
    return f"{state.status} at epoch {state.epoch}{best}"


def time_text(plan: Plan, states: Sequence[RunState], root: Path, speed: Speed) -> list[str]:
    """Describe the time left, and what the estimate is based on."""
    estimates = time_left(plan.runs, states, root, speed)
    known = [estimate for estimate in estimates if estimate.seconds is not None]
    by_speed = [estimate for estimate in known if estimate.measured]
    by_runs = [estimate for estimate in known if not estimate.measured]
    sentences = []
    if by_runs:
        sentences.append(f"Time left, estimated from runs that have ended: {_total(by_runs)} one after another.")
    if by_speed:
        low, high = (round(choose(estimate.epochs for estimate in by_speed)) for choose in (min, max))
        epochs = counted(low, "epoch") if low == high else f"{low} to {high} epochs"
        sentences.append(
            f"Time left, a rough estimate: {_total(by_speed)} one after another on one thread of this machine. "
            f"No run like them has ended yet, so this assumes {epochs}."
        )
    if unknown := len(estimates) - len(known):
        sentences.append(f"Time left: unknown for {counted(unknown, 'run')} because the size of their data is unknown.")
    return sentences


def _total(estimates: Sequence[Estimate]) -> str:
    """Describe the time that runs have left, and how much of it the tasks take that need most."""
    tasks: dict[str, float] = {}
    for estimate in estimates:
        tasks[estimate.run.task] = tasks.get(estimate.run.task, 0.0) + (estimate.seconds or 0.0)
    longest = sorted(tasks, key=tasks.__getitem__, reverse=True)[:MAX_TASKS]
    most = ", ".join(f"{task} {duration(tasks[task])}" for task in longest)
    shares = f" ({most}{', ...' if len(tasks) > MAX_TASKS else ''})" if len(tasks) > 1 else ""
    return f"about {duration(sum(tasks.values()))} for {counted(len(estimates), 'run')}{shares}"


def show_errors(messages: Mapping[str, str]) -> None:
    """Print the errors of runs, by run name, each message once."""
    names: dict[str, list[str]] = {}
    for name, message in messages.items():
        names.setdefault(message, []).append(name)
    for message, runs in names.items():
        more = f"; and {len(runs) - 3} more" if len(runs) > 3 else ""
        text = shown(f"{'; '.join(runs[:3])}{more}: {message}", keep="")
        err.print(text, style="red", markup=False, soft_wrap=True)
