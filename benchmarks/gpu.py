"""Benchmark the layers on a GPU against nn.LSTM (cuDNN) and the reference, after checking that they compute the same.

Training is forward, backward and all gradients, with recurrent dropout 0.5 in the RRU. Each contender also runs as a
CUDA graph, which takes Python and the launches out of the time. All contenders take turns; results are medians. Please
send in the file that --json writes: this has not been run on a GPU yet.
"""

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import rru
from benchmarks.contenders import RRU_REFERENCE, Contender, Inference, TrainingStep, build
from benchmarks.shapes import SHAPES, Shape
from benchmarks.timing import Task, interleave

DROPOUT = 0.5
TOLERANCE = 2e-3  # of the largest entry, with TF32 off


def main(arguments: Sequence[str] | None = None) -> None:
    """Check, measure, print a table for each kind of pass and write the JSON file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=11, help="number of rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all results to FILE")
    parser.add_argument("--quick", action="store_true", help="use tiny shapes, to check that everything runs")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("benchmarks.gpu needs a GPU that torch can use: torch.cuda.is_available() is False")
    shapes = [shape.tiny() if options.quick else shape for shape in SHAPES.values()]
    results: dict[str, Any] = {"environment": environment(device), "differences": {}}
    print(results["environment"])
    for shape in shapes:
        results["differences"][shape.name] = check(shape, device)
    for kind in ("training", "inference"):
        results[kind] = {shape.name: measure(kind, shape, device, options.repeats) for shape in shapes}
        print(f"\n{kind}: milliseconds\n{table(results[kind])}")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


def environment(device: torch.device) -> dict[str, Any]:
    """Return the properties of machine and software that affect speed."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    versions = {
        "rru": rru.__version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
    }
    return versions | {"device": name, "python": platform.python_version(), "platform": platform.platform()}


def contenders(shape: Shape, dropout: float, device: torch.device) -> list[Contender]:
    """Return the layers to compare, with equally many parameters: each RRU next to its reference, then the LSTMs."""
    layers = []
    for backend in ("fused", "reference"):
        contender = build(RRU_REFERENCE, shape, dropout)
        contender.name, contender.backend, contender.layer.backend = f"RRU {backend}", backend, backend
        layers.append(contender)
    torchs = build("nn.LSTM", shape)
    layers += [Contender("rru.LSTM", None, "auto", rru.LSTM.from_torch(torchs.layer)), torchs]
    for contender in layers:
        contender.layer.to(device)
    return layers


def check(shape: Shape, device: torch.device) -> dict[str, float]:
    """Compare outputs and gradients with the reference on the device; end the benchmark if they differ.

    **Returns:** the largest difference of each layer, relative to the largest entry.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    fused, reference, ours, torchs = contenders(shape, DROPOUT, device)
    differences = {}
    for tested, trusted in ((fused, reference), (ours, torchs)):
        results = [_results(contender, shape, device) for contender in (tested, trusted)]
        pairs = list(zip(*results, strict=False))  # the LSTMs' weights come in another form: input gradients decide
        compared = pairs if tested is fused else pairs[:2]
        worst = max(((a - b).abs().max() / b.abs().max()).item() for a, b in compared)
        differences[tested.name] = worst
        if not worst <= TOLERANCE:
            pair = f"{tested.name} differs from {trusted.name}"
            sys.exit(f"{pair} at {shape.name} by {worst:.3g} of the largest: please report")
    return differences


def _results(contender: Contender, shape: Shape, device: torch.device) -> list[Tensor]:
    """Return outputs, and the gradients of the input and of all parameters."""
    step = _pass("training", contender, shape, device)
    torch.manual_seed(1)  # the same dropout
    outputs, _ = contender.layer(step.input)
    tensors = [step.input, *contender.layer.parameters()]
    return [outputs, *torch.autograd.grad(outputs, tensors, step.output_gradient)]


def measure(kind: str, shape: Shape, device: torch.device, repeats: int) -> dict[str, float]:
    """Return the median time of each contender in milliseconds, eager and as a CUDA graph."""
    tasks: dict[str, Callable[[], object]] = {}
    for contender in contenders(shape, DROPOUT if kind == "training" else 0.0, device):
        tasks[contender.name] = eager = _pass(kind, contender, shape, device)
        if (
            device.type == "cuda" and contender.backend != "reference"
        ):  # whose graph would have a hundred thousand kernels
            tasks[f"{contender.name}, graph"] = _graph(eager)

    def waiting(run: Callable[[], object]) -> Callable[[], object]:
        return lambda: (run(), torch.cuda.synchronize() if device.type == "cuda" else None)

    seconds = interleave([Task(waiting(run)) for run in tasks.values()], repeats)
    return {
        name: 1000 * statistics.median(time for time in times if time is not None)
        for name, times in zip(tasks, seconds, strict=True)
    }


def _pass(kind: str, contender: Contender, shape: Shape, device: torch.device) -> Any:
    step = (TrainingStep if kind == "training" else Inference)(contender, shape)
    step.input = step.input.detach().to(device).requires_grad_(kind == "training")
    if isinstance(step, TrainingStep):
        step.output_gradient = step.output_gradient.to(device)
    return step


def _graph(run: Callable[[], object]) -> Callable[[], object]:
    """Captures a pass as a CUDA graph, after three runs on a side stream, as torch asks for."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def table(times: dict[str, dict[str, float]]) -> str:
    """Return times as a Markdown table: a line for each shape."""
    names = list(next(iter(times.values())))
    lines = [f"| shape | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    lines += [f"| {shape} | {' | '.join(f'{row[name]:.2f}' for name in names)} |" for shape, row in times.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
