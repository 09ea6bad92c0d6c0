"""The GRU as in the paper's comparison: the reset gate acts before the matrix product, dropout on the candidate."""

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


class GRUCell(Cell):
    """One step of the GRU (Cho et al., 2014).

    ```python
    cell = rru.GRUCell(10, 20)
    output, state = cell(torch.randn(3, 10))  # (3, 20), (3, 20); the output is the state
    ```
    """

    kernel = "gru"

    weight_x: Tensor  # (3n, m), rows in torch's order: reset gate, update gate, candidate
    weight_h: Tensor  # (3n, n)
    bias: Tensor  # (3n,)
    bias_h: Tensor  # (n,), multiplied by the reset gate; only with `reset_after`

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        reset_after: Annotated[
            bool,
            Option("whether the reset gate acts after the candidate's product with the state, as in `torch.nn.GRU`"),
        ] = False,
        **common: Unpack[CellOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, reset_after=reset_after, **common)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        m, n = self.input_size, self.hidden_size
        shapes = {"weight_x": (3 * n, m), "weight_h": (3 * n, n), "bias": (3 * n,)}
        return shapes | ({"bias_h": (n,)} if self.reset_after else {})

    def project(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_x, self.bias)  # (..., 3n)

    def step(self, projected: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
        (h,) = state  # (B, n)
        n = self.hidden_size
        gates, candidate = projected[..., : 2 * n], projected[..., 2 * n :]  # (B, 2n), (B, n)
        weight_gates, weight_candidate = self.weight_h[: 2 * n], self.weight_h[2 * n :]
        r, u = torch.sigmoid(gates + F.linear(h, weight_gates)).chunk(2, dim=-1)  # (B, n) each
        if self.reset_after:
            candidate = torch.tanh(candidate + r * F.linear(h, weight_candidate, self.bias_h))
        else:
            candidate = torch.tanh(candidate + F.linear(r * h, weight_candidate))
        if keep is not None:
            candidate = candidate * keep
        h = u * h + (1 - u) * candidate
        return h, (h,)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        m, n = self.input_size, self.hidden_size
        glorot(self.weight_x[: 2 * n], self.weight_h[: 2 * n], fan_in=m + n, fan_out=2 * n)
        glorot(self.weight_x[2 * n :], self.weight_h[2 * n :], fan_in=m + n, fan_out=n)
        self.bias[: 2 * n] = 1
        self.bias[2 * n :] = 0
        if self.reset_after:
            self.bias_h.zero_()


@register_cell("gru")
class GRU(Layer):
    """The GRU over time, with recurrent dropout (Semeniuta et al., 2016).

    ```python
    layer = rru.GRU(10, 20, num_layers=2, dropout=0.3)
    output, state = layer(torch.randn(7, 3, 10))  # (7, 3, 20), (2, 3, 20)
    ```
    """

    cell_class = GRUCell

    @classmethod
    @torch.no_grad()
    def from_torch(cls, module: nn.GRU) -> Self:
        """Return a layer with `reset_after=True` that computes the same as `module`."""
        layer = cls(reset_after=True, **convert.arguments(module, nn.GRU))
        candidate = slice(2 * layer.hidden_size, None)
        for cell, (weight_ih, weight_hh, bias_ih, bias_hh) in zip(layer.cells, convert.weights(module), strict=True):
            convert.copy(weight_ih, cell.weight_x)
            convert.copy(weight_hh, cell.weight_h)
            if bias_hh.requires_grad and not bias_ih.requires_grad:
                raise ValueError(
                    "bias_ih must be learned where bias_hh is, to convert, got a frozen bias_ih: "
                    "rru's GRU has one bias for the sum of both gate biases and for the candidate's bias_ih"
                )
            convert.copy(bias_ih, cell.bias)
            cell.bias[: 2 * layer.hidden_size] += bias_hh[: 2 * layer.hidden_size]
            convert.copy(bias_hh[candidate], cell.bias_h)
        return layer.train(module.training)

    @torch.no_grad()
    def to_torch(self) -> nn.GRU:
        """Return a `torch.nn.GRU` that computes the same as this layer, which must have `reset_after=True`."""
        if not all(cell.reset_after for cell in self.cells):
            raise ValueError("reset_after must be True to convert: torch.nn.GRU resets after the product, got False")
        module = nn.GRU(**convert.arguments(self, type(self)))
        candidate = slice(2 * self.hidden_size, None)
        for cell, (weight_ih, weight_hh, bias_ih, bias_hh) in zip(self.cells, convert.weights(module), strict=True):
            convert.copy(cell.weight_x, weight_ih)
            convert.copy(cell.weight_h, weight_hh)
            convert.copy(cell.bias, bias_ih)
            bias_hh.zero_()
            bias_hh[candidate] = cell.bias_h
            bias_hh.requires_grad_(cell.bias_h.requires_grad)
        return module.train(self.training)
