"""The GRU as the paper compares it: reset before the candidate's product, recurrent dropout on the candidate."""

from typing import Self, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rru.nn import checks, convert
from rru.nn.cell import Cell, glorot
from rru.nn.layer import Layer, LayerOptions
from rru.nn.registry import register_cell
from rru.scan.reference import State


class GRUCell(Cell):
    """One step of the GRU (Cho et al., 2014).

    ```python
    cell = rru.GRUCell(10, 20)
    output, state = cell(torch.randn(3, 10))  # (3, 20), (3, 20); they are the same
    ```

    **Arguments:** as for `rru.GRU`.
    """

    kernel = "gru"

    weight_x: Tensor  # (3n, m), rows in torch's order: reset gate, update gate, candidate
    weight_h: Tensor  # (3n, n)
    bias: Tensor  # (3n,)
    bias_h: Tensor  # (n,), inside the reset product; only with `reset_after`

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        reset_after: bool = False,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, dropout=dropout)
        self.reset_after = checks.flag("reset_after", reset_after)
        m, n = self.input_size, self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_x": (3 * n, m), "weight_h": (3 * n, n), "bias": (3 * n,)}
        self.allocate(shapes | ({"bias_h": (n,)} if reset_after else {}), device, dtype)

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

    **Arguments:** `input_size`, `hidden_size`, `num_layers`, `batch_first`, `bidirectional`, `backend`, `device` and
    `dtype` as for `rru.RRU`, and

    - `reset_after`: apply the reset gate after the candidate's product with the state, as `torch.nn.GRU` does, instead
      of to the state before it.
    - `dropout`: the share of the candidate's features that is dropped, anew at every step, while training.
    """

    cell_class = GRUCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        reset_after: bool = False,
        **common: Unpack[LayerOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, reset_after=reset_after, **common)

    @classmethod
    @torch.no_grad()
    def from_torch(cls, module: nn.GRU) -> Self:
        """A layer, with `reset_after`, that computes what `module` computes."""
        layer = cls(reset_after=True, **convert.arguments(module, nn.GRU))
        candidate = slice(2 * layer.hidden_size, None)
        for cell, (weight_ih, weight_hh, bias_ih, bias_hh) in zip(layer.cells, convert.weights(module), strict=True):
            convert.copy(weight_ih, cell.weight_x)
            convert.copy(weight_hh, cell.weight_h)
            convert.copy(bias_ih, cell.bias)
            cell.bias[: 2 * layer.hidden_size] += bias_hh[: 2 * layer.hidden_size]
            convert.copy(bias_hh[candidate], cell.bias_h)
        return layer.train(module.training)

    @torch.no_grad()
    def to_torch(self) -> nn.GRU:
        """A `torch.nn.GRU` that computes what this layer computes; needs `reset_after`."""
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
