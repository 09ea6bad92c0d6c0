"""`rru tune`: search for the settings with the best validation score."""

from functools import partial
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from rru.cli.console import command, err, line, next_command, out, plain_errors, prose, warn, warn_stopping
from rru.cli.data import Folder
from rru.cli.display import TrainingBars
from rru.cli.own import Given, with_own_data
from rru.cli.places import ROOT, Root
from rru.cli.results import named_score, shown_score
from rru.cli.train import Cell, Device, Seed, Task, Threads, set_threads
from rru.experiments.search.study import Study, TrialChanged, TrialStatus, Waiting
from rru.files import write_file
from rru.report.formatting import counted
from rru.report.importance import figure
from rru.settings import presets
from rru.training import Event, Notice, stop_on_signals

SHOWN = 5


@partial(with_own_data, hidden=True)
def tune(
    task: Task,
    given: Given,
    cell: Cell = "rru",
    preset: Annotated[
        str | None,
        typer.Option(
            help="The settings that are not searched, and the ranges of the others: paper, cpu, smoke, best or nade "
            "(music); for your own data auto or smoke. Default: paper or auto."
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of trials in all, earlier ones included.")] = 100,
    seed: Seed = 0,
    prune: Annotated[
        bool, typer.Option("--prune", help="End trials early that fall behind. The paper did not do this.")
    ] = False,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Fix a setting instead of searching it. Repeatable."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show the trials so far and run nothing.")] = False,
    root: Root = ROOT,
    device: Device = "cpu",
    threads: Threads = None,
    data_dir: Folder = None,
) -> None:
    """Search for the settings of a cell that work best on a task.

        rru tune bach --preset smoke --trials 5
        rru tune novel.txt --trials 30
        rru tune novel.txt --show

    Run the same command again to resume. Started twice at the same time, both processes share the trials. The
    options of your own data are those of `rru train`.
    """
    with plain_errors():
        set_threads(threads)
        chosen = given.task(task)
        changes = [*given.changes, *(changes or [])]
        preset = presets.names(chosen)[0] if preset is None else preset
        study = Study(chosen, cell, preset, changes=changes, seed=seed, prune=prune, root=root)
        if not show:
            line(f"{study.config.task.name}, {cell}, {counted(trials, 'trial')}, seed {seed}: {study.folder}")
            for name, each in study.ranges.items():
                line(f"  {name} from {each.low:,g} to {each.high:,g}{', logarithmic' if each.log else ''}")
            with stop_on_signals(warn_stopping) as stop, _StudyBars(study, trials) as bars:
                done = study.run(trials, data_dir=data_dir, device=device, watch=bars, stop=stop)
            if not done:
                line("stopped; run the same command again to resume")
                raise typer.Exit(130)
        words = ["train", task, *given.arguments, "--cell", cell, "--preset", preset, "--seed", str(seed)]
        _show(study, trials, [*words, *(part for change in changes for part in ("--set", change))])


class _StudyBars(TrainingBars):
    """Show a bar for trials and one for the epochs of the current trial; without a terminal, a line per trial."""

    def __init__(self, study: Study, trials: int) -> None:
        super().__init__()
        self.study = study
        self.all = self.add("trials", trials, before=sum(trial.state != TrialStatus.OPEN for trial in study.trials()))
        self.epochs = self.add("epochs")
        self.waits = False

    def __call__(self, event: TrialChanged | Waiting | Event) -> None:
        match event:
            case TrialChanged():
                self.waits = False
                self._count()
                name = f"trial {event.trial.number}"
                if event.trial.state == TrialStatus.OPEN:
                    self.reset(self.epochs, start=False, total=None, description=name, says="")
                elif not err.is_terminal:
                    value, state = event.trial.value, event.trial.state
                    outcome = state if value is None else named_score(self.study.metric.key, value)
                    settings = ", ".join(f"{name}={value:g}" for name, value in event.trial.settings.items())
                    line(f"{name}: {outcome}; {settings}")
            case Waiting():
                self._count()
                if not self.waits:
                    self.waits = True
                    numbers = ", ".join(str(trial.number) for trial in event.trials)
                    warn(f"waiting for other processes to end trials {numbers}")
            case Notice():
                warn(event.message)
            case _:
                key = self.study.metric.key
                self.follow(self.epochs, event, lambda done: named_score(key, done.validation[key]))

    def _count(self) -> None:
        trials, best = self.study.trials(), self.study.best()
        says = f"best {named_score(self.study.metric.key, best[0].value)}, trial {best[0].number}" if best else ""
        self.update(self.all, completed=sum(trial.state != TrialStatus.OPEN for trial in trials), says=says)


def _show(study: Study, trials: int, words: list[str]) -> None:
    """Print the best trials; after the last trial also the winner, its test scores, and which settings mattered."""
    done, best = study.trials()[:trials], [trial for trial in study.best() if trial.number < trials]
    states = [trial.state for trial in done]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    line(f"{len(done)} of {trials} trials: {counts}" if done else f"no trials yet in {study.folder}")
    if not best:
        return
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("trial", f"validation {study.metric.key}", *(name.partition(".")[2] for name in study.ranges)):
        table.add_column(name, justify="right")
    for trial in best[:SHOWN]:
        values = [f"{trial.settings[name]:,g}" for name in study.ranges]
        table.add_row(str(trial.number), shown_score(study.metric.key, trial.value), *values)
    out.print(table)
    _show_importances(study)
    if len(done) < trials or TrialStatus.OPEN in states:
        return
    winner = best[0]
    test = study.result_of(winner).test
    score = named_score(study.metric.key, winner.value)
    line(f"best: trial {winner.number}, validation {score}; {study.run_of(winner)}")
    line("test  " + "  ".join(named_score(name, value) for name, value in test.items()))
    chosen = [part for name, value in winner.settings.items() for part in ("--set", f"{name}={value}")]
    line(f"to train it again: {command(*words, *chosen)}")
    next_command("use", str(study.run_of(winner)))


def _show_importances(study: Study) -> None:
    importances = study.importances()
    if importances:
        path, config = study.folder / "importance.svg", study.config
        title = f"{config.task.name}, {config.model.cell}: what distinguishes the best quarter of trials"
        write_file(path, figure(importances, title).encode())
        prose("settings that mattered: " + ", ".join(f"{name} {value:.2f}" for name, value in importances.items()))
        line(f"as a figure: {path}")
