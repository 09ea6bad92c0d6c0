"""The LSTM as in the paper's comparison: a constant forget bias, and recurrent dropout on the candidate."""

from typing import Annotated, Self, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rru.nn import convert
from rru.nn.cell import Cell, CellOptions, glorot
from rru.nn.layer import Layer
from rru.nn.options import Option
from rru.nn.registry import register_cell
from rru.scan.reference import State


class LSTMCell(Cell):
    """One step of the LSTM (Hochreiter and Schmidhuber, 1997; forget gate: Gers et al., 2000).

    ```python
    cell = rru.LSTMCell(10, 20)
    output, (h, c) = cell(torch.randn(3, 10))  # (3, 20), ((3, 20), (3, 20)); output is h
    ```
    """

    state_names = ("h", "c")
    kernel = "lstm"

    weight_x: Tensor  # (4n, m), rows in torch's order: input gate, forget gate, candidate, output gate
    weight_h: Tensor  # (4n, n)
    bias: Tensor  # (4n,)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        forget_bias: Annotated[float, Option("a constant added to the forget gate", search=(-3.0, 3.0))] = 1.0,
        **common: Unpack[CellOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, forget_bias=forget_bias, **common)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        m, n = self.input_size, self.hidden_size
        return {"weight_x": (4 * n, m), "weight_h": (4 * n, n), "bias": (4 * n,)}

    def project(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_x, self.bias)  # (..., 4n)

    def step(self, projected: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
        h, c = state  # (B, n) each
        i, f, j, o = (projected + F.linear(h, self.weight_h)).chunk(4, dim=-1)  # (B, n) each
        candidate = torch.tanh(j) if keep is None else torch.tanh(j) * keep
        c = torch.sigmoid(f + self.forget_bias) * c + torch.sigmoid(i) * candidate
        h = torch.tanh(c) * torch.sigmoid(o)
        return h, (h, c)

    def reset_parameters(self) -> None:
        m, n = self.input_size, self.hidden_size
        glorot(self.weight_x, self.weight_h, fan_in=m + n, fan_out=4 * n)
        nn.init.zeros_(self.bias)


@register_cell("lstm")
class LSTM(Layer):
    """The LSTM over time, with recurrent dropout (Semeniuta et al., 2016).

    ```python
    layer = rru.LSTM(10, 20, num_layers=2, dropout=0.3)
    output, (h, c) = layer(torch.randn(7, 3, 10))  # (7, 3, 20), ((2, 3, 20), (2, 3, 20))
    ```
    """

    cell_class = LSTMCell

    @classmethod
    @torch.no_grad()
    def from_torch(cls, module: nn.LSTM) -> Self:
        """Return a layer that computes the same as `module`. It has `forget_bias=0`; any offset is in `bias`."""
        layer = cls(forget_bias=0.0, **convert.arguments(module, nn.LSTM))
        for cell, (weight_ih, weight_hh, bias_ih, bias_hh) in zip(layer.cells, convert.weights(module), strict=True):
            convert.copy(weight_ih, cell.weight_x)
            convert.copy(weight_hh, cell.weight_h)
            convert.copy(bias_ih, cell.bias)
            cell.bias += bias_hh
            cell.bias.requires_grad_(bias_ih.requires_grad or bias_hh.requires_grad)
        return layer.train(module.training)

    @torch.no_grad()
    def to_torch(self) -> nn.LSTM:
        """Return a `torch.nn.LSTM` that computes the same as this layer."""
        module = nn.LSTM(**convert.arguments(self, type(self)))
        forget = slice(self.hidden_size, 2 * self.hidden_size)
        for cell, (weight_ih, weight_hh, bias_ih, bias_hh) in zip(self.cells, convert.weights(module), strict=True):
            convert.copy(cell.weight_x, weight_ih)
            convert.copy(cell.weight_h, weight_hh)
            convert.copy(cell.bias, bias_ih)
            bias_ih[forget] += cell.forget_bias
            bias_hh.zero_().requires_grad_(cell.bias.requires_grad)
        return module.train(self.training)
