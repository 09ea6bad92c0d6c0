"""The fused scans as torch operators: `rru::fused_forward` and `rru::fused_backward`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from rru.scan import kernel_operators
from rru.scan.arguments import ScanArguments
from rru.scan.fused.cell import FusedCell
from rru.scan.fused.scan import FusedScan
from rru.scan.kernels import KERNELS


def cell_of(arguments: ScanArguments) -> FusedCell:
    """Return the loops of the kernel."""
    cell = KERNELS[arguments.spec.kernel].fused
    assert cell is not None
    return cell


def allocate_saved(scan: FusedScan, save: bool) -> list[Tensor]:
    """Allocate what the forward pass saves for the backward pass."""
    return [scan.x.new_empty(shape, dtype=dtype) for shape, dtype in cell_of(scan).saved(scan)] if save else []


@contextmanager
def _current(device: torch.device) -> Iterator[None]:
    """Turn autocast off and make the device current: Triton launches on that, wherever the tensors are."""
    with torch.autocast(device.type, enabled=False), torch.accelerator.device_index(device.index):  # None for a CPU
        yield


def _forward(arguments: ScanArguments, save: bool) -> list[Tensor]:
    scan = FusedScan(*arguments)
    saved = allocate_saved(scan, save)
    with _current(scan.x.device):
        outputs, last = cell_of(scan).forward(scan, saved)
    return [outputs, *saved, *last]


def _allocate(arguments: ScanArguments, save: bool) -> list[Tensor]:
    scan = FusedScan(*arguments)
    shape, dtype = cell_of(scan).outputs(scan)
    last = map(torch.empty_like, scan.initial_state)
    return [scan.x.new_empty(shape, dtype=dtype), *allocate_saved(scan, save), *last]


def _backward(
    arguments: ScanArguments, gradients: Sequence[Tensor], saved: list[Tensor], wants_x: bool
) -> list[Tensor | None]:
    scan = FusedScan(*arguments)
    with _current(scan.x.device):
        computed = cell_of(scan).backward(scan, saved, list(gradients))
    tensors = [scan.x, *scan.state, *scan.weights]
    return [gradient.to(like.dtype).contiguous() for gradient, like in zip(computed, tensors, strict=True)]


forward, backward = kernel_operators.define(
    "fused",
    kernel_operators.BackEnd(
        _forward,
        _allocate,
        _backward,
        forward_end='ScalarType? autocast, str cell_options="", Tensor? resets=None',
        backward_end="ScalarType? autocast, Tensor? resets=None",
    ),
)
