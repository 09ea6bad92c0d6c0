"""A model with an example input, and what it computes from it: outputs and gradients by name."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from rru.nn.layer import Layer

Results = dict[str, Tensor]
"""Outputs (`output 0`, ...) and gradients (`gradient of <parameter>`, `gradient of input 0`, ...)."""


class Bound(nn.Module):
    """A model whose last arguments are given by name."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Any) -> Any:
        positional = len(inputs) - len(self.names)
        return self.model(*inputs[:positional], **dict(zip(self.names, inputs[positional:], strict=True)))


class Case:
    """A model in evaluation mode, and the arguments of a call. Nothing changes the model that was given."""

    def __init__(self, model: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.model, self.inputs = copy.deepcopy(model).eval(), inputs
        floats = [tensor for tensor in self.model.state_dict().values() if tensor.is_floating_point()]
        self.dtype: torch.dtype = floats[0].dtype
        self.device: torch.device = floats[0].device

    def on(self, backend: str, dtype: torch.dtype | None = None) -> nn.Module:
        """Return a copy of the model whose rru layers run on a back end."""
        model = copy.deepcopy(self.model)
        for layer in layers_of(model):
            layer.backend = backend
        return model if dtype is None else model.to(dtype)

    def arguments(self, dtype: torch.dtype | None = None, *, gradients: bool = False) -> tuple[Any, ...]:
        """Return the inputs in a dtype, by default that of the model; with `gradients`, as leaves of a graph."""

        def each(value: Any) -> Any:
            if isinstance(value, PackedSequence) and value.data.is_floating_point():
                return value.to(dtype or self.dtype)
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            return value.detach().to(dtype or self.dtype).clone().requires_grad_(gradients)

        arguments: tuple[Any, ...] = tree_map(each, self.inputs)
        return arguments

    def outputs(self, call: Callable[..., Any], dtype: torch.dtype | None = None) -> Results:
        """Return what a call gives, without gradients."""
        with torch.no_grad():
            return named_outputs(call(*self.arguments(dtype)))

    def outputs_and_gradients(
        self, model: nn.Module, dtype: torch.dtype | None = None, call: Callable[..., Any] | None = None
    ) -> Results:
        """Return what the model, or `call` with its parameters, gives, and the gradients of a weighed sum of it."""
        arguments = self.arguments(dtype, gradients=True)
        results = named_outputs((model if call is None else call)(*arguments))
        leaves = {f"input {at}": leaf for at, leaf in enumerate(_floats(tree_leaves(arguments)))}
        parameters = (model.model if isinstance(model, Bound) else model).named_parameters()
        leaves |= {name: parameter for name, parameter in parameters if parameter.requires_grad}
        total = sum((output * _weights_like(output)).sum() for output in results.values() if output.requires_grad)
        if isinstance(total, Tensor):
            gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, materialize_grads=True)
            results |= {f"gradient of {name}": each for name, each in zip(leaves, gradients, strict=True)}
        return {name: result.detach() for name, result in results.items()}


def layers_of(model: nn.Module) -> list[Layer]:
    """Return the rru layers in a model, or the model itself."""
    return [module for module in model.modules() if isinstance(module, Layer)]


def named_outputs(results: Any) -> Results:
    """Return the float tensors in what a model returned, in order."""
    return {f"output {at}": output for at, output in enumerate(_floats(tree_leaves(results)))}


def _floats(values: Iterable[Any]) -> list[Tensor]:
    values = [value.data if isinstance(value, PackedSequence) else value for value in values]
    return [value for value in values if isinstance(value, Tensor) and value.is_floating_point()]


def _weights_like(output: Tensor) -> Tensor:
    """Return numbers from -1 to 1, the same for every path, to weigh an output with."""
    places = torch.arange(output.numel(), device=output.device, dtype=torch.float64)
    return torch.cos(places).view(output.shape).to(output.dtype)
