"""The Mogrifier LSTM as the paper compares it: low-rank gatings, a capped input gate, dropout on the candidate."""

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rru.nn import checks
from rru.nn.cell import Cell, glorot
from rru.nn.layer import Layer, LayerOptions
from rru.nn.registry import register_cell
from rru.scan.reference import State


class MogrifierLSTMCell(Cell):
    """One step of the Mogrifier LSTM (Melis et al., 2020): input and state gate each other before an LSTM step.

    ```python
    cell = rru.MogrifierLSTMCell(10, 20, rounds=5, rank=8)
    output, (h, c) = cell(torch.randn(3, 10))  # (3, 20), ((3, 20), (3, 20)); output is h
    ```

    **Arguments:** as for `rru.MogrifierLSTM`.
    """

    state_names = ("h", "c")
    kernel = "mogrifier"

    weight_x: Tensor  # (4n, m), rows: input gate, forget gate, candidate, output gate
    weight_h: Tensor  # (4n, n)
    bias: Tensor  # (4n,)
    # and for each round i, with s -> t being n -> m in even rounds, m -> n in odd ones:
    # weight_a{i} (rank, s), weight_b{i} (t, rank), or weight_m{i} (t, s) where the rank is 0; bias_m{i} (t,)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        rounds: int = 5,
        rank: int = 0,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, dropout=dropout)
        self.rounds = checks.non_negative("rounds", rounds)
        self.rank = checks.non_negative("rank", rank)
        m, n = self.input_size, self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_x": (4 * n, m), "weight_h": (4 * n, n), "bias": (4 * n,)}
        for i in range(rounds):
            source, target = (n, m) if i % 2 == 0 else (m, n)
            if rank == 0:
                shapes[f"weight_m{i}"] = (target, source)
            else:
                shapes |= {f"weight_a{i}": (rank, source), f"weight_b{i}": (target, rank)}
            shapes[f"bias_m{i}"] = (target,)
        self.allocate(shapes, device, dtype)

    def project(self, x: Tensor) -> Tensor:
        return x  # the state gates the input first, so there is nothing to do without it

    def step(self, projected: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
        x, (h, c) = projected, state  # (B, m), (B, n) each
        for index in range(self.rounds):
            if index % 2 == 0:
                x = x * self._gate(index, h)
            else:
                h = h * self._gate(index, x)
        gates = F.linear(x, self.weight_x, self.bias) + F.linear(h, self.weight_h)  # (B, 4n)
        i, f, j, o = gates.chunk(4, dim=-1)  # (B, n) each
        i, f, o = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o)
        candidate = torch.tanh(j) if keep is None else torch.tanh(j) * keep
        c = f * c + torch.minimum(1 - f, i) * candidate
        h = torch.tanh(c) * o
        return h, (h, c)

    def _gate(self, index: int, source: Tensor) -> Tensor:
        """What a round multiplies by: from (B, n) to (B, m) in even rounds, from (B, m) to (B, n) in odd ones."""
        bias = getattr(self, f"bias_m{index}")
        if self.rank == 0:
            return 2 * torch.sigmoid(F.linear(source, getattr(self, f"weight_m{index}"), bias))
        narrow = F.linear(source, getattr(self, f"weight_a{index}"))  # (B, rank)
        return 2 * torch.sigmoid(F.linear(narrow, getattr(self, f"weight_b{index}"), bias))

    def reset_parameters(self) -> None:
        m, n = self.input_size, self.hidden_size
        glorot(self.weight_x, self.weight_h, fan_in=m + n, fan_out=4 * n)
        for name, weight in self.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(weight)
            elif name not in ("weight_x", "weight_h"):
                nn.init.xavier_uniform_(weight)


@register_cell("mogrifier")
class MogrifierLSTM(Layer):
    """The Mogrifier LSTM over time, with recurrent dropout (Semeniuta et al., 2016).

    ```python
    layer = rru.MogrifierLSTM(10, 20, rounds=5, rank=8)
    output, (h, c) = layer(torch.randn(7, 3, 10))  # (7, 3, 20), ((1, 3, 20), (1, 3, 20))
    ```

    **Arguments:** `input_size`, `hidden_size`, `num_layers`, `batch_first`, `bidirectional`, `backend`, `device` and
    `dtype` as for `rru.RRU`, and

    - `rounds`: how often input and state gate each other before a step; even rounds, from 0, gate the input.
    - `rank`: the rank of each gating's matrix, stored as a product of two; 0 for one full matrix.
    - `dropout`: the share of the candidate's features that is dropped, anew at every step, while training.
    """

    cell_class = MogrifierLSTMCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        rounds: int = 5,
        rank: int = 0,
        **common: Unpack[LayerOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, rounds=rounds, rank=rank, **common)
