"""How far results of one back end are from those of another."""

import math

from torch import Tensor

MIN_NORM = 1e-3
"""The norm that smaller tensors are taken to have: of zeros, no share says anything."""


def difference(actual: Tensor, expected: Tensor) -> float:
    """Return the norm of a difference, as a share of that of the expected tensor.

    It is infinite if the shapes differ, and NaN if there is one among the values.
    """
    if actual.shape != expected.shape:
        return math.inf
    exact = expected.detach().cpu().double()  # some devices have no float64
    return float((actual.detach().cpu().double() - exact).norm()) / max(float(exact.norm()), MIN_NORM)
