"""Run every path, compare what it computes with the reference in float64, and time it."""

import platform
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rru.nn.verification.case import Bound, Case, Results, layers_of
from rru.nn.verification.paths import ROUNDING, Path, paths
from rru.nn.verification.table import Checked, Verification
from rru.scan.differences import difference
from rru.scan.native import library

MAX_REASON = 160  # characters of an error's first line


def verify(
    model: nn.Module,
    example_input: Tensor | PackedSequence | tuple[Any, ...],
    *,
    only: str | Sequence[str] | None = None,
    **keywords: Any,
) -> Verification:
    """Run a model on every path that can run here, and compare the results with those of plain PyTorch in float64.

    ```python
    layer = rru.RRU(8, 32)
    report = rru.verify(layer, torch.randn(20, 4, 8), only=["reference", "stepper"])  # without `only`, every path
    print(report)  # a table
    assert report.ok
    ```

    The paths: the reference, the native library with each instruction set of this processor, the fused scan, single
    steps, `torch.compile`, `torch.export`, ONNX in onnxruntime, bfloat16 and int8. Outputs are compared on all of them,
    gradients of inputs and weights where a path has them. The model is copied and runs in evaluation mode. Attach the
    table to a bug report.

    **Arguments:**

    - `model`: any module that holds layers of rru, or a layer itself.
    - `example_input`: an input, or a tuple of all positional arguments. Take real values: zeros hide differences.
    - `only`: the names of the paths to run. Default: all.
    - others: arguments of the model by name, such as `resets` of a layer.

    **Returns:** a `Verification`: `ok`, `paths`, and the table as its text.
    """
    whole = isinstance(example_input, PackedSequence) or not isinstance(example_input, tuple)
    inputs: tuple[Any, ...] = (example_input,) if whole else tuple(example_input)
    if not layers_of(model):
        raise ValueError(f"the model must hold a layer of rru, got a {type(model).__name__} without")
    if any(cell.quantized for layer in layers_of(model) for cell in layer.cells):
        raise ValueError("the model must not be quantized yet: int8 weights are one of the paths")
    chosen = chosen_paths(paths(), only)
    case = Case(Bound(model, tuple(keywords)), (*inputs, *keywords.values())) if keywords else Case(model, inputs)
    wanted = truth(case)
    if not wanted:
        raise TypeError("the model must return tensors, or tuples, lists and dicts of them")
    return Verification(tuple(checked(path, case, wanted) for path in chosen), about(case))


def chosen_paths(known: Sequence[Path], only: str | Sequence[str] | None) -> list[Path]:
    """Return the paths with these names; raise ValueError if there is no such path."""
    names = [path.name for path in known]
    only = [only] if isinstance(only, str) else only
    if only is not None and not only:
        raise ValueError(f"only must name at least one of {', '.join(names)}")
    for name in only or ():
        if name not in names:
            raise ValueError(f"only must be among {', '.join(names)}; got {name!r}")
    return [path for path in known if only is None or path.name in only]


def truth(case: Case) -> Results:
    """Return what the reference computes in float64."""
    return case.outputs_and_gradients(case.on("reference", torch.float64), torch.float64)


def checked(path: Path, case: Case, wanted: Results) -> Checked:
    """Run a path twice, time the second call, and compare its results. Any error is the reason why it cannot run."""
    tolerance = ROUNDING.get(case.dtype, 0.0) if path.tolerance is None else path.tolerance
    try:
        run = path.prepare(case)
        run()
        start = time.perf_counter()
        computed = run()
        seconds = time.perf_counter() - start
    except Exception as error:
        reason = f"{error}".strip().partition("\n")[0] or type(error).__name__
        return Checked(path.name, tolerance, reason=reason[:MAX_REASON])
    outputs = [name for name in wanted if name.startswith("output")]
    if missing := [name for name in outputs if name not in computed]:
        return Checked(path.name, tolerance, float("inf"), f"{missing[0]} is missing", seconds)
    shares = {name: difference(result, wanted[name]) for name, result in computed.items()}
    where = max(shares, key=lambda name: float("inf") if shares[name] != shares[name] else shares[name])
    return Checked(path.name, tolerance, shares[where], where, seconds, len(computed) > len(outputs))


def about(case: Case) -> tuple[str, ...]:
    """Return lines that say what was compared, and where."""
    layers = ", ".join(dict.fromkeys(f"{type(layer).__name__} {layer.hidden_size}" for layer in layers_of(case.model)))
    sets = " ".join(library.INSTRUCTION_SETS) or "none"
    machine = f"{platform.system()} {platform.machine()}, native: {sets}, {torch.get_num_threads()} threads"
    versions = f"rru {version('rru')}, torch {torch.__version__}, Python {platform.python_version()}"
    shapes = ", ".join(
        str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__ for value in case.inputs
    )
    return f"{versions}, {machine}", f"{layers}, {case.dtype} on {case.device}, input {shapes}"
