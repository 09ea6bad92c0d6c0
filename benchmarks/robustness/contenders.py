"""The layers to compare, by name. Each is built with default arguments; only its initial values may differ."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import rru

LSTM, GRU = "nn.LSTM", "nn.GRU"
NAMES = (LSTM, GRU, "RRU paper", "RRU balanced")

BuildLayer = Callable[..., nn.Module]
"""Builds a layer from `input_size`, `hidden_size`, `num_layers` and `bidirectional`."""


class FastGRU(nn.GRU):
    """nn.GRU, run by the native scan of `rru.GRU`, which trains small ones in a third of the time on a CPU.

    Parameters, initial values, equations and gradients are those of nn.GRU.
    """

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self._scans = [rru.GRU.from_torch(self)]  # in a list, so that its parameters are not registered

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        (scan,), gates = self._scans, 2 * self.hidden_size
        weights = {}
        for index, (weight_ih, weight_hh, bias_ih, bias_hh) in enumerate(self.all_weights):
            names = (f"cells.{index}.{name}" for name in ("weight_x", "weight_h", "bias", "bias_h"))
            bias = torch.cat([bias_ih[:gates] + bias_hh[:gates], bias_ih[gates:]])
            weights |= zip(names, (weight_ih, weight_hh, bias, bias_hh[gates:]), strict=True)
        return torch.func.functional_call(scan, weights, (input, hx))


def builder(name: str) -> BuildLayer:
    """Return the function that builds a contender; `RRU X` is an RRU with the initial values `init="X"`.

    Raises a ValueError that says why if this version cannot build it.
    """
    if name == LSTM:
        return nn.LSTM
    if name == GRU:
        return FastGRU
    init = name.removeprefix("RRU ")
    if init == name:
        raise ValueError(f"a contender must be {LSTM}, {GRU} or 'RRU X' with the initial values X, got {name!r}")
    if "init" not in inspect.signature(rru.RRUCell).parameters:
        if init != "paper":
            raise ValueError(f"this version of rru.RRU has only the paper's initial values, got {name!r}")
        return rru.RRU

    def build(*sizes: int, **options: object) -> nn.Module:
        return rru.RRU(*sizes, init=init, **options)

    build(1, 1)  # refuses unknown initial values
    return build


def available() -> tuple[str, ...]:
    """Return the contenders that this version can build."""

    def can_build(name: str) -> bool:
        try:
            builder(name)
        except ValueError:
            return False
        return True

    return tuple(filter(can_build, NAMES))
