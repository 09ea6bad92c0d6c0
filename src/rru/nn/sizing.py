"""Count parameters, and find the hidden size that fits a parameter budget."""

import bisect
from collections.abc import Callable

import torch
from torch import nn

from rru.nn import checks


class BudgetError(ValueError):
    """A parameter budget is too small for the smallest model."""


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters of a model; shared parameters count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def hidden_size_for(budget: int, build: Callable[[int], nn.Module]) -> int:
    """Return the largest hidden size at which the whole model has at most `budget` parameters.

    ```python
    size = rru.hidden_size_for(1_000_000, lambda n: rru.RRU(88, n, output_size=64))
    ```

    **Arguments:**

    - `budget`: the maximum number of parameters.
    - `build`: builds the model for a hidden size. It is called with torch's `meta` device as the default, where tensors
      take no memory; it should not choose a device itself.

    **Returns:** the hidden size. Raises `BudgetError`, a ValueError, if even the smallest model has more parameters.
    """
    checks.positive("budget", budget)

    def parameters(hidden_size: int) -> int:
        with torch.device("meta"):
            model = build(hidden_size)
        if not isinstance(model, nn.Module):
            raise TypeError(f"build must return a torch module, got {type(model).__name__}")
        return count_parameters(model)

    smallest = _smallest(parameters, budget)
    if (needed := parameters(smallest)) > budget:
        raise BudgetError(
            f"budget must be at least {needed}, the size of the model at hidden size {smallest}; got {budget}"
        )
    fits, exceeds = smallest, 2 * smallest
    while parameters(exceeds) <= budget:
        fits, exceeds = exceeds, 2 * exceeds
        if fits > budget:
            raise ValueError(
                f"build must use the hidden size it is given: at {fits} the model still fits a budget of {budget}"
            )
    return bisect.bisect_right(range(exceeds), budget, lo=fits + 1, key=parameters) - 1


def _smallest(parameters: Callable[[int], int], budget: int) -> int:
    """Return the smallest hidden size that can be built. An RRU with a small expansion may have no units at size 1."""

    def refusal(hidden_size: int) -> ValueError | None:
        try:
            parameters(hidden_size)
        except ValueError as error:
            return error
        return None

    refused, built = 0, 1
    while error := refusal(built):
        refused, built = built, 2 * built
        if refused > budget:
            raise error
    return bisect.bisect_left(range(built), True, lo=refused + 1, key=lambda size: refusal(size) is None)
