"""Check the values of `lengths`. Layers call it in eager mode; in a graph the operator does, at run time."""

from torch import Tensor


def check_lengths(lengths: Tensor | None, steps: int) -> None:
    """Raise ValueError unless every length is between 1 and `steps`."""
    if lengths is None or lengths.numel() == 0:
        return
    low, high = (int(end) for end in lengths.aminmax())
    if low < 1 or high > steps:
        raise ValueError(f"lengths must be from 1 to {steps}, the steps of the input; got {low if low < 1 else high}")
