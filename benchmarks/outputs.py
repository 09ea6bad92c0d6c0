"""Compare a training step of a music model with joint outputs to one with independent keys.

`python -m benchmarks.outputs` trains on JSB Chorales at the paper's settings (6.9 million parameters, 16 sequences), or
on the embedded chorales if JSB Chorales is not there. Every round times all outputs, each on the same batches.
"""

import argparse
from functools import partial

import torch
from torch import nn

from benchmarks import timing
from benchmarks.report import table
from rru import data, tasks
from rru.settings import presets
from rru.tasks import Batch, Task, joint
from rru.training import RAdam

BATCHES = 4


def main() -> None:
    """Time all outputs and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="paper", help="the model's settings; default: paper")
    parser.add_argument("--units", type=int, default=joint.UNITS, help="hidden units of the output nade")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: torch's choice")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    name = "jsb" if data.present(data.data_set("jsb"), data.data_dir(None)) else "bach"
    config = presets.load(name, "rru", options.preset)
    steps, outputs = [], [output for output in joint.OUTPUTS if output != joint.TIED]  # that has 88 times the rows
    for output in outputs:
        units = {"output_units": options.units} if output == "nade" else {}
        task = tasks.load(name, context=config.task.context, batch_size=config.task.batch_size, output=output, **units)
        model = task.model("rru", config.model.arguments, config.model.budget)
        batches = task.epoch(torch.Generator().manual_seed(0))
        some = [batches[number] for number in range(BATCHES)]
        steps.append(timing.Task(partial(train, task, model, RAdam(model.parameters(), config.optimiser.lr), some)))
    seconds = timing.interleave(steps, options.rounds)
    rows = [
        [output, f"{1000 * timing.median(each) / BATCHES:.0f}", f"{timing.median_ratio(each, seconds[0]):.2f}"]
        for output, each in zip(outputs, seconds, strict=True)
    ]
    print(f"{name}, {config.model.budget:,} parameters, {options.threads} threads, nade with {options.units} units")
    print(table(["output", "ms per training step", "relative to independent"], rows))


def train(task: Task, model: nn.Module, optimiser: torch.optim.Optimizer, batches: list[Batch]) -> None:
    """Take a training step on each batch."""
    for batch in batches:
        optimiser.zero_grad()
        task.loss(model, batch)[0].backward()
        optimiser.step()


if __name__ == "__main__":
    main()
