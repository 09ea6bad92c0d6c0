"""Benchmark the layers against torch.nn at the shapes of the paper and equal parameters, and compare with the targets.

All contenders run once per round, in shuffled order. Results are medians over rounds, of times and of ratios within a
round. Slow contenders run in every third round.
"""

import argparse
import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import rru
from benchmarks import report, sections
from benchmarks.bfloat16 import measure_bfloat16
from benchmarks.contenders import NAMES, RRU_NATIVE, available, why_no_native
from benchmarks.phases import measure_phases
from benchmarks.sections import Settings
from benchmarks.shapes import MORE_SHAPES, SHAPES
from benchmarks.targets import compare

BUSY = 0.5  # load average above which other processes distort the times


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen sections, print each result and update the JSON file."""
    options = parse(arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    settings = settings_from(options)
    results: dict[str, Any] = {"environment": environment(), "settings": asdict(settings)}
    print_environment(results["environment"])
    for section in options.sections:
        results[section] = SECTIONS[section](settings)
        if options.json is not None:
            options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.json is not None:
        print(f"\nAll results, with the times of every round: {options.json}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.layers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--sections", nargs="+", choices=SECTIONS, default=[name for name in SECTIONS if name != "phases"]
    )
    parser.add_argument(
        "--phases", action="store_true", help="only show where the time of a training step of the RRU goes"
    )
    parser.add_argument("--shapes", type=_names_among([*SHAPES, *MORE_SHAPES]), help="e.g. jsb,mnist")
    parser.add_argument("--contenders", type=_names_among(NAMES), default=NAMES, help='e.g. "RRU native,nn.LSTM"')
    parser.add_argument(
        "--dropout",
        nargs="+",
        type=float,
        default=[0.5, 0.75],
        help="dropout of the RRU in training; measurements at a single dropout use the first",
    )
    parser.add_argument("--repeats", type=int, help="number of rounds; default: 7, or 2 with --quick")
    parser.add_argument("--threads", type=int, help="number of threads; default: chosen by torch")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all measurements to FILE")
    parser.add_argument("--quick", action="store_true", help="use tiny shapes, to check that everything runs")
    options = parser.parse_args(arguments)
    if options.phases:
        options.sections = ["phases"]
    for name in ("repeats", "threads"):
        if (value := getattr(options, name)) is not None and value < 1:
            parser.error(f"--{name} must be positive, got {value}")
    if wrong := [rate for rate in options.dropout if not 0 <= rate < 1]:
        parser.error(f"--dropout must be in [0, 1), got {wrong[0]}")
    return options


def _names_among(choices: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def names(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        if wrong := [name for name in chosen if name not in choices]:
            raise argparse.ArgumentTypeError(f"must be among {', '.join(choices)}, got {wrong[0]!r}")
        return chosen

    return names


def settings_from(options: argparse.Namespace) -> Settings:
    """Return the settings, with the contenders that can run on this machine."""
    known = SHAPES | MORE_SHAPES
    names = options.shapes or (known if options.sections == ["phases"] else SHAPES)
    shapes = [known[name] for name in names]
    return Settings(
        shapes=tuple(shape.tiny() if options.quick else shape for shape in shapes),
        names=available(options.contenders),
        dropouts=tuple(options.dropout),
        repeats=options.repeats or (2 if options.quick else 7),
        quick=options.quick,
    )


def environment() -> dict[str, Any]:
    """Return the properties of machine and software that affect speed."""
    return {
        "rru": rru.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average_before": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "why_no_native": why_no_native(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def print_environment(machine: dict[str, Any]) -> None:
    """Print the environment, and what cannot be measured in it."""
    print(
        f"rru {machine['rru']}, torch {machine['torch']} ({machine['cpu_capability']}), {machine['cpu']}, "
        f"{machine['cores']} cores, {machine['threads']} threads"
    )
    if machine["why_no_native"]:
        print(f"'{RRU_NATIVE}' is skipped, and the other layers of rru use the reference: {machine['why_no_native']}")
    load = machine["load_average_before"]
    if load is not None and load[0] > BUSY:
        print(f"The machine is busy (load {load[0]:.1f}): times are unreliable with one thread per core.")


def _print_head(title: str) -> None:
    print(f"\n== {title} ==", flush=True)


def run_passes(kind: str, settings: Settings) -> dict[str, Any]:
    """Measure training or inference on all shapes, and compare."""
    _print_head({"training": "Training step: forward, backward, all gradients", "inference": "Inference"}[kind])
    measured = {}
    for shape in settings.shapes:
        print(f"\n{shape}", flush=True)
        measured[shape.name] = sections.measure_shape(kind, shape, settings)
        print(report.shape_table(measured[shape.name]), flush=True)
    comparisons = compare(measured, with_targets=kind == "training")
    print(f"\n{kind.capitalize()}, geometric means over {len(measured)} of {len(SHAPES)} shapes")
    print(report.comparison_table(comparisons))
    return {"shapes": measured, "comparisons": comparisons}


def run_streaming(settings: Settings) -> dict[str, Any]:
    """One step of a cell and of `rru.stream`, batch 1."""
    _print_head("Streaming: one step, batch 1, inference")
    results = {shape.name: sections.measure_streaming(shape, settings) for shape in settings.shapes}
    print(report.streaming_table(results))
    return results


def run_small(settings: Settings) -> list[dict[str, Any]]:
    """Measure small layers relative to nn.LSTM with as many parameters."""
    _print_head("Small layers: time / time of nn.LSTM, equal parameters")
    rows = sections.measure_small(settings)
    print(report.small_table(rows))
    return rows


def run_bfloat16(settings: Settings) -> dict[str, Any]:
    """Measure float32 and autocast to bfloat16."""
    _print_head("float32 and autocast to bfloat16")
    results = {shape.name: measure_bfloat16(shape, settings) for shape in settings.shapes}
    print(report.bfloat16_table(results))
    return results


def run_growth(settings: Settings) -> dict[str, Any]:
    """Measure training time for increasing sequence lengths."""
    _print_head(f"Training time by sequence length: {settings.best_rru}")
    result = sections.measure_growth(settings)
    print(report.growth_table(result))
    return result


def run_threads(settings: Settings) -> dict[str, Any]:
    """Measure training with one and two threads."""
    _print_head("Threads: training step")
    results = {shape.name: sections.measure_threads(shape, settings) for shape in settings.shapes}
    print(report.threads_table(results))
    return results


def run_memory(settings: Settings) -> dict[str, Any]:
    """Measure the peak memory of a training step."""
    _print_head("Peak memory of a training step, including gradients, without weights and input")
    results = {shape.name: sections.measure_memory(shape, settings) for shape in settings.shapes}
    print(report.memory_table(results))
    print("measured in a new process each:", next(iter(results.values()))["how"])
    return results


def run_phases(settings: Settings) -> dict[str, Any]:
    """Measure the phases of a training step of the native RRU."""
    _print_head("Phases of a training step of the RRU, in percent")
    results = [
        measure_phases(shape, dropout, settings.repeats) for dropout in settings.dropouts for shape in settings.shapes
    ]
    print(report.phases_table(results))
    return {"rows": results}


SECTIONS: dict[str, Callable[[Settings], Any]] = {
    "training": lambda settings: run_passes("training", settings),
    "inference": lambda settings: run_passes("inference", settings),
    "streaming": run_streaming,
    "small": run_small,
    "bfloat16": run_bfloat16,
    "growth": run_growth,
    "threads": run_threads,
    "memory": run_memory,
    "phases": run_phases,
}

if __name__ == "__main__":
    main()
