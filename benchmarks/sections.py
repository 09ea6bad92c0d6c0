"""What the benchmark measures, section by section; each gives plain data, ready for JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import rru
from benchmarks.contenders import RRU_NATIVE, RRU_REFERENCE, Contender, Inference, TrainingStep, awaken, build
from benchmarks.memory import measure_in_subprocess
from benchmarks.shapes import SHAPES, Shape
from benchmarks.targets import BASES
from benchmarks.timing import Seconds, SquareProduct, Task, interleave, median, median_ratio

SLOW_EVERY = 3  # slow contenders take part in every third round
PASSES = {"training": (TrainingStep, 6), "inference": (Inference, 2)}  # and FLOPs per weight, step and sequence
STREAMING_WEIGHTS = 20_000_000  # weights a block of streaming steps goes through, so that its time can be measured
GROWTH_BATCH, GROWTH_PARAMETERS = 16, 200_000
GROWTH_STEPS = tuple(64 * 2**k for k in range(7))  # 64 to 4,096
THREADS = (1, 2)


@dataclass(frozen=True)
class Settings:
    """What the command line asks for; `names` are the contenders that can run here."""

    shapes: tuple[Shape, ...]
    names: tuple[str, ...]
    dropouts: tuple[float, ...]
    repeats: int
    quick: bool

    @property
    def best_rru(self) -> str:
        """The fastest RRU among `names`."""
        return RRU_NATIVE if RRU_NATIVE in self.names else RRU_REFERENCE

    @property
    def product_size(self) -> int:
        """Of the square product that gives the machine's GEMM rate."""
        return 128 if self.quick else 2048


def contenders_for(kind: str, shape: Shape, settings: Settings) -> list[Contender]:
    """For training the RRUs at every dropout, the rivals, dense at any, at the first; for inference all without."""
    if kind == "inference":
        return [build(name, shape) for name in settings.names]
    return [
        build(name, shape, dropout)
        for name in settings.names
        for dropout in (settings.dropouts if name.startswith("RRU") else settings.dropouts[:1])
    ]


def measure_shape(kind: str, shape: Shape, settings: Settings) -> dict[str, Any]:
    """All contenders' training or inference on one shape, interleaved with a product that gives the GEMM rate."""
    make_pass, flops_per_weight = PASSES[kind]
    contenders = contenders_for(kind, shape, settings)
    tasks = [Task(make_pass(one, shape), every=SLOW_EVERY if one.is_slow else 1) for one in contenders]
    product = SquareProduct(settings.product_size)
    *seconds, product_seconds = interleave([*tasks, Task(product)], settings.repeats)
    gemm_gflops = product.flops / median(product_seconds) / 1e9
    rows = []
    for contender, times in zip(contenders, seconds, strict=True):
        flops = flops_per_weight * contender.matrix_parameters * shape.batch * shape.steps
        gflops = flops / median(times) / 1e9
        rows.append(
            contender.description()
            | {"seconds": times, "median_seconds": median(times), "gflops": gflops}
            | {"gemm_fraction": gflops / gemm_gflops, "ratios": _ratios(contender, times, contenders, seconds)}
        )
    return {"shape": asdict(shape), "gemm_gflops": gemm_gflops, "contenders": rows}


def _ratios(
    contender: Contender, times: Seconds, contenders: Sequence[Contender], seconds: Sequence[Seconds]
) -> dict[str, float]:
    """Its time divided by that of each base that was measured, at the same dropout where the base has one."""
    return {
        base.name: median_ratio(times, base_times)
        for base, base_times in zip(contenders, seconds, strict=True)
        if base.name in BASES and (base.dropout is None or base.dropout == _dropout_beside(contender, contenders))
    }


def _dropout_beside(contender: Contender, contenders: Sequence[Contender]) -> float | None:
    """Its own dropout; for torch's layers, which have none, the first there is."""
    return next((one.dropout for one in (contender, *contenders) if one.dropout is not None), None)


class Stream:
    """Steps of a cell on a single sequence, one call each, the state passed on."""

    def __init__(self, cell: nn.Module, input_size: int, steps: int) -> None:
        self.cell = cell.eval()
        self.steps = steps
        self.input = torch.randn(1, input_size, generator=torch.Generator().manual_seed(1))  # (1, m)
        self.state: Tensor | tuple[Tensor, Tensor] | None = None

    @torch.inference_mode()
    def __call__(self) -> None:
        state = self.state
        for _ in range(self.steps):
            result = self.cell(self.input, state)
            state = result if isinstance(self.cell, nn.LSTMCell) else result[1]
        self.state = state


