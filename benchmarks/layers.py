"""Times the layers at the paper's shapes and equal parameters, beside torch's own, and prints what is wanted of them.

All contenders take turns in every round, in shuffled order; what is shown are medians over rounds, and medians of each
round's ratios. Slow contenders take part in every third round.
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
from benchmarks.contenders import NAMES, RRU_NATIVE, available, why_no_native
from benchmarks.sections import Settings
from benchmarks.shapes import SHAPES
from benchmarks.targets import compare

BUSY = 0.5  # a load average above which other work is likely to disturb the times


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the sections asked for, printing each as it is done and keeping the JSON file up to date."""
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
        print(f"\nAll of it, with every round's times, is in {options.json}.")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.layers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--shapes", type=_names_among(SHAPES), default=tuple(SHAPES), help="e.g. jsb,mnist")
    parser.add_argument("--contenders", type=_names_among(NAMES), default=NAMES, help='e.g. "RRU native,nn.LSTM"')
    parser.add_argument(
        "--dropout",
        nargs="+",
        type=float,
        default=[0.5, 0.75],
        help="of the RRU in training; all that is measured at one dropout only is measured at the first",
    )
    parser.add_argument("--repeats", type=int, help="rounds; default 7, with --quick 2")
    parser.add_argument("--threads", type=int, help="default: as many as torch chooses")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything measured to FILE")
    parser.add_argument("--quick", action="store_true", help="tiny shapes: shows that all of it runs, no more")
    options = parser.parse_args(arguments)
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
    """What to measure, of what can run here."""
    shapes = [SHAPES[name] for name in options.shapes]
    return Settings(
        shapes=tuple(shape.tiny() if options.quick else shape for shape in shapes),
        names=available(options.contenders),
        dropouts=tuple(options.dropout),
        repeats=options.repeats or (2 if options.quick else 7),
        quick=options.quick,
    )


def environment() -> dict[str, Any]:
    """The machine and the software, as far as they matter to speed."""
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
    """Says where this is measured, and what cannot be."""
    print(
        f"rru {machine['rru']}, torch {machine['torch']} ({machine['cpu_capability']}), {machine['cpu']}, "
        f"{machine['cores']} cores, {machine['threads']} threads"
    )
    if machine["why_no_native"]:
        print(f"'{RRU_NATIVE}' is left out, and rru's other layers run on the reference: {machine['why_no_native']}")
    load = machine["load_average_before"]
    if load is not None and load[0] > BUSY:
        print(f"The machine has other work (load {load[0]:.1f}): with as many threads as cores, times mean little.")


def _print_head(title: str) -> None:
    print(f"\n== {title} ==", flush=True)


def run_passes(kind: str, settings: Settings) -> dict[str, Any]:
    """Training or inference on all shapes, then the comparisons over them."""
    _print_head({"training": "Training step: forward, backward, all gradients", "inference": "Inference"}[kind])
    measured = {}
    for shape in settings.shapes:
        print(f"\n{shape}", flush=True)
        measured[shape.name] = sections.measure_shape(kind, shape, settings)
        print(report.shape_table(measured[shape.name]), flush=True)
    comparisons = compare(measured, with_targets=kind == "training")
    print(f"\n{kind.capitalize()}, geometric means over the {len(measured)} shapes measured, of {len(SHAPES)}")
    print(report.comparison_table(comparisons))
    return {"shapes": measured, "comparisons": comparisons}


def run_streaming(settings: Settings) -> dict[str, Any]:
    """One step of a cell, batch 1."""
    _print_head("Streaming: one step of a cell, batch 1, inference")
    results = {shape.name: sections.measure_streaming(shape, settings) for shape in settings.shapes}
    print(report.streaming_table(results))
    return results


def run_growth(settings: Settings) -> dict[str, Any]:
    """Training time as sequences grow."""
    _print_head(f"Growth with the number of steps: training, {settings.best_rru}")
    result = sections.measure_growth(settings)
    print(report.growth_table(result))
    return result


def run_threads(settings: Settings) -> dict[str, Any]:
    """Training with one thread and with two."""
    _print_head("Threads: training step")
    results = {shape.name: sections.measure_threads(shape, settings) for shape in settings.shapes}
    print(report.threads_table(results))
    return results


def run_memory(settings: Settings) -> dict[str, Any]:
    """Peak memory of a training step."""
    _print_head("Peak memory of a training step, beyond weights and input, gradients included")
    results = {shape.name: sections.measure_memory(shape, settings) for shape in settings.shapes}
    print(report.memory_table(results))
    print("how: a fresh process for each;", next(iter(results.values()))["how"])
    return results


SECTIONS: dict[str, Callable[[Settings], dict[str, Any]]] = {
    "training": lambda settings: run_passes("training", settings),
    "inference": lambda settings: run_passes("inference", settings),
    "streaming": run_streaming,
    "growth": run_growth,
    "threads": run_threads,
    "memory": run_memory,
}

if __name__ == "__main__":
    main()
