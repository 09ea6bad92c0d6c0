"""The weights of a cell, checked and in the layout that its kernel reads."""

from torch import Tensor

from rru.scan.arguments import as_contiguous
from rru.scan.cells import AnyCell
from rru.scan.kernels import KERNELS
from rru.scan.native.library import COMPUTED_IN


def checked_weights(cell: AnyCell, named: dict[str, Tensor]) -> list[Tensor]:
    """Check the shapes and dtypes of the weights of a cell with a kernel, and return them in the kernel's order."""
    dtype, shapes = cell.some_weight().dtype, cell.weight_shapes
    for name, weight in named.items():
        if weight.shape != shapes[name]:
            raise ValueError(f"{name} must have shape {tuple(shapes[name])}, got {tuple(weight.shape)}")
        if weight.dtype != dtype:
            raise TypeError(f"{name} must be {dtype} as the other weights are, got {weight.dtype}")
    named = {name: as_contiguous(weight, COMPUTED_IN[dtype]) for name, weight in named.items()}
    return KERNELS[str(cell.kernel)].weights(cell, named)
