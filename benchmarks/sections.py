"""The sections of the benchmark. Each returns plain data for JSON."""

import itertools
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import rru
from benchmarks.contenders import (
    RRU_NATIVE,
    RRU_REFERENCE,
    Contender,
    Inference,
    TrainingStep,
    build,
    randomize_z,
    why_no_native,
)
from benchmarks.memory import measure_in_subprocess
from benchmarks.shapes import SHAPES, Shape
from benchmarks.targets import BASES
from benchmarks.timing import Seconds, SquareProduct, Task, interleave, median, median_ratio

SLOW_EVERY = 3  # slow contenders run in every third round
PASSES = {"training": (TrainingStep, 6), "inference": (Inference, 2)}  # pass, and FLOPs per weight, step and sequence
STREAMING_WEIGHTS = 20_000_000  # weights read per timed block of streaming steps
GROWTH_BATCH, GROWTH_PARAMETERS = 16, 200_000
GROWTH_STEPS = tuple(64 * 2**k for k in range(7))  # 64 to 4,096
THREADS = (1, 2)
SMALL_HIDDEN, SMALL_BATCHES, SMALL_STEPS = (8, 32, 64, 128), (1, 8, 32), (10, 100)  # hidden size of nn.LSTM
SMALL_WORK, SMALL_OVERHEAD = 40_000_000, 2_000_000  # weights times rows in a timed block of calls; a call's overhead
OURS = ("rru.RRUCell", "rru.stream")
INT8 = ("rru.quantize", "nn.LSTMCell int8")


@dataclass(frozen=True)
class Settings:
    """Settings of the benchmark; `names` are the contenders that can run on this machine."""

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
        """Size of the square product that measures the GEMM rate."""
        return 128 if self.quick else 2048


def contenders_for(kind: str, shape: Shape, settings: Settings) -> list[Contender]:
    """Build the contenders. In training the RRUs run at every dropout, the others only at the first."""
    if kind == "inference":
        return [build(name, shape) for name in settings.names]
    return [
        build(name, shape, dropout)
        for name in settings.names
        for dropout in (settings.dropouts if name.startswith("RRU") else settings.dropouts[:1])
    ]


def measure_shape(kind: str, shape: Shape, settings: Settings) -> dict[str, Any]:
    """Measure training or inference of all contenders on one shape, interleaved with a product for the GEMM rate."""
    make_pass, flops_per_weight = PASSES[kind]
    contenders = contenders_for(kind, shape, settings)
    tasks = [Task(make_pass(rival, shape), every=SLOW_EVERY if rival.is_slow else 1) for rival in contenders]
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
    """Return the time of a contender relative to each base, at the same dropout if the base has dropout."""
    return {
        base.name: median_ratio(times, base_times)
        for base, base_times in zip(contenders, seconds, strict=True)
        if base.name in BASES and (base.dropout is None or base.dropout == _comparison_dropout(contender, contenders))
    }


def _comparison_dropout(contender: Contender, contenders: Sequence[Contender]) -> float | None:
    """Return the dropout of a contender, or for layers of torch.nn the first dropout of any contender."""
    return next((rival.dropout for rival in (contender, *contenders) if rival.dropout is not None), None)


class CellSteps:
    """Steps of a cell on a single sequence, one call each, the state passed on."""

    def __init__(self, cell: nn.Module, input_size: int, steps: int) -> None:
        self.cell = cell.eval()
        self.is_torchs = type(cell).__module__.startswith("torch.")  # also if quantized: returns the state alone
        self.steps = steps
        self.input = torch.randn(1, input_size, generator=torch.Generator().manual_seed(1))  # (1, m)
        self.state: Tensor | tuple[Tensor, Tensor] | None = None

    @torch.inference_mode()
    def __call__(self) -> None:
        state = self.state
        for _ in range(self.steps):
            result = self.cell(self.input, state)
            state = result if self.is_torchs else result[1]
        self.state = state


class StreamSteps:
    """Steps of `rru.stream` on a single sequence."""

    def __init__(self, cell: rru.RRUCell, steps: int) -> None:
        layer = rru.RRU(**json.loads(cell.options)).eval()
        layer.load_state_dict({f"cells.0.{name}": weight for name, weight in cell.state_dict().items()})
        self.stream, self.steps = rru.stream(layer), steps
        self.stream.open(["one"])
        self.input = torch.randn(1, cell.input_size, generator=torch.Generator().manual_seed(1))  # (1, m)

    @torch.inference_mode()
    def __call__(self) -> None:
        for _ in range(self.steps):
            self.stream.step(["one"], self.input)


