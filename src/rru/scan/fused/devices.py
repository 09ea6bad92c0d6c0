"""Choose the pointwise functions of a fused scan: Triton kernels where Triton runs, else torch operations."""

import functools
import importlib.util
import os

import torch

from rru.scan.fused.rows import Pointwise


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def interpreted() -> bool:
    """Return whether Triton's interpreter is on, which runs kernels on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def runs_triton(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether Triton kernels can run on this device ("cuda" includes ROCm) with weights of this dtype."""
    return dtype == torch.float32 and _has_triton() and (device.type in ("cuda", "xpu") or interpreted())


def pointwise(device: torch.device, dtype: torch.dtype) -> Pointwise:
    """Return the module with the pointwise functions for this device and dtype of weights."""
    if runs_triton(device, dtype):
        from rru.scan.fused.triton import pointwise as in_triton

        return in_triton
    from rru.scan.fused import pointwise as in_torch

    return in_torch


def may_use_tf32() -> bool:
    """Return whether torch was allowed to multiply float32 in TF32, which is faster and less exact, on GPUs."""
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")
