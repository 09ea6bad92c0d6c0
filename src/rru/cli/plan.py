"""`rru plan`, `rru run`: show the progress of the paper's tables and figures, and run what is missing."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import typer

from rru.cli.console import line, out, plain_errors, prose, warn_stopping
from rru.cli.data import Folder
from rru.cli.own import PANEL, Given, show_data, with_own_data
from rru.cli.plan_bars import PlanBars
from rru.cli.plan_view import PlanView, fits, show_errors
from rru.cli.train import ROOT, Device, Root
from rru.data import from_path
from rru.experiments import plans
from rru.experiments.plans import Plan
from rru.experiments.running import Outcome, to_do, workers
from rru.experiments.running.estimate import MeasuredSpeed
from rru.report.formatting import counted
from rru.settings import presets
from rru.training import RunStatus, stop_on_signals

PLACES = ("here", "ray")
SHOWN = (RunStatus.FINISHED, RunStatus.DIVERGED, RunStatus.STOPPED, RunStatus.FAILED)

Preset = Annotated[
    str | None,
    typer.Option(
        help="The settings of all runs: paper (exact; the default), cpu (about ten minutes a run) or smoke (seconds); "
        "with --data auto (the default) or smoke."
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="PATH", help="For the plan `compare`: your own file or folder.", rich_help_panel=PANEL
    ),
]
Cells = Annotated[str | None, typer.Option(metavar="CELL,...", help="Only these cells, such as rru,gru.")]
Tasks = Annotated[str | None, typer.Option(metavar="TASK,...", help="Only these tasks, such as jsb,ptb-words.")]
Seeds = Annotated[
    str, typer.Option(metavar="SEEDS", help="Random seeds; every run is made once with each: 0,1,2 or 0-4.")
]


@with_own_data
def plan(
    given: Given,
    name: Annotated[
        str | None, typer.Argument(metavar="PLAN", help="The plan to show. Without it, all plans are listed.")
    ] = None,
    preset: Preset = None,
    cells: Cells = None,
    tasks: Tasks = None,
    seeds: Seeds = "0",
    own: Data = None,
    root: Root = ROOT,
    every_run: Annotated[bool, typer.Option("--all", help="Show every run, even if there are more than 60.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep showing the progress until all runs have ended or Ctrl-C.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, help="With --watch: seconds between updates.")] = 5,
) -> None:
    """List the plans (tables and figures of the paper), or show the runs of one: results, and what is left to do.

    The time left is an estimate: from runs that have ended, or else from the speed of this machine, which is measured.
    """
    with plain_errors():
        if name is None:
            _list_plans(preset or plans.PRESETS[0])
            return
        view = PlanView(_load(name, preset, cells, tasks, seeds, own, given), root, MeasuredSpeed())
        if watch:
            with stop_on_signals() as stop:
                view.watch(every, stop)
            return
        states = view.look()
        line(f"{view.plan.title}; preset {view.plan.preset}, runs in {root}", style="bold")
        out.print(view.table(states) if every_run or fits(states) else view.summary(states))
        show_errors(
            {one.name: state.message for one, state in zip(view.plan.runs, states, strict=True) if state.message}
        )
        for text in view.left(states):
            prose(text)


@with_own_data
def run(
    given: Given,
    name: Annotated[str, typer.Argument(metavar="PLAN", help="A plan, as `rru plan` lists them.")],
    preset: Preset = None,
    cells: Cells = None,
    tasks: Tasks = None,
    seeds: Seeds = "0",
    own: Data = None,
    root: Root = ROOT,
    count: Annotated[
        int | None, typer.Option("--workers", min=1, help="Number of processes, each training one run. Default: 1.")
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
    """Train the runs of a plan that have no result yet. Run the same command again to resume."""
    with plain_errors():
        presets.choice("on", on, PLACES)
        chosen = _load(name, preset, cells, tasks, seeds, own, given)
        left = to_do(chosen.runs, root)
        line(f"{chosen.title}: {len(left)} of {counted(len(chosen.runs), 'run')} to do, in {root}")
        if not left:
            return
        go = _on_ray(address, threads, count, device) if on == "ray" else _here(count or 1, threads, address, device)
        with stop_on_signals(warn_stopping) as stop, PlanBars(len(left)) as bars:
            outcomes = go(left, root, data_dir=data_dir, watch=bars, stop=stop)
        _report(outcomes, len(left), stopped=stop())


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


def _load(
    name: str, preset: str | None, cells: str | None, tasks: str | None, seeds: str, own: str | None, given: Given
) -> Plan:
    parts = [None if text is None else [part.strip() for part in text.split(",")] for text in (cells, tasks)]
    if own is None and name == plans.COMPARE:
        raise ValueError("`compare` needs your own data: --data FILE")
    if own is not None:
        presets.choice("plan with --data", name, (plans.COMPARE,))
        if tasks is not None:
            raise ValueError(f"--tasks is for the plans of the paper, not with --data; got {tasks!r}")
        data = from_path(own, **given.options)
        show_data(data)
        return plans.compare(data, preset, cells=parts[0], seeds=plans.seeds_of(seeds), changes=given.changes)
    given.refuse(f"the plan {name}")
    if given.changes:
        raise ValueError(f"--transpose is only for your own data, not for the plan {name}")
    return plans.load(name, preset or plans.PRESETS[0], cells=parts[0], tasks=parts[1], seeds=plans.seeds_of(seeds))


def _list_plans(preset: str) -> None:
    presets.choice("preset", preset, plans.PRESETS)
    for name in plans.names():
        one = plans.load(name, preset)
        line(f"{name:<26}{len(one.runs):>4} runs  {one.title}")
    prose(
        f"(with one seed, at preset {preset}; `rru plan PLAN` shows the runs of a plan, `rru run PLAN` trains them; "
        "`rru run compare --data FILE` compares the cells on your own data)"
    )


def _report(outcomes: Sequence[Outcome], left: int, *, stopped: bool) -> None:
    """Print the outcome of all runs, failed ones last, and set the exit code."""
    counts = Counter(outcome.status for outcome in outcomes)
    parts = [f"{counts[status]} {status}" for status in SHOWN if counts[status]]
    waiting = left - len(outcomes)
    line(", ".join([*parts, *([f"{waiting} not started"] if waiting else [])]) or "nothing was run")
    if busy := counts[RunStatus.RUNNING]:
        line(f"{counted(busy, 'run')} skipped: another process is training them", style="yellow")
    failed = {outcome.run.name: outcome.message for outcome in outcomes if outcome.status == RunStatus.FAILED}
    show_errors(failed)
    if stopped and (waiting or counts[RunStatus.STOPPED]):
        line("stopped; run the same command again to resume")
        raise typer.Exit(130)
    if failed:
        raise typer.Exit(1)
