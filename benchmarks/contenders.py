"""The layers to compare, each with the same number of parameters."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import rru
from benchmarks.shapes import Shape

RRU_NATIVE, RRU_REFERENCE = "RRU native", "RRU reference"
RIVALS = ("rru.LSTM", "rru.GRU", "rru.MogrifierLSTM")
NAMES = (RRU_NATIVE, RRU_REFERENCE, "nn.LSTM", "nn.GRU", *RIVALS)


def why_no_native(layer_class: type[rru.Layer] = rru.RRU) -> str | None:
    """Return why the native back end cannot run this layer on this machine, or None if it can."""
    try:
        layer_class(1, 1, backend="native")(torch.zeros(1, 1, 1))
    except RuntimeError as error:
        return str(error)
    return None


def available(names: tuple[str, ...] = NAMES) -> tuple[str, ...]:
    """Return the contenders that can run on this machine."""
    return tuple(name for name in names if name != RRU_NATIVE or why_no_native() is None)


@dataclass
class Contender:
    """A layer to measure.

    `dropout` is None where it does not apply: in single layers of torch.nn, and in inference.
    """

    name: str
    dropout: float | None
    backend: str
    layer: nn.Module

    @property
    def is_slow(self) -> bool:
        """Whether to measure it in fewer rounds than the others."""
        return self.backend == "reference" or self.name == "rru.MogrifierLSTM"

    @property
    def matrix_parameters(self) -> int:
        """The number of parameters in matrices."""
        return sum(parameter.numel() for parameter in self.layer.parameters() if parameter.dim() == 2)

    def description(self) -> dict[str, object]:
        """Return name, sizes and settings for the report."""
        return {
            "name": self.name,
            "dropout": self.dropout,
            "backend": self.backend,
            "hidden_size": self.layer.hidden_size,
            "parameters": rru.count_parameters(self.layer),
            "matrix_parameters": self.matrix_parameters,
        }


def build(name: str, shape: Shape, dropout: float | None = None) -> Contender:
    """Build a contender with the largest hidden size that `shape.parameters` allow."""
    backend, build_layer = _builder(name, shape, dropout or 0.0)
    torch.manual_seed(0)
    layer = build_layer(rru.hidden_size_for(shape.parameters, build_layer))
    if isinstance(layer, rru.RRU):
        randomize_z(layer.cells[0])
    return Contender(name, None if backend == "torch" else dropout, backend, layer)


def _builder(name: str, shape: Shape, dropout: float) -> tuple[str, Callable[[int], nn.Module]]:
    """Return the back end of a contender, and a function that builds its layer for a hidden size."""
    if name in (RRU_NATIVE, RRU_REFERENCE):
        backend = name.removeprefix("RRU ")
        return backend, lambda n: rru.RRU(
            shape.input_size,
            n,
            output_size=shape.output_size,
            expansion=shape.expansion,
            relu_layers=shape.relu_layers,
            dropout=dropout,
            backend=backend,
        )
    if name.startswith("nn."):
        torch_class = getattr(nn, name.removeprefix("nn."))
        return "torch", lambda n: torch_class(shape.input_size, n)
    layer_class = getattr(rru, name.removeprefix("rru."))
    backend = "reference" if why_no_native(layer_class) else "native"
    options = {"rounds": 5, "rank": shape.mogrifier_rank} if layer_class is rru.MogrifierLSTM else {}
    return backend, lambda n: layer_class(shape.input_size, n, dropout=dropout, backend=backend, **options)


def randomize_z(cell: rru.RRUCell) -> None:
    """Set Z to random values. With its initial zeros the state would only decay and c get no gradient."""
    with torch.no_grad():
        cell.Z.normal_(0, 0.1)


class TrainingStep:
    """Forward and backward pass: gradients of all parameters and of the input, for a fixed output gradient."""

    def __init__(self, contender: Contender, shape: Shape) -> None:
        self.layer = contender.layer.train()
        generator = torch.Generator().manual_seed(1)
        self.input = torch.randn(shape.steps, shape.batch, shape.input_size, generator=generator)  # (T, B, m)
        self.input.requires_grad_()
        width = getattr(self.layer, "output_size", self.layer.hidden_size)
        self.output_gradient = torch.randn(shape.steps, shape.batch, width, generator=generator)  # (T, B, p)

    def __call__(self) -> None:
        self.clear_gradients()
        output = self.run_layer()  # (T, B, p)
        torch.autograd.backward(output, self.output_gradient.to(output.dtype))

    def run_layer(self) -> Tensor:
        """The forward pass."""
        return self.layer(self.input)[0]

    def clear_gradients(self) -> None:
        """Set all gradients to None."""
        for tensor in (self.input, *self.layer.parameters()):
            tensor.grad = None


class Inference:
    """Forward pass in inference mode, without dropout."""

    def __init__(self, contender: Contender, shape: Shape) -> None:
        self.layer = contender.layer.eval()
        generator = torch.Generator().manual_seed(1)
        self.input = torch.randn(shape.steps, shape.batch, shape.input_size, generator=generator)  # (T, B, m)

    @torch.inference_mode()
    def __call__(self) -> Tensor:
        return self.layer(self.input)[0]  # (T, B, p)
