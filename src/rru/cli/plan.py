"""`rru plan`, `rru run`: the paper's tables and figures, what there is of each, and running the rest."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from rru.cli.console import err, line, out, plain_errors
from rru.cli.crew import Crew
from rru.cli.data import Folder
from rru.cli.train import ROOT, Device, Root
from rru.experiments import plans, presets, workers
from rru.experiments.estimate import time_left
from rru.experiments.plans import Plan
from rru.experiments.running import ENDED, Outcome, Standing, standing, to_do
from rru.training import stop_on_signals

ROWS = 60  # a plan with more runs is summed up
PLACES = ("here", "ray")
STATES = ("finished", "diverged", "running", "unfinished", "failed", "damaged", "missing")
COLOURS = {"finished": "green", "diverged": "magenta", "running": "cyan", "unfinished": "yellow", "missing": "dim"}

Preset = Annotated[str, typer.Option(help="paper (exact), cpu (about ten minutes a run) or smoke (seconds).")]
Cells = Annotated[str | None, typer.Option(metavar="CELL,...", help="Only these cells, such as rru,gru.")]
Tasks = Annotated[str | None, typer.Option(metavar="TASK,...", help="Only these tasks, such as jsb,ptb-words.")]
Seeds = Annotated[str, typer.Option(metavar="SEEDS", help="Each run once with each of these: 0,1,2 or 0-4.")]


def plan(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A plan. Default: list the plans.")] = None,
    preset: Preset = "paper",
    cells: Cells = None,
    tasks: Tasks = None,
    seeds: Seeds = "0",
    root: Root = ROOT,
    every: Annotated[bool, typer.Option("--all", help="Show every run, however many there are.")] = False,
) -> None:
    """Show the plans, or one plan's runs: what has a result, and what is left."""
    with plain_errors():
        if name is None:
            _list_plans(preset)
            return
        chosen = _load(name, preset, cells, tasks, seeds)
        standings = [standing(entry, root) for entry in chosen.entries]
        line(f"{chosen.title}; preset {preset}, runs in {root}", style="bold")
        show = _every_run if every or len(standings) <= ROWS else _summary
        out.print(show(chosen, standings))
        _errors({entry.name: how.message for entry, how in zip(chosen.entries, standings, strict=True) if how.message})
        _what_is_left(chosen, standings, root)


def run(
    name: Annotated[str, typer.Argument(metavar="PLAN", help="A plan, as `rru plan` lists them.")],
    preset: Preset = "paper",
    cells: Cells = None,
    tasks: Tasks = None,
    seeds: Seeds = "0",
    root: Root = ROOT,
    count: Annotated[
        int | None, typer.Option("--workers", min=1, help="Runs at the same time, each by a process. Default: 1.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of each run. Default: torch's, divided among the workers; 1 on Ray."),
    ] = None,
    on: Annotated[str, typer.Option(help="Where: here, or ray (a Ray cluster; needs the extra `ray`).")] = "here",
    address: Annotated[str | None, typer.Option(help="The Ray cluster's, such as 10.0.0.1:6379.")] = None,
    device: Device = "cpu",
    data_dir: Folder = None,
) -> None:
    """Run what a plan lacks. The same command again goes on where it was stopped or killed."""
    with plain_errors():
        presets.choice("on", on, PLACES)
        chosen = _load(name, preset, cells, tasks, seeds)
        left = to_do(chosen.entries, root)
        line(f"{chosen.title}: {len(left)} of {len(chosen.entries)} runs to do, in {root}")
        if not left:
            return
        go = _on_ray(address, threads, count, device) if on == "ray" else _here(count or 1, threads, address, device)
        with stop_on_signals() as stop, Crew(len(left)) as crew:
            outcomes = go(left, root, data_dir=data_dir, watch=crew, stop=crew.noticing(stop))
        _report(outcomes, len(left), stopped=stop())


def _here(count: int, threads: int | None, address: str | None, device: str) -> Callable[..., list[Outcome]]:
    if address is not None:
        raise ValueError(f"address is for --on ray, got {address!r}")
    threads = threads or workers.threads_each(count)
    line(f"{_counted(count, 'worker')}, {_counted(threads, 'thread')} each")
    return partial(workers.run, workers=count, threads=threads, device=device)


def _on_ray(address: str | None, threads: int | None, count: int | None, device: str) -> Callable[..., list[Outcome]]:
    from rru.experiments import cluster  # Ray takes seconds to import, and need not be there

    if count is not None:
        raise ValueError(f"workers must be left out on Ray, where the cluster's CPUs and --threads decide; got {count}")
    if device != "cpu":
        raise ValueError(f"device must be cpu on a Ray cluster, got {device!r}")
    threads = threads or 1
    line(f"as many runs at the same time as the cluster has CPUs for, {_counted(threads, 'thread')} each")
    return partial(cluster.run, address=address, threads=threads)


def _load(name: str, preset: str, cells: str | None, tasks: str | None, seeds: str) -> Plan:
    parts = [None if text is None else [part.strip() for part in text.split(",")] for text in (cells, tasks)]
    return plans.load(name, preset, cells=parts[0], tasks=parts[1], seeds=plans.seeds_of(seeds))


