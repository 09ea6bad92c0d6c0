"""`rru run`: train the runs of the paper's tables and figures that are missing, or show which are."""

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rru.cli.console import line, next_command, out, plain_errors, prose, warn_stopping
from rru.cli.data import Folder
from rru.cli.options import spread
from rru.cli.own import PANEL, Given, shown_data, with_own_data
from rru.cli.places import ROOT, Root
from rru.cli.plan_bars import PlanBars
from rru.cli.plan_view import MAX_ROWS, PlanView, show_errors
from rru.cli.train import Device, Precision
from rru.experiments import plans
from rru.experiments.plans import Plan
from rru.experiments.running import Outcome, to_do, workers
from rru.experiments.running.estimate import MeasuredSpeed
from rru.report.formatting import counted
from rru.settings import presets
from rru.training import RunStatus, stop_on_signals, with_precision

PLACES = ("here", "ray")
SHOWN = (RunStatus.FINISHED, RunStatus.DIVERGED, RunStatus.STOPPED, RunStatus.FAILED)

RESULTS = Path("docs/results/runs")
"""The results that a checkout of the project has."""


@dataclass(frozen=True)
class Choice:
    """The options that choose the runs of a plan and the folders that they are in."""

    preset: Annotated[
        str | None,
        typer.Option(
            help="The settings of all runs: paper (exact; the default), cpu (about ten minutes a run) or smoke "
            "(seconds); with --data auto (the default) or smoke."
        ),
    ] = None
    cells: Annotated[str | None, typer.Option(metavar="CELL,...", help="Only these cells, such as rru,gru.")] = None
    tasks: Annotated[str | None, typer.Option(metavar="TASK,...", help="Only these tasks, such as jsb,ptb-words.")] = (
        None
    )
    seeds: Annotated[
        str, typer.Option(metavar="SEEDS", help="Random seeds; every run is made once with each: 0,1,2 or 0-4.")
    ] = "0"
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="PATH", help="For the plan `compare`: your own file or folder.", rich_help_panel=PANEL
        ),
    ] = None
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of all runs, such as epochs=5. Repeatable."),
    ] = None
    precision: Precision = None
    root: Root = ROOT
    results: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            envvar="RRU_RESULTS",
            exists=True,
            file_okay=False,
            help="A folder with runs trained elsewhere, whose results count too. Repeatable. Default: "
            f"{RESULTS}, if it exists.",
        ),
    ] = None

    @property
    def places(self) -> tuple[Path, ...]:
        """The folders with runs trained elsewhere."""
        if self.results:
            return tuple(self.results)
        return (RESULTS,) if RESULTS.is_dir() else ()

    def load(self, name: str, given: Given, device: str = "cpu") -> Plan:
        """Load the plan of a name, to be trained on a device."""
        plan = self._plan(name, given)
        runs = [replace(run, config=with_precision(run.config, self.precision, device)) for run in plan.runs]
        return replace(plan, runs=runs)

    def _plan(self, name: str, given: Given) -> Plan:
        cells, tasks = (text and [part.strip() for part in text.split(",")] for text in (self.cells, self.tasks))
        seeds = plans.seeds_of(self.seeds)
        if self.data is None and name == plans.COMPARE:
            raise ValueError("`compare` needs your own data: --data FILE")
        if self.data is not None:
            presets.choice("plan with --data", name, (plans.COMPARE,))
            if tasks is not None:
                raise ValueError(f"--tasks is for the plans of the paper, not with --data; got {self.tasks!r}")
            data = shown_data(self.data, given.options)
            changes = [*given.changes, *(self.changes or [])]
            return plans.compare(data, self.preset, cells=cells, seeds=seeds, changes=changes)
        given.refuse(f"the plan {name}")
        if given.changes:
            raise ValueError(f"--transpose is only for your own data, not for the plan {name}")
        plan = plans.load(name, self.preset or plans.PRESETS[0], cells=cells, tasks=tasks, seeds=seeds)
        return _changed(plan, self.changes or [])


