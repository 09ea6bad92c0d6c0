"""float32 against autocast to bfloat16: the RRU and nn.LSTM, in inference and training."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from benchmarks.contenders import Inference, TrainingStep, build
from benchmarks.sections import Settings
from benchmarks.shapes import Shape
from benchmarks.timing import Task, interleave, median, median_ratio


class AutocastTrainingStep(TrainingStep):
    """A training step whose forward pass runs under autocast."""

    def run_layer(self) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().run_layer()


class AutocastInference(Inference):
    """A forward pass under autocast."""

    def __call__(self) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().__call__()


PASSES = {"inference": (Inference, AutocastInference), "training": (TrainingStep, AutocastTrainingStep)}


def measure_bfloat16(shape: Shape, settings: Settings) -> dict[str, Any]:
    """Measure both layers in float32 and under autocast, all in turn."""
    names = [name for name in (settings.best_rru, "nn.LSTM") if name in settings.names]
    result: dict[str, Any] = {"shape": asdict(shape)}
    for kind, passes in PASSES.items():
        dropout = settings.dropouts[0] if kind == "training" else None
        labels = [(name, narrow) for name in names for narrow in (False, True)]
        tasks = [Task(passes[narrow](build(name, shape, dropout), shape)) for name, narrow in labels]
        seconds = dict(zip(labels, interleave(tasks, settings.repeats), strict=True))
        result[kind] = {
            "median_seconds": {name: [median(seconds[name, narrow]) for narrow in (False, True)] for name in names},
            "bfloat16 / float32": {name: median_ratio(seconds[name, True], seconds[name, False]) for name in names},
            "bfloat16 / nn.LSTM bfloat16": {
                name: median_ratio(seconds[name, True], seconds["nn.LSTM", True])
                for name in names
                if "nn.LSTM" in names
            },
        }
    return result
