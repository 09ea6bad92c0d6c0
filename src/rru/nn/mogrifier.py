"""The Mogrifier LSTM as in the paper's comparison: low-rank gating, a capped input gate, dropout on the candidate."""

from typing import Annotated, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rru.nn.cell import Cell, CellOptions, glorot
from rru.nn.layer import Layer
from rru.nn.options import MAX_PARTS, Option
from rru.nn.registry import register_cell
from rru.scan.reference import State


class MogrifierLSTMCell(Cell):
    """One step of the Mogrifier LSTM (Melis et al., 2020): input and state gate each other before an LSTM step.

    ```python
    cell = rru.MogrifierLSTMCell(10, 20, rounds=5, rank=8)
    output, (h, c) = cell(torch.randn(3, 10))  # (3, 20), ((3, 20), (3, 20)); output is h
    ```
    """

    state_names = ("h", "c")
    kernel = "mogrifier"

    weight_x: Tensor  # (4n, m), rows: input gate, forget gate, candidate, output gate
    weight_h: Tensor  # (4n, n)
    bias: Tensor  # (4n,)
    # Each round i maps a source of size s to a target of size t: n -> m if i is even, m -> n if i is odd. It has
    # weight_a{i} (rank, s) and weight_b{i} (t, rank), or weight_m{i} (t, s) if the rank is 0; and bias_m{i} (t,).

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        rounds: Annotated[
            int,
            Option(
                "how often input and state gate each other; even rounds gate the input",
                at_least=0,
                at_most=MAX_PARTS,
                search=(5, 6),
            ),
        ] = 5,
        rank: Annotated[
            int, Option("rank of each gating's matrix, 0 for a full matrix", at_least=0, search=(40, 90))
        ] = 0,
        **common: Unpack[CellOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, rounds=rounds, rank=rank, **common)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        m, n, rank = self.input_size, self.hidden_size, self.rank
        shapes: dict[str, tuple[int, ...]] = {"weight_x": (4 * n, m), "weight_h": (4 * n, n), "bias": (4 * n,)}
        for i in range(self.rounds):
            source, target = (n, m) if i % 2 == 0 else (m, n)
            if rank == 0:
                shapes[f"weight_m{i}"] = (target, source)
            else:
                shapes |= {f"weight_a{i}": (rank, source), f"weight_b{i}": (target, rank)}
            shapes[f"bias_m{i}"] = (target,)
        return shapes

    def project(self, x: Tensor) -> Tensor:
        return x  # the state gates the input first, so nothing can be computed without it

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
        """Return the factor of a round: (B, m) from h (B, n) in even rounds, (B, n) from x (B, m) in odd rounds."""
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
    """

    cell_class = MogrifierLSTMCell
