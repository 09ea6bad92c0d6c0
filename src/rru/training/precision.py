"""The precision of training: float32, or bfloat16 products with weights, sums, gradients and optimiser in float32.

A config has `float32` or `bf16`. `auto` becomes one of them here, when a run is made, so that its config.toml and id
name the one that it has on every machine. Validation and tests are in float32, as is all use of the weights later.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from rru.nn import layer_class
from rru.scan.native import library
from rru.settings import Config
from rru.settings.tables import BFLOAT16, FLOAT32, PRECISIONS
from rru.suggestions import choice
from rru.tasks import LayerState, map_state
from rru.training.folder import Run
from rru.training.run_files import has_config

AUTO = "auto"
NAMES = (*PRECISIONS, AUTO)
MIN_WEIGHTS = 150_000
"""Parameters from which `auto` takes bfloat16 (docs/lab/2026-11-speed.md, "Whole training steps in bf16")."""


def with_precision(config: Config, precision: str | None, device: str, folder: Path | None = None) -> Config:
    """Return the config of a new run in a precision; None leaves its own.

    **Arguments:**

    - `config`: all other settings.
    - `precision`: `float32`, `bf16`, or `auto`, which takes bf16 where that is faster: on devices that multiply it, for
      cells with a kernel and models that are large enough.
    - `device`: the device to train on.
    - `folder`: the run's folder, if it was chosen. If it has a run, `auto` takes that one's precision.
    """
    if precision is None:
        return config
    has_kernel = layer_class(config.model.cell).cell_class.kernel is not None
    weights = config.model.budget if has_kernel else 0
    return config.changed({"schedule.precision": chosen(precision, weights, device, folder)})


def chosen(precision: str, weights: int, device: str, folder: Path | None = None) -> str:
    """Return `float32` or `bf16`; see `with_precision`. Raise ValueError for another name.

    **Arguments:** `weights`: the number of parameters that gain from bfloat16.
    """
    if choice("precision", precision, NAMES) != AUTO:
        return precision
    if folder is not None and has_config(folder):
        schedule = Run(folder).tables.get("schedule", {})
        return choice("schedule.precision", schedule.get("precision", FLOAT32), PRECISIONS)
    return BFLOAT16 if weights >= MIN_WEIGHTS and multiplies_bfloat16(device) else FLOAT32


def multiplies_bfloat16(device: str) -> bool:
    """Return whether a device multiplies bfloat16 faster than float32: some GPUs, Intel's with AMX, AMD's with dots."""
    if torch.device(device).type == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.device(device).type == "cpu" and library.has_bfloat16_dots()


def slow_notice(precision: str, device: torch.device) -> str:
    """Return why a precision is not faster on a device; empty if it is, or should not be."""
    if precision != BFLOAT16 or multiplies_bfloat16(str(device)):
        return ""
    missing = " (without AMX, or AMD's AVX512_BF16)" if device.type == "cpu" else ""
    return f"bf16 is not faster than float32 here: this {device.type} cannot multiply it faster{missing}"


@contextmanager
def autocast(precision: str, device: torch.device) -> Iterator[None]:
    """Multiply in a precision inside the `with` block. Backward passes of what it computed do so too."""
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == BFLOAT16):
        yield


def in_float32(state: LayerState) -> LayerState:
    """Return a state to carry to the next batch in float32, if autocast rounded it."""
    whole: LayerState = map_state(_in_float32, state)
    return whole


def _in_float32(part: Tensor) -> Tensor:
    return part.float() if part.dtype is torch.bfloat16 else part
