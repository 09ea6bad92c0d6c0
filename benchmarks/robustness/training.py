"""Train a contender on a problem, with plain Adam."""

import itertools
import math
import time
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

import rru
from benchmarks.robustness.contenders import builder
from benchmarks.robustness.plan import Run
from benchmarks.robustness.problem import Problem

POINTS = 20  # of the curve in a record
CLIP = 1.0


def build(problem: Problem, contender: str, layers: int) -> tuple[nn.Module, int]:
    """Return the largest model within the problem's budget, and its hidden size."""
    build_layer = builder(contender)
    hidden_size = rru.hidden_size_for(problem.budget, lambda n: problem.model(build_layer, n, layers))
    return problem.model(build_layer, hidden_size, layers), hidden_size


def train(problem: Problem, run: Run, steps: int | None = None) -> dict[str, Any]:
    """Train and validate, and return the record of the run.

    `score` is the validation loss, at most the chance level: a run that diverges has learned as much as one that learns
    nothing. `loss` is the validation loss itself, None if it is not finite. `curve` has means of the training loss.
    `seconds` is the time of the processor, which other processes hardly affect.
    """
    started = time.process_time()
    torch.manual_seed(run.seed)
    model, hidden_size = build(problem, run.contender, run.layers)
    losses = _descend(problem, run, model, steps or problem.steps)
    loss = problem.validate(model) if math.isfinite(losses[-1]) else math.nan
    chance = problem.chance
    return asdict(run) | {
        "steps": steps or problem.steps,
        "hidden_size": hidden_size,
        "parameters": rru.count_parameters(model),
        "loss": loss if math.isfinite(loss) else None,
        "chance": chance,
        "score": min(loss, chance) if math.isfinite(loss) else chance,
        "curve": _curve(losses),
        "seconds": time.process_time() - started,
    }


def _descend(problem: Problem, run: Run, model: nn.Module, steps: int) -> list[float]:
    """Train, and return the loss of each step; stop at one that is not finite."""
    generator = torch.Generator().manual_seed(1_000 + run.seed)  # the same batches for all contenders
    optimizer = torch.optim.Adam(model.parameters(), lr=run.rate)
    losses = []
    for _ in range(steps):
        inputs, targets = problem.source.batch(problem.batch_size, generator)
        loss = problem.loss.of(model(inputs), targets)
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        loss.backward()
        if run.clip:
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return losses


def _curve(losses: list[float]) -> list[float | None]:
    """Return means over equal parts of training; None where they are not finite."""
    points = min(POINTS, len(losses))
    edges = [len(losses) * point // points for point in range(points + 1)]
    means = [sum(losses[low:high]) / (high - low) for low, high in itertools.pairwise(edges)]
    return [mean if math.isfinite(mean) else None for mean in means]
