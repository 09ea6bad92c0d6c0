"""The interface of `rru.nn.Cell` that the back ends use."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor

from rru.scan.reference import Steps

if TYPE_CHECKING:
    from rru.scan.native.stepper import NativeStep


class AnyCell(Steps, Protocol):
    """A cell: its sizes, options and weights."""

    name: ClassVar[str | None]
    kernel: ClassVar[str | None]
    quantized: ClassVar[bool]
    state_names: ClassVar[tuple[str, ...]]
    built_as: type
    options: str
    weight_shapes: dict[str, torch.Size]
    native_step: "NativeStep | None"

    def some_weight(self) -> Tensor:
        """Return any parameter, to get the dtype of the weights."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """Return the weights by name, in order."""
        ...

    def with_weights(self, weights: dict[str, Tensor], dropout: float) -> "AnyCell":
        """Return a copy that holds these weights and has this dropout rate."""
        ...

    def parameters(self) -> Iterator[Tensor]:
        """Yield the learned parameters."""
        ...

    def __getattr__(self, name: str) -> Any:
        """Return an option, such as `hidden_size`, or a weight."""
        ...
