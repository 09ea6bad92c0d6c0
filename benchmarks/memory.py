"""Measure the peak memory of a training step: `python -m benchmarks.memory SHAPE CONTENDER DROPOUT THREADS`."""

import argparse
import ctypes
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.contenders import TrainingStep, build
from benchmarks.shapes import SHAPES, Shape

ROOT = Path(__file__).parents[1]
STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
WARM_UP_STEPS = 2
HIGH_WATER = "VmHWM after the step, reset before it, minus VmRSS before it"
MAX_RSS = "ru_maxrss after the step minus ru_maxrss before it; less exact than VmHWM on Linux"


def measure(shape: Shape, name: str, dropout: float) -> dict[str, object]:
    """Measure a training step in this process. Return its peak memory in bytes, and the method.

    Gradients are included; weights, input and output gradient are not. A warm-up over two time steps loads libraries
    and starts threads first.
    """
    contender = build(name, shape, dropout)
    step = TrainingStep(contender, shape)
    warm_up = TrainingStep(contender, replace(shape, steps=min(WARM_UP_STEPS, shape.steps)))
    warm_up()
    warm_up.clear_gradients()
    _return_freed_memory()
    if _reset_high_water():
        before = _status("VmRSS")
        step()
        return {"bytes": _status("VmHWM") - before, "how": HIGH_WATER}
    before = _max_rss()
    step()
    return {"bytes": _max_rss() - before, "how": MAX_RSS}


def measure_in_subprocess(shape_name: str, name: str, dropout: float, threads: int, quick: bool) -> dict[str, object]:
    """Run `measure` in a new process, which has no memory to reuse."""
    command = [sys.executable, "-m", "benchmarks.memory", shape_name, name, str(dropout), str(threads)]
    run = subprocess.run(command + ["--quick"] * quick, cwd=ROOT, capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"measuring the memory of {name} on {shape_name} failed:\n{run.stderr}")
    return json.loads(run.stdout)


def _return_freed_memory() -> None:
    """Return freed memory to the system, so that reusing it shows up in the measurement."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        if trim is not None:
            trim(0)


def _reset_high_water() -> bool:
    try:
        CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True


def _status(field: str) -> int:
    """Return a field of /proc/self/status, in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field + ":"))
    return 1024 * int(line.split()[1])


def _max_rss() -> int:
    """Return the peak memory of the process so far, in bytes."""
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Print one measurement as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("contender")
    parser.add_argument("dropout", type=float)
    parser.add_argument("threads", type=int)
    parser.add_argument("--quick", action="store_true", help="use the tiny version of the shape")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shape = SHAPES[options.shape]
    print(json.dumps(measure(shape.tiny() if options.quick else shape, options.contender, options.dropout)))


if __name__ == "__main__":
    main()
