"""Define torch operators whose functions get their many arguments by name."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Named = dict[str, Any]
"""The arguments of an operator by name, without trailing ones that have their default values."""


def custom_op(name: str, signature: str, run: Callable[[Named], Any], device_types: str | None = None) -> Any:
    """Define the operator `rru::<name>`, which returns a list of tensors and runs a function of its named arguments."""
    schema = f"({signature}) -> Tensor[]"
    return torch.library.custom_op(
        f"rru::{name}", by_name(signature, run), mutates_args=(), device_types=device_types, schema=schema
    )


def by_name(signature: str, function: Callable[[Named], Any]) -> Callable[..., Any]:
    """Return a function of an operator's arguments that calls `function` with a dict of them."""
    names = [part.split("=")[0].split()[-1] for part in signature.split(", ") if part != "*"]
    return lambda *values, **keywords: function(dict(zip(names, values, strict=False)) | keywords)


def passed_on(operator: Any, inputs: Sequence[Any]) -> int:
    """Return how many of the arguments that `setup_context` gets are those of autograd, which wants a gradient each.

    torch leaves out the last ones that have their default values.
    """
    schema, count = operator._opoverload._schema.arguments, len(inputs)
    while count and schema[count - 1].has_default_value():
        value = inputs[count - 1]
        if isinstance(value, Tensor) or value != schema[count - 1].default_value:
            break
        count -= 1
    return count


def empty_like(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return contiguous uninitialized tensors of the same shapes and dtypes."""
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]
