"""The Residual Recurrent Unit: Eq. 1-6 of "Gates Are Not What You Need in RNNs"."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rru.nn import checks
from rru.nn.cell import Cell, glorot
from rru.nn.layer import Layer
from rru.nn.registry import register_cell
from rru.scan.reference import State


class RRUCell(Cell):
    """One step of the Residual Recurrent Unit.

    ```python
    cell = rru.RRUCell(10, 20, output_size=5)
    output, state = cell(torch.randn(3, 10))  # (3, 5), (3, 20)
    ```

    **Arguments:** as for `rru.RRU`.

    **Shapes:** m = `input_size`, n = `hidden_size`, p = `output_size`, g = `expanded_size` = round(q (m + n)).
    """

    kernel = "rru"

    weight_x: Tensor  # W^x (g, m)
    weight_h: Tensor  # W^h (g, n)
    bias_j: Tensor  # b^j (g,)
    weight_c: Tensor  # W^c (n, g)
    bias_c: Tensor  # b^c (n,)
    weight_o: Tensor  # W^o (p, g)
    bias_o: Tensor  # b^o (p,)
    S: Tensor  # (n,), stored divided by 10; missing where the residual is unscaled
    Z: Tensor  # (n,), or (1,) where it is a scalar

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int | None = None,
        *,
        expansion: float = 2.0,
        relu_layers: int = 1,
        dropout: float = 0.0,
        normalize: bool = True,
        rezero: str = "vector",
        residual: str | float = "learned",
        activate_outputs: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, output_size, dropout=dropout)
        self.expansion = checks.real("expansion", expansion)
        self.relu_layers = checks.positive("relu_layers", relu_layers)
        self.normalize = checks.flag("normalize", normalize)
        self.rezero = checks.choice("rezero", rezero, ("vector", "scalar"))
        self.residual = _check_residual(residual)
        self.activate_outputs = checks.flag("activate_outputs", activate_outputs)
        m, n, p = self.input_size, self.hidden_size, self.output_size
        g = self.expanded_size = round(expansion * (m + n))
        if g < 1:
            raise ValueError(
                f"expansion must give at least one unit: round(expansion * (input_size + hidden_size)) is {g} for "
                f"expansion={expansion}, input_size={m}, hidden_size={n}"
            )
        shapes: dict[str, tuple[int, ...]] = {"weight_x": (g, m), "weight_h": (g, n), "bias_j": (g,)}
        for k in range(1, relu_layers):
            shapes |= {f"weight_k{k}": (g, g), f"bias_k{k}": (g,)}
        shapes |= {"weight_c": (n, g), "bias_c": (n,), "weight_o": (p, g), "bias_o": (p,)}
        if residual != "unscaled":
            shapes["S"] = (n,)
        shapes["Z"] = (n,) if rezero == "vector" else (1,)
        self.allocate(shapes, device, dtype)

    @property
    def mask_size(self) -> int:
        return self.expanded_size

    def project(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_x, self.bias_j)  # (..., g), the part of Eq. 1 that needs no state

    def step(self, projected: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
        (h,) = state  # (B, n)
        j = projected + F.linear(h, self.weight_h)  # (B, g)
        if self.normalize:
            j = F.rms_norm(j, (self.expanded_size,), eps=1e-6)
        j = F.relu(j)  # Eq. 1
        for k in range(1, self.relu_layers):
            j = F.relu(F.linear(j, getattr(self, f"weight_k{k}"), getattr(self, f"bias_k{k}")))  # Eq. 2
        d = j if keep is None else j * keep  # Eq. 3
        c = self._activate(F.linear(d, self.weight_c, self.bias_c))  # (B, n), Eq. 4
        kept = h if self.residual == "unscaled" else torch.sigmoid(10 * self.S) * h
        return d, (kept + self.Z * c,)  # Eq. 5

    def readout(self, features: Tensor) -> Tensor:
        return self._activate(F.linear(features, self.weight_o, self.bias_o))  # (..., p), Eq. 6

    def _activate(self, x: Tensor) -> Tensor:
        return F.relu(x) if self.activate_outputs else x

    def initial_state(self, batch: int) -> State:
        (h,) = super().initial_state(batch)
        h[:, 0] = 0.25 * math.sqrt(self.hidden_size)  # all zeros would blow up in Normalize where inputs are zero too
        return (h,)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        m, n, p, g = self.input_size, self.hidden_size, self.output_size, self.expanded_size
        glorot(self.weight_x, self.weight_h, fan_in=m + n, fan_out=g)
        glorot(self.weight_c, self.weight_o, fan_in=g, fan_out=n + p)
        for k in range(1, self.relu_layers):
            glorot(getattr(self, f"weight_k{k}"), fan_in=g, fan_out=g)
            getattr(self, f"bias_k{k}").zero_()
        for tensor in (self.bias_j, self.bias_c, self.bias_o, self.Z):
            tensor.zero_()
        if self.residual == "learned":
            self.S.uniform_(0.01, 0.99).logit_().div_(10)
        elif isinstance(self.residual, float):
            self.S.fill_(math.log(self.residual / (1 - self.residual)) / 10)


@register_cell("rru")
class RRU(Layer):
    """The Residual Recurrent Unit over time: a recurrent layer without a single gate, called as `torch.nn.LSTM` is.

    ```python
    layer = rru.RRU(10, 20, num_layers=2, dropout=0.5)
    output, state = layer(torch.randn(7, 3, 10))  # (7, 3, 20), (2, 3, 20)
    ```

    **Arguments:**

    - `input_size`: m, features of an input step.
    - `hidden_size`: n, features of the state.
    - `output_size`: p, features of an output step. Default: `hidden_size`.
    - `num_layers`: layers stacked on one another; each reads the outputs of the one below.
    - `expansion`: q; a step's middle layer has g = round(q (m + n)) units.
    - `relu_layers`: how often a step goes through a linear map and ReLU; Eq. 1 is the first, Eq. 2 all others.
    - `dropout`: the share of the g units that is dropped, anew at every step, while training (Eq. 3).
    - `batch_first`: inputs and outputs are (B, T, ...) instead of (T, B, ...).
    - `bidirectional`: a second direction reads from each sequence's end to its start; outputs are put side by side.
    - `normalize`: whether Eq. 1 normalises.
    - `rezero`: Z of Eq. 5 is a `"vector"`, one factor for each feature, or a single `"scalar"`.
    - `residual`: sigmoid(S) of Eq. 5 is `"learned"` from random initial values in (0.01, 0.99), is learned from a
      given number in (0, 1) for all features, or is `"unscaled"`, that is, 1.
    - `activate_outputs`: ReLU over c_t and o_t (Eq. 4 and 6).
    - `backend`: what runs the recurrence: `"auto"`, `"reference"` or `"native"`.
    - `device`, `dtype`: of the parameters, as everywhere in torch.
    """

    cell_class = RRUCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int | None = None,
        num_layers: int = 1,
        *,
        expansion: float = 2.0,
        relu_layers: int = 1,
        dropout: float = 0.0,
        batch_first: bool = False,
        bidirectional: bool = False,
        normalize: bool = True,
        rezero: str = "vector",
        residual: str | float = "learned",
        activate_outputs: bool = False,
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            dropout=dropout,
            batch_first=batch_first,
            bidirectional=bidirectional,
            backend=backend,
            device=device,
            dtype=dtype,
            output_size=output_size,
            expansion=expansion,
            relu_layers=relu_layers,
            normalize=normalize,
            rezero=rezero,
            residual=residual,
            activate_outputs=activate_outputs,
        )


def _check_residual(residual: Any) -> str | float:
    if isinstance(residual, int | float) and 0 < residual < 1:
        return float(residual)
    return checks.choice("residual", residual, ("learned", "unscaled"), otherwise=" or a number between 0 and 1")
