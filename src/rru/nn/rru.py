"""The Residual Recurrent Unit: Eq. 1-6 of "Gates Are Not What You Need in RNNs"."""

import math
from typing import Annotated, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from rru.nn import balanced
from rru.nn.cell import Cell, CellOptions, glorot
from rru.nn.layer import Layer
from rru.nn.options import MAX_PARTS, Option
from rru.nn.registry import register_cell
from rru.scan.reference import State


class RRUCell(Cell):
    """One step of the Residual Recurrent Unit.

    ```python
    cell = rru.RRUCell(10, 20, output_size=5)
    output, state = cell(torch.randn(3, 10))  # (3, 5), (3, 20)
    ```

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
    S: Tensor  # (n,), stored divided by 10; absent with residual="unscaled"
    Z: Tensor  # (n,), or (1,) with rezero="scalar"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        output_size: Annotated[
            int | None, Option("p, features of an output step; None for hidden_size", at_least=1)
        ] = None,
        expansion: Annotated[
            float,
            Option(
                "q; a step's middle layer has g = round(q (m + n)) units", above=0, at_most=10_000, search=(0.1, 8.0)
            ),
        ] = 2.0,
        relu_layers: Annotated[
            int, Option("linear maps with ReLU in a step, Eq. 1 being the first", at_least=1, at_most=MAX_PARTS)
        ] = 1,
        normalize: Annotated[bool, Option("whether Eq. 1 applies Normalize")] = True,
        rezero: Annotated[
            str,
            Option("Z in Eq. 5: a 'vector', one factor for each feature, or a 'scalar'", choices=("vector", "scalar")),
        ] = "vector",
        residual: Annotated[
            str | float,
            Option(
                "sigmoid(S) in Eq. 5: 'learned' from random initial values, learned from this initial value, or "
                "'unscaled', that is, 1",
                above=0,
                below=1,
                choices=("learned", "unscaled"),
            ),
        ] = "learned",
        activate_outputs: Annotated[bool, Option("ReLU over c and o (Eq. 4 and 6)")] = False,
        init: Annotated[
            str,
            Option(
                "initial values: 'balanced', for plain optimizers and inputs of any scale, or those of the 'paper'",
                choices=("balanced", "paper"),
                computes=False,
            ),
        ] = "balanced",
        **common: Unpack[CellOptions],
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            output_size=hidden_size if output_size is None else output_size,
            expansion=expansion,
            relu_layers=relu_layers,
            normalize=normalize,
            rezero=rezero,
            residual=residual,
            activate_outputs=activate_outputs,
            init=init,
            **common,
        )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        m, n, p, g = self.input_size, self.hidden_size, self.output_size, self.expanded_size
        if g < 1:
            raise ValueError(
                f"expansion must give at least one unit: round(expansion * (input_size + hidden_size)) is {g} for "
                f"expansion={self.expansion}, input_size={m}, hidden_size={n}"
            )
        shapes: dict[str, tuple[int, ...]] = {"weight_x": (g, m), "weight_h": (g, n), "bias_j": (g,)}
        for k in range(1, self.relu_layers):
            shapes |= {f"weight_k{k}": (g, g), f"bias_k{k}": (g,)}
        shapes |= {"weight_c": (n, g), "bias_c": (n,), "weight_o": (p, g), "bias_o": (p,)}
        if self.residual != "unscaled":
            shapes["S"] = (n,)
        return shapes | {"Z": (n,) if self.rezero == "vector" else (1,)}

    @property
    def expanded_size(self) -> int:
        """g, the number of units in the middle layer of a step."""
        size: int = round(self.expansion * (self.input_size + self.hidden_size))
        return size

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
        shortcut = h if self.residual == "unscaled" else torch.sigmoid(10 * self.S) * h
        return d, (shortcut + self.Z * c,)  # Eq. 5

    def readout(self, features: Tensor) -> Tensor:
        return self._activate(F.linear(features, self.weight_o, self.bias_o))  # (..., p), Eq. 6

    def _activate(self, x: Tensor) -> Tensor:
        return F.relu(x) if self.activate_outputs else x

    def initial_state(self, batch: int) -> State:
        (h,) = super().initial_state(batch)
        # With a zero state and zero input, Normalize would blow up.
        h.select(1, 0).fill_(0.25 * math.sqrt(self.hidden_size))
        return (h,)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for name, weight in self.weights().items():
            if name.startswith("bias"):
                weight.zero_()
        if self.init == "balanced":
            balanced.reset(self)
            return
        m, n, p, g = self.input_size, self.hidden_size, self.output_size, self.expanded_size
        glorot(self.weight_x, self.weight_h, fan_in=m + n, fan_out=g)
        glorot(self.weight_c, self.weight_o, fan_in=g, fan_out=n + p)
        for k in range(1, self.relu_layers):
            glorot(getattr(self, f"weight_k{k}"), fan_in=g, fan_out=g)
        self.Z.zero_()
        if self.residual == "learned":
            self.S.uniform_(0.01, 0.99).logit_().div_(10)
        elif isinstance(self.residual, float):
            self.S.fill_(math.log(self.residual / (1 - self.residual)) / 10)


@register_cell("rru")
class RRU(Layer):
    """The Residual Recurrent Unit over time: a gateless recurrent layer with the call signature of `torch.nn.LSTM`.

    ```python
    layer = rru.RRU(10, 20, num_layers=2, dropout=0.5)
    output, state = layer(torch.randn(7, 3, 10))  # (7, 3, 20), (2, 3, 20)
    ```
    """

    cell_class = RRUCell
