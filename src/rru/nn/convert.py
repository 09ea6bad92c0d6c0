"""Helpers for converting layers from and to torch.nn."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from rru.nn.layer import Layer


def arguments(module: nn.RNNBase | Layer, expected: type) -> dict[str, Any]:
    """Return the constructor arguments shared by torch's layers and ours; raise unless `module` is an `expected`."""
    if not issubclass(type(module), expected):
        raise TypeError(f"module must be a {expected.__module__}.{expected.__name__}, got {type(module).__name__}")
    rates = [cell.dropout for cell in module.cells] if isinstance(module, Layer) else [module.dropout]
    if max(rates) > 0:
        raise ValueError(
            f"dropout must be 0 to convert, got {max(rates)}: torch drops outputs between layers, rru the "
            "candidate inside each step, so they are not equivalent; set module.dropout = 0 first"
        )
    if getattr(module, "proj_size", 0):
        raise ValueError(f"proj_size must be 0 to convert, got {module.proj_size}: rru's LSTM has no projection")
    names = ("input_size", "hidden_size", "num_layers", "batch_first", "bidirectional")
    weight = next(module.parameters(), None)
    if weight is None:
        raise TypeError(f"a quantized {expected.__name__} cannot be converted: convert the float layer")
    return {name: getattr(module, name) for name in names} | {"device": weight.device, "dtype": weight.dtype}


def copy(source: Tensor, target: Tensor) -> None:
    """Copy the values and `requires_grad`."""
    target.copy_(source)
    target.requires_grad_(source.requires_grad)


def weights(module: nn.RNNBase) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield weight_ih, weight_hh, bias_ih, bias_hh of each layer and direction, in the order of our `cells`."""
    for layer in range(module.num_layers):
        for suffix in ("", "_reverse")[: 1 + module.bidirectional]:
            weight_ih, weight_hh = (getattr(module, f"weight_{kind}_l{layer}{suffix}") for kind in ("ih", "hh"))
            if module.bias:
                bias_ih, bias_hh = (getattr(module, f"bias_{kind}_l{layer}{suffix}") for kind in ("ih", "hh"))
            else:
                bias_ih = bias_hh = torch.zeros_like(weight_ih[:, 0], requires_grad=False)  # ours is zero and frozen
            yield weight_ih, weight_hh, bias_ih, bias_hh