def streaming_cells(shape: Shape) -> dict[str, nn.Module]:
    """The RRU's cell and torch's LSTM cell, of equal parameters."""
    options = {"expansion": shape.expansion, "relu_layers": shape.relu_layers}
    builders = {
        "rru.RRUCell": lambda n: rru.RRUCell(shape.input_size, n, shape.output_size, **options),
        "nn.LSTMCell": lambda n: nn.LSTMCell(shape.input_size, n),
    }
    torch.manual_seed(0)
    cells = {name: make(rru.hidden_size_for(shape.parameters, make)) for name, make in builders.items()}
    awaken(cells["rru.RRUCell"])
    return cells


def measure_streaming(shape: Shape, settings: Settings) -> dict[str, Any]:
    """Seconds of one step at batch 1, inference, interleaved in blocks of steps."""
    steps = 2 if settings.quick else max(10, STREAMING_WEIGHTS // shape.parameters)
    cells = streaming_cells(shape)
    tasks = [Task(Stream(cell, shape.input_size, steps)) for cell in cells.values()]
    blocks = dict(zip(cells, interleave(tasks, settings.repeats), strict=True))
    seconds = {name: [block / steps for block in times] for name, times in blocks.items()}
    return {
        "shape": asdict(shape),
        "seconds": seconds,
        "median_seconds": {name: median(times) for name, times in seconds.items()},
        "ratio": median_ratio(seconds["rru.RRUCell"], seconds["nn.LSTMCell"]),
    }


def measure_growth(settings: Settings) -> dict[str, Any]:
    """A training step of one small RRU over ever longer sequences."""
    lengths = (2, 4, 8) if settings.quick else GROWTH_STEPS
    shape = SHAPES["nottingham"].tiny() if settings.quick else SHAPES["nottingham"]
    if not settings.quick:
        shape = replace(shape, batch=GROWTH_BATCH, parameters=GROWTH_PARAMETERS)
    contender = build(settings.best_rru, shape, settings.dropouts[0])
    tasks = [Task(TrainingStep(contender, replace(shape, steps=steps))) for steps in lengths]
    seconds = interleave(tasks, settings.repeats)
    rows = [
        {"steps": steps, "seconds": times, "median_seconds": median(times), "seconds_per_step": median(times) / steps}
        for steps, times in zip(lengths, seconds, strict=True)
    ]
    return {
        "contender": contender.description(),
        "batch": shape.batch,
        "rows": rows,
        "longest_to_shortest": rows[-1]["seconds_per_step"] / rows[0]["seconds_per_step"],
    }


def measure_threads(shape: Shape, settings: Settings) -> dict[str, Any]:
    """A training step with one thread and with two, the two taking turns, beside the square product."""
    names = [name for name in (settings.best_rru, "nn.LSTM", "nn.GRU") if name in settings.names]
    steps = {name: TrainingStep(build(name, shape, settings.dropouts[0]), shape) for name in names}
    runs = steps | {"GEMM": SquareProduct(settings.product_size)}
    labels = [(name, threads) for name in runs for threads in THREADS]
    tasks = [Task(runs[name], prepare=partial(torch.set_num_threads, threads)) for name, threads in labels]
    threads_before = torch.get_num_threads()
    try:
        seconds = dict(zip(labels, interleave(tasks, settings.repeats), strict=True))
    finally:
        torch.set_num_threads(threads_before)
    rows = [
        {
            "name": name,
            "seconds": {str(threads): seconds[name, threads] for threads in THREADS},
            "median_seconds": {str(threads): median(seconds[name, threads]) for threads in THREADS},
            "speedup": median_ratio(seconds[name, THREADS[0]], seconds[name, THREADS[1]]),
        }
        for name in runs
    ]
    return {"shape": asdict(shape), "rows": rows}


def measure_memory(shape: Shape, settings: Settings) -> dict[str, Any]:
    """Peak bytes of a training step, each contender in a process of its own."""
    dropout, threads = settings.dropouts[0], torch.get_num_threads()
    peaks = {name: measure_in_subprocess(shape.name, name, dropout, threads, settings.quick) for name in settings.names}
    torch_bytes = peaks.get("nn.LSTM", {}).get("bytes")
    return {
        "shape": asdict(shape),
        "dropout": dropout,
        "how": " / ".join(sorted({peak["how"] for peak in peaks.values()})),
        "bytes": {name: peak["bytes"] for name, peak in peaks.items()},
        "ratios": {name: peak["bytes"] / torch_bytes for name, peak in peaks.items()} if torch_bytes else {},
    }
