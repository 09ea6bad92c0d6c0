"""`rru tune`: searches for the settings that validate best."""

import shlex
from typing import Annotated

import typer
from rich import box
from rich.progress import Progress
from rich.table import Table

from rru.cli.console import err, line, out, plain_errors
from rru.cli.data import Folder
from rru.cli.display import bars
from rru.cli.train import ROOT, Device, Root, Threads, set_threads
from rru.experiments.importance import figure
from rru.experiments.tune import Began, Study, Told, Trial, Waiting
from rru.training import Evaluated, Event, Notice, Started, stop_on_signals
from rru.training.files import write_file

SHOWN = 5


def tune(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task: bach, jsb, ptb-words, ...")],
    cell: Annotated[str, typer.Option(help="rru, gru, lstm or mogrifier.")] = "rru",
    preset: Annotated[
        str, typer.Option(help="What is not searched, and how large ranges are: paper, cpu, smoke.")
    ] = "paper",
    trials: Annotated[int, typer.Option(min=1, help="How many there are to be in all.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="All randomness depends on it.")] = 0,
    prune: Annotated[
        bool, typer.Option("--prune", help="End trials early that fall behind; the paper did not.")
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Changes a setting of the preset, which is then not searched."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show what there is, and run nothing.")] = False,
    root: Root = ROOT,
    device: Device = "cpu",
    threads: Threads = None,
    data_dir: Folder = None,
) -> None:
    """Search a cell's settings on a task. The same command again goes on; started twice, both share the work."""
    with plain_errors():
        set_threads(threads)
        study = Study(task, cell, preset, changes=changes or [], seed=seed, prune=prune, root=root)
        if not show:
            line(f"{task}, {cell}, {trials} trials, seed {seed}: {study.folder}")
            for name, each in study.ranges.items():
                line(f"  {name} from {each.low:,g} to {each.high:,g}{', logarithmic' if each.log else ''}")
            with stop_on_signals() as stop, bars() as progress:
                watch = _Watcher(study, trials, progress)
                done = study.run(trials, data_dir=data_dir, device=device, watch=watch, stop=stop)
            if not done:
                line("stopped; the same command goes on")
                raise typer.Exit(130)
        command = ["rru", "train", task, "--cell", cell, "--preset", preset, "--seed", str(seed)]
        _show(study, trials, [*command, *(part for change in changes or [] for part in ("--set", change))])


class _Watcher:
    """A bar for trials and one for the epochs of the current one; a line for each trial where there is no terminal."""

    def __init__(self, study: Study, trials: int, progress: Progress) -> None:
        self.study, self.progress = study, progress
        self.all = progress.add_task("trials", total=trials, says="")
        self.one = progress.add_task("epochs", total=None, start=False, says="")
        self.waits = False

    def __call__(self, event: Began | Told | Waiting | Event) -> None:
        match event:
            case Began():
                self.waits = False
                self.progress.reset(self.one, total=None, description=f"trial {event.trial.number}", says="")
                self._count()
            case Started():
                self.progress.update(self.one, total=event.epochs, completed=event.epoch)
            case Evaluated():
                says = f"{self.study.metric} {event.validation[self.study.metric]:.4f}"
                self.progress.update(self.one, completed=event.epoch, says=says)
            case Told():
                self._count()
                if not err.is_terminal:
                    line(f"trial {event.trial.number}: {_outcome(self.study, event.trial)}; {_settings(event.trial)}")
            case Waiting():
                self._count()
                if not self.waits:
                    self.waits = True
                    numbers = ", ".join(str(trial.number) for trial in event.trials)
                    err.print(f"waits for other processes to end trials {numbers}", markup=False)
            case Notice():
                err.print(event.message, style="yellow", markup=False)

    def _count(self) -> None:
        found, best = self.study.trials(), self.study.best()
        says = f"best {self.study.metric} {best[0].value:.4f}, trial {best[0].number}" if best else ""
        self.progress.update(self.all, completed=sum(trial.state != "open" for trial in found), says=says)


def _show(study: Study, trials: int, command: list[str]) -> None:
    """The best trials; and of a search that is over the winner, its test, and what mattered."""
    found, best = study.trials()[:trials], [trial for trial in study.best() if trial.number < trials]
    states = [trial.state for trial in found]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    line(f"{len(found)} of {trials} trials: {counts}" if found else f"no trials yet in {study.folder}")
    if not best:
        return
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("trial", f"validation {study.metric}", *(name.partition(".")[2] for name in study.ranges)):
        table.add_column(name, justify="right")
    for trial in best[:SHOWN]:
        values = [f"{trial.settings[name]:,g}" for name in study.ranges]
        table.add_row(str(trial.number), f"{trial.value:.4f}", *values)
    out.print(table)
    _show_importances(study)
    if len(found) < trials or "open" in states:
        return
    winner = best[0]
    test = study.result_of(winner).test
    line(f"best: trial {winner.number}, validation {study.metric} {winner.value:.4f}; {study.run_of(winner)}")
    line("test  " + "  ".join(f"{name} {value:.4f}" for name, value in test.items()))
    chosen = [part for name, value in winner.settings.items() for part in ("--set", f"{name}={value}")]
    line(f"train it again: {shlex.join([*command, *chosen])}")


def _show_importances(study: Study) -> None:
    importances = study.importances()
    if importances:
        path, config = study.folder / "importance.svg", study.config
        title = (
            f"{config['task']['name']}, {config['model']['cell']}: what tells the best quarter of trials from others"
        )
        write_file(path, figure(importances, title).encode())
        line("what mattered: " + ", ".join(f"{name} {value:.2f}" for name, value in importances.items()) + f"; {path}")


def _outcome(study: Study, trial: Trial) -> str:
    return f"{study.metric} {trial.value:.4f}" if trial.value is not None else trial.state


def _settings(trial: Trial) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in trial.settings.items())
