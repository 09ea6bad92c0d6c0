"""Chooses the pointwise functions of a fused scan: Triton kernels where Triton runs, else torch operations.

Both modules have the same functions, with the same arguments.
"""

import functools
import importlib.util
import os
from typing import Any

import torch

Form = Any  # a module with the functions of `torch_form`


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def interpreted() -> bool:
    """Returns whether Triton's interpreter is on, which runs kernels on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def runs_triton(device: torch.device, dtype: torch.dtype) -> bool:
    """Returns whether Triton kernels can run on this device ("cuda" includes ROCm) with weights of this dtype."""
    return dtype == torch.float32 and _has_triton() and (device.type in ("cuda", "xpu") or interpreted())


def of(device: torch.device, dtype: torch.dtype) -> Form:
    """Returns the module with the pointwise functions for this device and dtype of weights."""
    if runs_triton(device, dtype):
        from rru.scan.fused import triton_form

        return triton_form
    from rru.scan.fused import torch_form

    return torch_form