def streaming_cells(shape: Shape) -> dict[str, nn.Module]:
    """Build RRUCell and nn.LSTMCell with equal parameters."""
    options = {"expansion": shape.expansion, "relu_layers": shape.relu_layers}
    builders = {
        "rru.RRUCell": lambda n: rru.RRUCell(shape.input_size, n, output_size=shape.output_size, **options),
        "nn.LSTMCell": lambda n: nn.LSTMCell(shape.input_size, n),
    }
    torch.manual_seed(0)
    cells = {name: make(rru.hidden_size_for(shape.parameters, make)) for name, make in builders.items()}
    randomize_z(cells["rru.RRUCell"])
    return cells


def measure_streaming(shape: Shape, settings: Settings) -> dict[str, Any]:
    """Measure one inference step at batch 1, in interleaved blocks of steps."""
    steps = 2 if settings.quick else max(10, STREAMING_WEIGHTS // shape.parameters)
    cells = streaming_cells(shape)
    runs = {name: CellSteps(cell, shape.input_size, steps) for name, cell in cells.items()}
    runs["rru.stream"] = StreamSteps(cells["rru.RRUCell"], steps)
    runs |= {name: CellSteps(cell, shape.input_size, steps) for name, cell in int8_cells(cells).items()}
    tasks = [Task(run) for run in runs.values()]
    blocks = dict(zip(runs, interleave(tasks, settings.repeats), strict=True))
    seconds = {name: [block / steps for block in times] for name, times in blocks.items()}
    return {
        "shape": asdict(shape),
        "seconds": seconds,
        "median_seconds": {name: median(times) for name, times in seconds.items()},
        "ratios": {name: median_ratio(seconds[name], seconds["nn.LSTMCell"]) for name in OURS},
        "int8_ratios": {name: median_ratio(seconds[name], seconds["rru.RRUCell"]) for name in INT8 if name in seconds},
    }


def int8_cells(cells: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """Return both cells with int8 weights, where the native library and torch's own quantization are available."""
    quantized: dict[str, nn.Module] = {}
    if why_no_native() is None:
        quantized["rru.quantize"] = rru.quantize(cells["rru.RRUCell"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its quantization old
        if torch.backends.quantized.engine != "none":
            peer = nn.Sequential(cells["nn.LSTMCell"]).eval()
            quantized["nn.LSTMCell int8"] = torch.ao.quantization.quantize_dynamic(peer, {nn.LSTMCell}, torch.qint8)[0]
    return quantized


def measure_small(settings: Settings) -> list[dict[str, Any]]:
    """Measure small layers relative to nn.LSTM with the same input size and as many parameters, in blocks of calls."""
    hidden_sizes, batches, lengths = (
        ((4,), (2,), (3,)) if settings.quick else (SMALL_HIDDEN, SMALL_BATCHES, SMALL_STEPS)
    )
    rows = []
    for hidden in hidden_sizes:
        parameters = rru.count_parameters(nn.LSTM(hidden, hidden))
        for batch, steps in itertools.product(batches, lengths):
            shape = Shape("small", batch, steps, hidden, hidden // 2, 2.0, 1, parameters)
            names = [name for name in (settings.best_rru, "rru.LSTM", "nn.LSTM") if name in settings.names]
            row: dict[str, Any] = {"hidden_size": hidden, "batch": batch, "steps": steps, "ratios": {}, "us": {}}
            for kind, (make_pass, _) in PASSES.items():
                calls = 1 if settings.quick else max(1, SMALL_WORK // (parameters * batch * steps + SMALL_OVERHEAD))
                blocks = [Task(_repeated(make_pass(build(name, shape), shape), calls)) for name in names]
                seconds = dict(zip(names, interleave(blocks, settings.repeats), strict=True))
                row["us"][kind] = {name: 1e6 * median(times) / calls for name, times in seconds.items()}
                row["ratios"][kind] = {
                    name: median_ratio(times, seconds["nn.LSTM"])
                    for name, times in seconds.items()
                    if name != "nn.LSTM"
                }
            rows.append(row)
    return rows


def _repeated(run: Callable[[], object], calls: int) -> Callable[[], None]:
    def block() -> None:
        for _ in range(calls):
            run()

    return block


def measure_growth(settings: Settings) -> dict[str, Any]:
    """Measure a training step of a small RRU for increasing sequence lengths."""
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
    """Measure a training step and a square product with one and two threads, interleaved."""
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
    """Measure the peak memory of a training step, each contender in its own process."""
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
