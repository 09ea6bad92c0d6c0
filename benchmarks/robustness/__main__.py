"""Compare how robustly layers learn small problems, with plain Adam and default arguments, at equal parameters.

Each run trains one contender on one problem with one learning rate. `run` appends one line per run to the results file
and skips runs that it has, so it can be interrupted. Problems whose data is not in the data folder are skipped.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.robustness import contenders, page, plan, records, summary, training
from benchmarks.robustness.problem import Problem
from benchmarks.robustness.problems import PROBLEMS
from rru import data
from rru.report.formatting import counted, duration

RESULTS = Path("robustness.jsonl")
ESTIMATE_STEPS = 6


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    options = parse(arguments)
    torch.set_num_threads(1)  # for small models the fastest, and results do not depend on the machine's cores
    if options.command == "run":
        run(options)
        return
    results = summary.Results.of(records.read(options.output, PROBLEMS), PROBLEMS)
    if not results.scores:
        sys.exit(f"{options.output} has no results: write some with `python -m benchmarks.robustness run`")
    print(summary.text(results))
    if options.command == "page":
        options.html.write_text(page.render(results), encoding="utf-8")
        print(f"\nHeat maps: {options.html}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.robustness",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, does in (("run", "train"), ("table", "print the comparison"), ("page", "also write the heat maps")):
        command = commands.add_parser(name, help=does)
        command.add_argument("--output", type=Path, default=RESULTS, metavar="FILE", help=f"default: {RESULTS}")
        if name == "page":
            command.add_argument("--html", type=Path, default=Path("robustness.html"), metavar="FILE")
        if name == "run":
            _add_choices(command)
    return parser.parse_args(arguments)


def _add_choices(command: argparse.ArgumentParser) -> None:
    command.add_argument("--problems", type=_problems, default=list(PROBLEMS.values()), help="e.g. adding-100,pairs")
    command.add_argument("--contenders", type=_contenders, help=f"default: {','.join(contenders.NAMES)}")
    command.add_argument("--rates", type=_numbers(float), default=plan.RATES, help="e.g. 0.001,0.01")
    command.add_argument("--seeds", type=_numbers(int), default=plan.SEEDS, help="e.g. 0,1")
    command.add_argument("--full", action="store_true", help="all layers and clippings for each seed")
    command.add_argument("--estimate", action="store_true", help="only measure how long the runs would take")


def _problems(text: str) -> list[Problem]:
    for name in text.split(","):
        if name not in PROBLEMS:
            raise argparse.ArgumentTypeError(f"must be among {', '.join(PROBLEMS)}, got {name!r}")
    return [PROBLEMS[name] for name in text.split(",")]


def _contenders(text: str) -> tuple[str, ...]:
    try:
        for name in text.split(","):
            contenders.builder(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return tuple(text.split(","))


def _numbers(kind: type) -> object:
    def numbers(text: str) -> list[float]:
        return [kind(part) for part in text.split(",")]

    return numbers


def run(options: argparse.Namespace) -> None:
    """Train all runs that the results file does not have."""
    problems = [problem for problem in options.problems if _is_present(problem)]
    names = options.contenders or contenders.available()
    runs = list(plan.runs(problems, names, options.rates, options.seeds, options.full))
    finished = records.read(options.output, PROBLEMS)
    missing = [chosen for chosen in runs if chosen not in finished]
    print(f"{len(runs)} runs of {', '.join(names)}; {len(runs) - len(missing)} are finished", flush=True)
    if options.estimate:
        estimate(missing)
        return
    started = time.perf_counter()
    for number, chosen in enumerate(missing, 1):
        record = training.train(PROBLEMS[chosen.problem], chosen)
        records.append(options.output, record)
        elapsed = time.perf_counter() - started
        rest = duration(elapsed / number * (len(missing) - number))
        print(f"{number}/{len(missing)} {_line(record)}; {rest} to go", flush=True)


def _is_present(problem: Problem) -> bool:
    try:
        problem.source  # noqa: B018 (opens the data)
    except (data.MissingData, FileNotFoundError) as error:
        print(f"{problem.name} is skipped: {error}", file=sys.stderr)
        return False
    return True


def _line(record: dict[str, Any]) -> str:
    clipping = "clipped" if record["clip"] else "not clipped"
    return (
        f"{record['problem']}, {record['contender']} ({record['hidden_size']}), rate {record['rate']:g}, "
        f"{counted(record['layers'], 'layer')}, {clipping}, seed {record['seed']}: {record['score']:.4f} "
        f"(chance {record['chance']:.4f}) in {record['seconds']:.1f} s"
    )


def estimate(runs: Sequence[plan.Run]) -> None:
    """Measure a few steps of each problem, contender and number of layers, and print the time of all runs."""
    seconds: dict[tuple[str, str, int], float] = {}
    for chosen in runs:
        kind = chosen.problem, chosen.contender, chosen.layers
        if kind not in seconds:
            seconds[kind] = _seconds(PROBLEMS[chosen.problem], chosen)
    print(summary.times(runs, lambda chosen: seconds[chosen.problem, chosen.contender, chosen.layers]))


def _seconds(problem: Problem, chosen: plan.Run) -> float:
    """Estimate the time of a run from two short ones, which differ only in training steps."""
    training.train(problem, chosen, steps=1)
    short, long = (training.train(problem, chosen, steps=steps)["seconds"] for steps in (1, 1 + ESTIMATE_STEPS))
    return short + max(long - short, 0.0) / ESTIMATE_STEPS * problem.steps


if __name__ == "__main__":
    main()
