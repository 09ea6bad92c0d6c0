"""A task of milliseconds: a small RRU with dropout learns running sums, its state carried from batch to batch."""

import json

import torch
from torch import nn

import rru
from rru.settings import presets
from rru.tasks import Batch, Metric, Task, TaskSettings
from rru.training import RAdam
from rru.training.folder import Run
from rru.training.loop import train


def config(epochs=4, patience=3, seed=1, log_steps=4, checkpoint_steps=3, **schedule):
    """A config of the chorales of which only the schedule counts: task, model and optimiser are the toy's."""
    schedule |= {"epochs": epochs, "patience": patience, "seed": seed}
    schedule |= {"log_steps": log_steps, "checkpoint_steps": checkpoint_steps}
    return presets.load("bach", "rru", "smoke").changed({f"schedule.{key}": value for key, value in schedule.items()})


CONFIG = config()


class _Batches:
    def __init__(self, generator):
        self.order = torch.randperm(7, generator=generator)
        self.fresh = torch.rand(7, generator=generator) < 0.3

    def __len__(self):
        return len(self.order)

    def __getitem__(self, index):
        inputs = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(int(self.order[index])))
        return Batch(inputs, inputs.cumsum(0), None, index == 0 or bool(self.fresh[index]), 20)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = rru.RRU(3, 8, output_size=6, num_layers=2, dropout=0.3)
        self.head = nn.Linear(6, 3)

    def forward(self, inputs, state):
        output, state = self.layer(inputs, state)
        return self.head(output), state


class Toy(Task):
    metric = Metric("error", "error")

    def __init__(self):
        super().__init__(None, TaskSettings(name="toy", context=5, batch_size=4))
        self.evaluated = []

    def model(self, cell="rru", cell_options=None, budget=0):
        torch.manual_seed(3)
        return Model()

    def steps_per_epoch(self):
        return 7

    def epoch(self, generator):
        return _Batches(generator)

    def _loss(self, model, batch, state):
        predicted, state = model(batch.inputs, state)
        return (predicted - batch.targets).square().mean(), state

    def _scores(self, model, split):
        self.evaluated.append(split)
        inputs = torch.randn(6, 4, 3, generator=torch.Generator().manual_seed({"valid": 100, "test": 101}[split]))
        error = (model(inputs, None)[0] - inputs.cumsum(0)).square().mean().item()
        return {"error": error, "loss": error}


def train_in(
    folder, task=None, *, config=CONFIG, build=lambda model: RAdam(model.parameters(), 0.01, clip=1.5), **options
):
    """Begin or resume a run, as a command would."""
    task = task or Toy()
    run = Run(folder) if (folder / "config.toml").exists() else Run.create(folder, config)
    model = task.model()
    return train(task, model, build(model), run, **options)


def outcome(folder):
    """Everything a run leaves that must not depend on how often it was interrupted: all but times."""
    result = json.loads((folder / "result.json").read_bytes())
    assert result.pop("seconds")["total"] > 0
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_bytes().splitlines()]
    for line in lines:
        del line["seconds"]
    weights = (folder / "best" / f"epoch-{result['best_epoch']:04}" / "model.safetensors").read_bytes()
    return result, lines, weights
