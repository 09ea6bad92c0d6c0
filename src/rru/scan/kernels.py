"""The kernels: each cell that has loops of its own, described once to all back ends. They ask only this table.

A cell names its kernel (`Cell.kernel`). A cell without one runs on the reference. Every cell can be exported to ONNX,
since its `step` becomes the body of a loop there (scan/onnx.py).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from rru.scan.cells import AnyCell
from rru.scan.fused.cell import FusedCell
from rru.scan.fused.gru import FusedGRU
from rru.scan.fused.lstm import FusedLSTM
from rru.scan.fused.mogrifier import FusedMogrifier
from rru.scan.fused.rru import FusedRRU
from rru.scan.matrices import Matrices, of_gru, of_lstm, of_mogrifier, of_rru
from rru.scan.native.gated import NativeGRU, NativeLSTM, NativeMogrifier
from rru.scan.native.rru import NativeRRU
from rru.scan.native.rru_narrow import NativeNarrowRRU
from rru.scan.native.rru_wide import NativeWideRRU
from rru.scan.native.spec import NativeCell

# The options of each kernel. C++ reads and checks them by these names. Do not change their order: graphs saved by
# torch.export contain the values in this order.


class NoOptions(NamedTuple):
    """For a kernel without options. It has a dummy entry, because an operator cannot take an empty list of numbers."""

    unused: int = 0

    @classmethod
    def of(cls, cell: AnyCell) -> Self:
        """Return the options of a cell."""
        return cls()


class RRUOptions(NamedTuple):
    """Options of the RRU."""

    output_size: int
    expanded_size: int
    relu_layers: int
    normalize: int
    activate_outputs: int
    scaled_residual: int
    vector_rezero: int

    @classmethod
    def of(cls, cell: AnyCell) -> Self:
        """Return the options of a cell."""
        return cls(
            output_size=cell.output_size,
            expanded_size=cell.expanded_size,
            relu_layers=cell.relu_layers,
            normalize=int(cell.normalize),
            activate_outputs=int(cell.activate_outputs),
            scaled_residual=int(cell.residual != "unscaled"),
            vector_rezero=int(cell.rezero == "vector"),
        )


class GRUOptions(NamedTuple):
    """Options of the GRU."""

    reset_after: int

    @classmethod
    def of(cls, cell: AnyCell) -> Self:
        """Return the options of a cell."""
        return cls(int(cell.reset_after))


class MogrifierOptions(NamedTuple):
    """Options of the Mogrifier LSTM."""

    rounds: int
    rank: int

    @classmethod
    def of(cls, cell: AnyCell) -> Self:
        """Return the options of a cell."""
        return cls(cell.rounds, cell.rank)


Options = NoOptions | RRUOptions | GRUOptions | MogrifierOptions


@dataclass(frozen=True)
class Kernel:
    """What the back ends know about a cell. A field is None if the back end cannot run it.

    **Arguments:**

    - `options`: its options, a NamedTuple of numbers.
    - `native`, `fused`: its loops.
    - `matrices`: returns its weights as the matrices of a step, given the weights in order and the options.
    - `quantized`: whether the library has a scan with int8 weights.
    - `torch_function`: torch's own function that computes the same, or None, given the options.
    - `arrange`: returns the weights, given by name, in the order in which the loops read them; must be differentiable.
      None: the cell has them in that order.
    - `equivalent`: returns the options (JSON) of a cell that computes the same with the arranged weights as its own.
    - `linear_outputs`: whether the outputs come from a linear map, and so have autocast's dtype under autocast.
    """

    options: type[Options]
    native: NativeCell
    matrices: Callable[[list[Tensor], Any], Matrices]
    fused: FusedCell | None = None
    quantized: bool = False
    torch_function: Callable[[Any], Callable[..., Any] | None] = lambda options: None
    arrange: Callable[[AnyCell, dict[str, Tensor]], list[Tensor]] | None = None
    equivalent: Callable[[str], str] = lambda cell_options: cell_options
    linear_outputs: bool = False

    def weights(self, cell: AnyCell, named: dict[str, Tensor]) -> list[Tensor]:
        """Return the weights, given by name, in the order in which the loops read them."""
        return list(named.values()) if self.arrange is None else self.arrange(cell, named)


def _with_forget_bias(cell: AnyCell, named: dict[str, Tensor]) -> list[Tensor]:
    bias, n = named["bias"], cell.hidden_size
    if cell.forget_bias:
        constant = torch.zeros_like(bias)
        constant.narrow(0, n, n).fill_(cell.forget_bias)
        bias = bias + constant
    return [named["weight_x"], named["weight_h"], bias]


KERNELS: dict[str, Kernel] = {
    # W^x, W^h, b^j, each (W^k, b^k), W^c, b^c, W^o, b^o, S (unless the residual is unscaled), Z
    "rru": Kernel(
        RRUOptions,
        NativeRRU(wide=NativeWideRRU(), narrow=NativeNarrowRRU()),
        of_rru,
        FusedRRU(),
        quantized=True,
        linear_outputs=True,
    ),
    # W^x, W^h, and b with the forget bias added
    "lstm": Kernel(
        NoOptions,
        NativeLSTM(),
        of_lstm,
        FusedLSTM(),
        quantized=True,
        torch_function=lambda options: torch.lstm,
        arrange=_with_forget_bias,
        equivalent=lambda cell_options: json.dumps(json.loads(cell_options) | {"forget_bias": 0.0}),
    ),
    # W^x, W^h, b, and b^h with reset_after
    "gru": Kernel(
        GRUOptions,
        NativeGRU(),
        of_gru,
        FusedGRU(),
        quantized=True,
        torch_function=lambda options: torch.gru if options.reset_after else None,
    ),
    # W^x, W^h, b, and for each round A (unless the rank is 0), B, b
    "mogrifier": Kernel(MogrifierOptions, NativeMogrifier(), of_mogrifier, FusedMogrifier()),
}
"""By name; with the weights in order."""


def kernel_of(cell: AnyCell) -> Kernel | None:
    """Return the kernel that a cell's own class names, or None: a subclass may compute something else."""
    return KERNELS.get(cell.built_as.__dict__.get("kernel") or "")
