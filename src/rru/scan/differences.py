"""How far results of one back end are from those of another."""

from torch import Tensor

MIN_NORM = 1e-3
"""The norm that smaller tensors are taken to have: of zeros, no share says anything."""


def difference(actual: Tensor, expected: Tensor) -> float:
    """Return the norm of a difference, as a share of that of the expected tensor; NaN if the values have one."""
    exact = expected.detach().cpu().double()  # some devices have no float64
    distance: float = (actual.detach().cpu().double() - exact).norm().item()
    return distance / max(exact.norm().item(), MIN_NORM)