def with_choice(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a `Choice` to a command, which gets it as its argument `choice`."""
    return spread(command, "choice", inspect.signature(Choice).parameters.values(), Choice)


def _changed(plan: Plan, changes: Sequence[str]) -> Plan:
    """Return a plan with settings changed in all runs; raise ValueError if one is what the plan compares."""
    runs = [replace(entry, config=presets.override(entry.config, changes)) for entry in plan.runs]
    for before, after in zip(plan.runs, runs, strict=True):
        fixed = {**before.point, "schedule.seed": before.seed, "model.cell": before.cell}
        for name, value in fixed.items():
            if after.config.changed({name: value}).id != after.id:
                raise ValueError(f"--set cannot change {name}, which the plan {plan.name} decides")
    return replace(plan, runs=runs)


@dataclass(frozen=True)
class View:
    """The options that show the runs of a plan."""

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the runs, their results and the time left, and train nothing.")
    ] = False
    every_run: Annotated[
        bool, typer.Option("--all", help="With --dry-run: show every run, even if there are more than 60.")
    ] = False
    watch: Annotated[
        bool, typer.Option("--watch", help="With --dry-run: keep showing the progress until all have ended or Ctrl-C.")
    ] = False
    every: Annotated[float, typer.Option(min=0.1, help="With --watch: seconds between updates.")] = 5

    def show(self, plan: Plan, choice: Choice) -> None:
        """Show a plan."""
        view = PlanView(plan, choice.root, MeasuredSpeed(), choice.places)
        if self.watch:
            with stop_on_signals() as stop:
                view.watch(self.every, stop)
            return
        states = view.look()
        line(view.heading, style="bold")
        out.print(view.table(states) if self.every_run or len(states) <= MAX_ROWS else view.summary(states))
        names = [planned.name for planned in plan.runs]
        show_errors({name: state.message for name, state in zip(names, states, strict=True) if state.message})
        for text in view.left(states):
            prose(text)


def with_view(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a `View` to a command, which gets it as its argument `view`."""
    return spread(command, "view", inspect.signature(View).parameters.values(), View)


@partial(with_own_data, hidden=True)
@with_choice
@with_view
def run(
    given: Given,
    choice: Choice,
    view: View,
    name: Annotated[
        str | None, typer.Argument(metavar="PLAN", help="The plan. Without it, all plans are listed.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            "--workers", min=1, metavar="NUMBER", help="Number of processes, each training one run. Default: 1."
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads of each run. Default: torch's number divided by the workers; 1 on Ray."),
    ] = None,
    on: Annotated[
        str, typer.Option(help=r"Where to run: here, or ray (a Ray cluster; needs `pip install 'rru\[ray]'`).")
    ] = "here",  # the backslash keeps rich from taking [ray] as markup
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster, such as 10.0.0.1:6379.")] = None,
    device: Device = "cpu",
    data_dir: Folder = None,
) -> None:
    """Train the runs of a plan that have no result yet: a table or figure of the paper, or a comparison on your data.

        rru run
        rru run table1 --preset cpu --tasks jsb --dry-run
        rru run compare --data novel.txt

    Run the same command again to resume. The time left that --dry-run shows is an estimate: from runs that have ended,
    or else from the speed of this machine, which is measured. With --data, the options of your own data are those of
    `rru train`.
    """
    with plain_errors():
        presets.choice("on", on, PLACES)
        if (view.watch or view.every_run) and not view.dry_run:
            raise ValueError("--watch and --all need --dry-run: they show the runs of a plan, and train nothing")
        if name is None:
            _list_plans(choice.preset or plans.PRESETS[0])
            return
        chosen, root, places = choice.load(name, given, device), choice.root, choice.places
        if view.dry_run:
            view.show(chosen, choice)
            return
        waiting = to_do(chosen.runs, root, places)
        elsewhere = f"; results in {', '.join(map(str, places))} count too" if places else ""
        line(f"{chosen.title}: {len(waiting)} of {counted(len(chosen.runs), 'run')} to do, in {root}{elsewhere}")
        if waiting:
            go = (
                _on_ray(address, threads, count, device) if on == "ray" else _here(count or 1, threads, address, device)
            )
            with stop_on_signals(warn_stopping) as stop, PlanBars(len(waiting)) as bars:
                outcomes = go(waiting, root, data_dir=data_dir, watch=bars, stop=stop)
            _report(outcomes, len(waiting), stopped=stop())
        if chosen.name == plans.COMPARE:
            _show_means(PlanView(chosen, root, MeasuredSpeed(), places))
        next_command("report", *([] if root == ROOT else [str(root)]))


def _show_means(view: PlanView) -> None:
    """Print the mean test score of each cell."""
    if means := view.means(view.look()):
        line("mean test score, the best first:")
        for text in means:
            line(f"  {text}")


def _here(count: int, threads: int | None, address: str | None, device: str) -> Callable[..., list[Outcome]]:
    if address is not None:
        raise ValueError(f"address is only for --on ray, got {address!r}")
    threads = threads or workers.threads_each(count)
    line(f"{counted(count, 'worker')}, {counted(threads, 'thread')} each")
    return partial(workers.run, workers=count, threads=threads, device=device)


def _on_ray(address: str | None, threads: int | None, count: int | None, device: str) -> Callable[..., list[Outcome]]:
    from rru.experiments.running import cluster  # Ray takes seconds to import, and is optional

    if count is not None:
        raise ValueError(f"workers must be omitted on Ray, where the cluster's CPUs and --threads decide; got {count}")
    if device != "cpu":
        raise ValueError(f"device must be cpu on a Ray cluster, got {device!r}")
    threads = threads or 1
    line(f"as many runs at a time as the cluster's CPUs allow, {counted(threads, 'thread')} each")
    return partial(cluster.run, address=address, threads=threads)


def _list_plans(preset: str) -> None:
    presets.choice("preset", preset, plans.PRESETS)
    for name in plans.names():
        plan = plans.load(name, preset)
        line(f"{name:<26}{len(plan.runs):>4} runs  {plan.title}")
    prose(
        f"(with one seed, at preset {preset}; `rru run PLAN --dry-run` shows the runs of a plan, `rru run PLAN` trains "
        "them; `rru run compare --data FILE` compares the cells on your own data)"
    )
    next_command("run", "table1", "--preset", "cpu", "--dry-run")


def _report(outcomes: Sequence[Outcome], total: int, *, stopped: bool) -> None:
    """Print the outcome of all runs, failed ones last, and set the exit code."""
    counts = Counter(outcome.status for outcome in outcomes)
    parts = [f"{counts[status]} {status}" for status in SHOWN if counts[status]]
    not_started = total - len(outcomes)
    line(", ".join([*parts, *([f"{not_started} not started"] if not_started else [])]) or "nothing was run")
    if busy := counts[RunStatus.RUNNING]:
        line(f"{counted(busy, 'run')} skipped: another process is training them", style="yellow")
    failed = {outcome.run.name: outcome.message for outcome in outcomes if outcome.status == RunStatus.FAILED}
    show_errors(failed)
    if stopped and (not_started or counts[RunStatus.STOPPED]):
        line("stopped; run the same command again to resume")
        raise typer.Exit(130)
    if failed:
        raise typer.Exit(1)
