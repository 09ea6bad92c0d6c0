"""Verify trained models, and what was exported from them: every path must give the results of plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rru.extras import extra
from rru.files import read_file
from rru.inference.engine.blob import MAX_BYTES
from rru.inference.engine.folder import WEIGHTS
from rru.inference.engine.running import Steps, is_rounded, steps_in_c, steps_in_node
from rru.inference.export import STATE
from rru.inference.loading import load
from rru.nn.verification import Verification
from rru.nn.verification.case import Case, Results
from rru.nn.verification.paths import INT8, CannotRunError, Run
from rru.nn.verification.paths import Path as VerifiedPath
from rru.nn.verification.verifying import about, checked, truth, verify
from rru.tasks import Recurrent
from rru.training import RunError
from rru.training.checkpoint import MODEL

STEPS, BATCH = 12, 3


def verify_folder(folder: Path, run: Path | None = None) -> Verification:
    """Verify the model of a run or an export, on random inputs.

    **Arguments:**

    - `folder`: a run, or an export in any format.
    - `run`: for an export to other runtimes, the run or the safetensors export that it was made from.

    **Returns:** for a run or safetensors, all paths of `rru.verify`. For other formats, the files of the export, each
    compared with the model of `run`.
    """
    runs = exported_paths(folder)
    if not runs:
        if run is not None:
            raise ValueError(f"{folder} is verified by itself: --made-from is for exports to other runtimes")
        model = load(folder).model
        return verify(model, random_inputs(model))
    if run is None:
        raise ValueError(f"{folder} holds a model for other runtimes: give --made-from, the run it was made from")
    model = load(run).model
    case = Case(model, (random_inputs(model),))
    wanted = truth(case)
    return Verification(tuple(checked(path, case, wanted) for path in runs), about(case))


def random_inputs(model: Recurrent) -> Tensor:
    """Return inputs of the right shape: random tokens (T, B), or random numbers (T, B, m)."""
    random = torch.Generator().manual_seed(0)
    zeros = model.example(model.window_steps or STEPS, BATCH)
    if model.embedding is not None:
        return torch.randint(model.embedding.num_embeddings, zeros.shape, generator=random)
    return torch.rand(zeros.shape, generator=random)


def exported_paths(folder: Path) -> list[VerifiedPath]:
    """Return the paths that an export to other runtimes has: those in `RUNTIMES` whose files it has; none for a run."""
    if (folder / MODEL).is_file():
        return []
    return [
        VerifiedPath(name, partial(prepare, folder / file), _tolerance(folder / file))
        for name, (file, prepare) in RUNTIMES.items()
        if (folder / file).is_file()
    ]


def _tolerance(file: Path) -> float | None:
    """Return the tolerance of a file whose matrices are rounded to int8; None for the usual one."""
    return INT8 if file.name == WEIGHTS and is_rounded(read_file(file, MAX_BYTES)) else None


def _sequence(file: Path, case: Case) -> Run:
    session = _session(file)
    inputs = _inputs(case)
    return lambda: _as_outputs(case, session.run(None, {"input": inputs.numpy()}))


def _steps(file: Path, case: Case) -> Run:
    session, inputs = _session(file), _inputs(case)
    with np.load(file.with_name(STATE), allow_pickle=False) as stored:
        initial = {name: np.repeat(stored[name], inputs.shape[1], axis=1) for name in stored.files}

    def run() -> Results:
        state, outputs = initial, []
        for x in inputs.numpy():
            output, *after = session.run(None, {"input": x, **state})
            state = dict(zip(state, after, strict=True))
            outputs.append(output)
        whole = case.outputs(case.model)["output 0"].dim() == 3  # else it is a classifier's, after the last step
        return _as_outputs(case, [np.stack(outputs) if whole else outputs[-1], *state.values()])

    return run


def _program(file: Path, case: Case) -> Run:
    raise CannotRunError("loading such a file can run code; `rru verify RUN` exports its model anew and loads that")


def _engine(start: Callable[[bytes], Steps], file: Path, case: Case) -> Run:
    """Run the sequences of a batch one by one in the C engine."""
    model, inputs = case.model, _inputs(case).numpy()
    assert isinstance(model, Recurrent)
    if model.window_steps:
        raise CannotRunError("a step in C is not one of series; its forecasts are compared in rru's own tests")
    steps, whole = start(read_file(file, MAX_BYTES)), case.outputs(model)["output 0"].dim() == 3

    def run() -> Results:
        outputs, states = zip(*(steps(sequence) for sequence in inputs.swapaxes(0, 1)), strict=True)
        stacked = np.stack(outputs, axis=1)  # (T, B, p)
        layers, names = model.layers.num_layers, model.layers.cells[0].state_names
        end = len(states[0]) - (model.state_names != names)  # the place in a bar, if it knows it, comes last
        of_layers = np.stack([state[:end] for state in states]).reshape(len(states), layers, len(names), -1)
        place = np.tile([state[end:] for state in states], (layers, 1, 1))  # (layers, B, 0 or 1)
        state = [*of_layers.transpose(2, 1, 0, 3), place][: len(model.state_names)]  # (layers, B, n) for each part
        return _as_outputs(case, [stacked if whole else stacked[-1], *map(np.ascontiguousarray, state)])

    return run


RUNTIMES: dict[str, tuple[str, Callable[[Path, Case], Run]]] = {
    "sequence.onnx": ("sequence.onnx", _sequence),
    "step.onnx": ("step.onnx", _steps),
    "model.pt2": ("model.pt2", _program),
    "model.rru in C": (WEIGHTS, partial(_engine, steps_in_c)),
    "model.rru in WebAssembly": (WEIGHTS, partial(_engine, steps_in_node)),
}
"""The file of an export, and what runs it, by the name of the path."""


def _session(file: Path) -> Any:
    with extra("onnx"):
        import onnxruntime
    try:
        return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own classes, which have no common base
        raise RunError(f"{file}: onnxruntime cannot load it ({error})") from error


def _inputs(case: Case) -> Tensor:
    (inputs,) = case.arguments()
    tensor: Tensor = inputs
    return tensor


def _as_outputs(case: Case, arrays: list[Any]) -> Results:
    return case.outputs(lambda *_: [torch.from_numpy(array) for array in arrays])