def _list_plans(preset: str) -> None:
    presets.choice("preset", preset, plans.SIZES)
    for name in plans.names():
        one = plans.load(name, preset)
        line(f"{name:<26}{len(one.entries):>4} runs  {one.title}")
    line(f"(with one seed, at preset {preset}; `rru plan NAME` shows a plan's runs, `rru run NAME` runs them)")


def _every_run(chosen: Plan, standings: Sequence[Standing]) -> Table:
    """A row for each run."""
    table = Table(box=box.SIMPLE_HEAD)
    axes = list(dict.fromkeys(name for entry in chosen.entries for name in entry.point))
    for name in ("task", "line"):
        table.add_column(name)
    for name in (*(axis.rpartition(".")[2] for axis in axes), "seed"):
        table.add_column(name, justify="right")
    table.add_column("state", overflow="fold")
    for entry, how in zip(chosen.entries, standings, strict=True):
        point = [plans.number_text(entry.point[axis]) for axis in axes]
        table.add_row(entry.task, entry.line, *point, str(entry.seed), Text(_state(how), COLOURS.get(how.state, "red")))
    return table


def _summary(chosen: Plan, standings: Sequence[Standing]) -> Table:
    """A row for each task and line: how many runs are how far, and the best."""
    groups: dict[tuple[str, str], list[Standing]] = {}
    for entry, how in zip(chosen.entries, standings, strict=True):
        groups.setdefault((entry.task, entry.line), []).append(how)
    shown = [state for state in STATES if any(how.state == state for how in standings)]
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("task", "line"):
        table.add_column(name)
    for name in ("runs", *shown, "test of the best"):
        table.add_column(name, justify="right")
    for (task, label), group in groups.items():
        counts = Counter(how.state for how in group)
        numbers = [Text(str(counts[state] or "-"), COLOURS.get(state, "red")) for state in shown]
        table.add_row(task, label, str(len(group)), *numbers, _best(group))
    return table


def _best(group: Iterable[Standing]) -> str:
    """The test's score of the run that did best on validation: to choose by the test would flatter it."""
    tested = [(how.result.best, how.score, how.result) for how in group if how.result and how.score is not None]
    if not tested:
        return ""
    result = tested[0][2]
    _, score, _ = (max if result.higher_is_better else min)(tested, key=lambda one: one[0] or 0.0)
    return f"{result.metric} {score:.4f}"


def _state(how: Standing) -> str:
    """How far a run is, in words."""
    if how.result is not None:
        score = "" if how.score is None else f": {how.result.metric} {how.score:.4f}"
        return f"{how.state}{score} after {_counted(how.epoch, 'epoch')}"
    return how.state if how.state in ("missing", "damaged") else f"{how.state} at epoch {how.epoch}"


def _what_is_left(chosen: Plan, standings: Sequence[Standing], root: Path) -> None:
    have = sum(how.state in ENDED for how in standings)
    line(f"Results: {have} of {len(standings)}; {len(standings) - have} left.")
    if have == len(standings):
        return
    left = time_left(chosen.entries, standings, root)
    if not left.judged:
        line("Time left: unknown, no run of their kind has ended here.")
        return
    unknown = f"; unknown for {left.unknown} more, no run of their kind has ended here" if left.unknown else ""
    line(
        f"Time left, an estimate by the runs that ended: {duration(left.seconds)} "
        f"for {_counted(left.judged, 'run')} one after another{unknown}."
    )


def duration(seconds: float) -> str:
    """A time as people say it."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:.1f} {unit}"
    return f"about {_counted(max(round(seconds), 1), 'second')}"


def _report(outcomes: Sequence[Outcome], left: int, *, stopped: bool) -> None:
    """What came of all runs, the failed ones last; ends the command accordingly."""
    counts = Counter(outcome.status for outcome in outcomes)
    parts = [f"{counts[status]} {status}" for status in ("finished", "diverged", "stopped", "failed") if counts[status]]
    waiting = left - len(outcomes)
    line(", ".join([*parts, *([f"{waiting} not begun"] if waiting else [])]) or "nothing was run")
    if counts["busy"]:
        line(f"{_counted(counts['busy'], 'run')} left to another process that trains them", style="yellow")
    failed = {outcome.entry.name: outcome.message for outcome in outcomes if outcome.status == "failed"}
    _errors(failed)
    if stopped and (waiting or counts["stopped"]):
        line("stopped; the same command goes on")
        raise typer.Exit(130)
    if failed:
        raise typer.Exit(1)


def _errors(messages: Mapping[str, str]) -> None:
    """What is the matter with runs, by their names, each matter once."""
    names: dict[str, list[str]] = {}
    for name, message in messages.items():
        names.setdefault(message, []).append(name)
    for message, those in names.items():
        more = f"; and {len(those) - 3} more" if len(those) > 3 else ""
        err.print(f"{'; '.join(those[:3])}{more}: {message}", style="red", markup=False, soft_wrap=True)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
