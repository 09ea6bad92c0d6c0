"""Compare whole training steps in bfloat16 with float32: batch, loss, backward pass and optimiser.

`python -m benchmarks.precision jsb ptb-words novel.txt` takes the same batches in turn with both; text files are read
as `rru train` does. Times are processor seconds, so run it with `--threads 1` beside other programs.
"""

import argparse
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import torch

from benchmarks.report import table
from benchmarks.timing import median
from rru import data
from rru.settings import presets
from rru.tasks import LayerState
from rru.training.from_config import Assembled, assemble

PHASES = ("batch", "loss", "backward", "optimiser")


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
    print(table(["task", "parameters", "phase", "float32, ms", "bf16, ms", "bf16 / float32"], rows))


def compare(name: str, options: argparse.Namespace) -> list[list[str]]:
    """Return the rows of a task: the median time of each phase in both precisions."""
    task = data.from_path(Path(name)) if Path(name).exists() else name
    config = presets.override(presets.load(task, options.cell, options.preset), options.changes)
    parts = assemble(config)
    seconds: dict[bool, list[list[float]]] = {False: [], True: []}
    batches = parts.task.epoch(torch.Generator().manual_seed(0))
    carried: LayerState = None
    for index in range(options.steps + 1):
        for bfloat16 in (False, True):
            taken, carried = step(parts, batches, index % len(batches), carried, bfloat16)
            if index:  # the first step starts threads and allocates memory
                seconds[bfloat16].append(taken)
    rows = []
    size = sum(each.numel() for each in parts.model.parameters())
    for number, phase in enumerate((*PHASES, "all")):
        both = [median([sum(each) if phase == "all" else each[number] for each in some]) for some in seconds.values()]
        ratio = f"{both[1] / both[0]:.2f}" if both[0] else ""
        rows.append([config.task.name, f"{size:,}", phase, *(f"{1000 * each:.1f}" for each in both), ratio])
    return rows


def step(
    parts: Assembled, batches: object, index: int, carried: LayerState, bfloat16: bool
) -> tuple[list[float], LayerState]:
    """Take a training step. Return the processor seconds of its phases, and the state to carry on."""
    times = [time.process_time()]
    batch = batches[index]  # type: ignore[index]
    parts.optimiser.zero_grad(set_to_none=True)
    times.append(time.process_time())
    with torch.autocast("cpu", torch.bfloat16) if bfloat16 else nullcontext():
        loss, carried = parts.task.loss(parts.model, batch, carried)
    times.append(time.process_time())
    loss.backward()
    times.append(time.process_time())
    parts.optimiser.step()
    times.append(time.process_time())
    return [end - start for start, end in pairwise(times)], carried


if __name__ == "__main__":
    main()
