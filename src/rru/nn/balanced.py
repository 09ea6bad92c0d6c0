"""Initial values of an RRU that suit plain optimizers, small and large inputs, and short and long sequences.

They follow from the sizes alone. If the input has mean 0 and variance 1, so have c, o and, after a while, h:

- Eq. 1: the state gets the share `STATE_SHARE` of the variance. Normalize then keeps the input visible, even when the
  state grows during training.
- Eq. 4 and 6: the features of d are positive, so rows of W^c and W^o without a mean keep a constant out of c and o.
- Eq. 5: Z = sqrt(1 - sigmoid(10 S)^2) gives every feature of h the variance of c, whatever it forgets. Wide layers
  start with less: a step of Adam moves all g weights of a row of W^c alike, and the features of d are positive, so c
  gets a constant that grows with g. Z keeps it out of the state until training has found what to add.
- Eq. 5: most features forget as in the paper; the last quarter remembers 1 to `LONGEST_MEMORY` steps.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rru.nn.rru import RRUCell

STATE_SHARE = 0.02
LONGEST_MEMORY = 1000
WIDE = 256
"""The number of units g from which on Z is smaller."""
RELU_VARIANCE = 0.5 - 0.5 / math.pi
"""The variance of ReLU(x) for a standard normal x."""


@torch.no_grad()
def reset(cell: "RRUCell") -> None:
    """Fill the weights of a cell, but for its biases."""
    m, n, g = cell.input_size, cell.hidden_size, cell.expanded_size
    _uniform(cell.weight_x, variance=(1 - STATE_SHARE) / m)
    _uniform(cell.weight_h, variance=STATE_SHARE / n)
    for name, weight in cell.weights().items():
        if name.startswith(("weight_k", "weight_c", "weight_o")):
            _uniform(weight, variance=1 / (RELU_VARIANCE * g))
            if g > 1:
                weight -= weight.mean(dim=1, keepdim=True)
    if cell.residual == "unscaled":
        cell.Z.zero_()  # nothing is forgotten: with any other Z, h would grow with the number of steps
        return
    decay = _decay(cell.S) if cell.residual == "learned" else torch.full_like(cell.S, float(cell.residual))
    cell.S.copy_(decay.logit() / 10)
    variance = 1 - decay**2  # (n,)
    cell.Z.copy_(variance.sqrt() if cell.rezero == "vector" else variance.mean().sqrt())
    cell.Z.mul_(min(1, (WIDE / g) ** 2))


def _decay(like: Tensor) -> Tensor:
    """Return sigmoid(10 S), (n,)."""
    decay = torch.empty_like(like).uniform_(0.01, 0.99)
    decay[0] = 0.01  # forget at once the feature of the initial state that is not zero
    slow = len(decay) // 4
    places = (torch.arange(slow, device=like.device) + torch.rand(slow, device=like.device)) / max(slow, 1)
    decay[len(decay) - slow :] = torch.exp(-(LONGEST_MEMORY**-places)).to(decay)
    return decay


def _uniform(weight: Tensor, variance: float) -> None:
    bound = math.sqrt(3 * variance)
    weight.uniform_(-bound, bound)
