"""Compare whole training steps in bfloat16 with float32: batch, loss, backward pass and optimiser.

`python -m benchmarks.precision jsb ptb-words novel.txt` takes the same batches in turn with both; files are read as
`rru train` does. Times are processor seconds of all threads, so beside other programs use `--threads 1`.
"""

import argparse
import time
from itertools import pairwise
from pathlib import Path

import torch

from benchmarks.report import table
from benchmarks.timing import median
from rru import data
from rru.nn import count_parameters
from rru.settings import presets
from rru.settings.tables import PRECISIONS
from rru.tasks import Batch, LayerState
from rru.training.from_config import Assembled, assemble
from rru.training.precision import autocast

PHASES = ("loss", "backward", "optimiser")


def main() -> None:
    """Time the steps of each task and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="+", help="data sets, or files of your own")
    parser.add_argument("--cell", default="rru", help="default: rru")
    parser.add_argument("--preset", help="default: paper, or auto for your own files")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--steps", type=int, default=5, help="steps in each precision; default: 5")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: torch's choice")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [row for name in options.tasks for row in compare(name, options)]
    print(table(["task", "parameters", "phase", *(f"{name}, ms" for name in PRECISIONS), "bf16 / float32"], rows))


def compare(name: str, options: argparse.Namespace) -> list[list[str]]:
    """Return the rows of a task: the median time of each phase in both precisions."""
    task = data.from_path(Path(name)) if Path(name).exists() else name
    config = presets.override(presets.load(task, options.cell, options.preset), options.changes)
    parts = assemble(config)
    seconds: dict[str, list[list[float]]] = {precision: [] for precision in PRECISIONS}
    batches = parts.task.epoch(torch.Generator().manual_seed(0))
    carried: LayerState = None
    for index in range(-1, options.steps):  # the first step starts threads and allocates memory
        batch = batches[(index + 1) % len(batches)]
        for precision in PRECISIONS:
            times, carried = step(parts, batch, carried, precision)
            seconds[precision] += [times] * (index >= 0)
    rows = []
    for number, phase in enumerate((*PHASES, "all")):
        both = [median([[*each, sum(each)][number] for each in some]) for some in seconds.values()]
        times = [f"{1000 * each:.1f}" for each in both]
        rows.append([config.task.name, f"{count_parameters(parts.model):,}", phase, *times, f"{both[1] / both[0]:.2f}"])
    return rows


def step(parts: Assembled, batch: Batch, carried: LayerState, precision: str) -> tuple[list[float], LayerState]:
    """Take a training step. Return the processor seconds of its phases, and the state to carry on."""
    times = [time.process_time()]
    parts.optimiser.zero_grad(set_to_none=True)
    with autocast(precision, torch.device("cpu")):
        loss, carried = parts.task.loss(parts.model, batch, carried)
    times.append(time.process_time())
    loss.backward()
    times.append(time.process_time())
    parts.optimiser.step()
    times.append(time.process_time())
    return [end - start for start, end in pairwise(times)], carried


if __name__ == "__main__":
    main()
