"""Peak memory of one training step, measured in a process of its own: `python -m benchmarks.memory SHAPE CONTENDER`."""

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
HIGH_WATER = "VmHWM after the step, having been reset, minus VmRSS before it"
MAX_RSS = "ru_maxrss after the step minus ru_maxrss before it; less exact than the VmHWM of Linux"


def measure(shape: Shape, name: str, dropout: float) -> dict[str, object]:
    """In this process: bytes a training step needs at its peak beyond weights, input and cotangent, and how measured.

    All gradients are included. A step over two time steps goes before, so that libraries, threads and their buffers
    are there already.
    """
    contender = build(name, shape, dropout)
    step = TrainingStep(contender, shape)
    warm_up = TrainingStep(contender, replace(shape, steps=min(WARM_UP_STEPS, shape.steps)))
    warm_up()
    warm_up.forget_gradients()
    _return_freed_memory()
    if _reset_high_water():
        before = _status("VmRSS")
        step()
        return {"bytes": _status("VmHWM") - before, "how": HIGH_WATER}
    before = _max_rss()
    step()
    return {"bytes": _max_rss() - before, "how": MAX_RSS}


def measure_in_subprocess(shape_name: str, name: str, dropout: float, threads: int, quick: bool) -> dict[str, object]:
    """The same in a fresh process, which nothing else has left memory to."""
    command = [sys.executable, "-m", "benchmarks.memory", shape_name, name, str(dropout), str(threads)]
    run = subprocess.run(command + ["--quick"] * quick, cwd=ROOT, capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"measuring the memory of {name} on {shape_name} failed:\n{run.stderr}")
    return json.loads(run.stdout)


def _return_freed_memory() -> None:
    """Gives what the warm-up freed back to the system, where it would else be used again without being seen."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl has not
        if trim is not None:
            trim(0)


def _reset_high_water() -> bool:
    try:
        CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True


def _status(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field + ":"))
    return 1024 * int(line.split()[1])


def _max_rss() -> int:
    """The process's highest memory so far, in bytes."""
    import resource  # which Windows has not

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Prints one measurement as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("contender")
    parser.add_argument("dropout", type=float)
    parser.add_argument("threads", type=int)
    parser.add_argument("--quick", action="store_true", help="the shape's tiny version")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    shape = SHAPES[options.shape]
    print(json.dumps(measure(shape.tiny() if options.quick else shape, options.contender, options.dropout)))


if __name__ == "__main__":
    main()
