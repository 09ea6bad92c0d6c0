"""What layers and cells do inside torch's older tracers: `torch.fx`, `torch.jit.trace` and `torch.jit.script`."""

from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, TypeVar

import torch
from torch import nn
from torch.fx import Proxy

P = ParamSpec("P")
R = TypeVar("R")


def fx_node(module: nn.Module, input: Proxy, **keywords: object) -> Proxy:
    """Return the results of a module in a graph of `torch.fx`: a single node calls it, as with torch's own layers.

    torch.fx decides by name that only modules of torch.nn are single nodes, so it runs our `forward` with proxies.
    """
    tracer: Any = input.tracer
    path = tracer.path_of_module(module)
    if not path:
        name = type(module).__name__
        raise TypeError(f"torch.fx cannot trace {name} alone, which is one node of a graph: trace a module that has it")
    given = {name: value for name, value in keywords.items() if value is not None}
    proxy: Proxy = tracer.create_proxy("call_module", path, (input,), given)
    return proxy


def same_graph_without_gradients(function: Callable[P, R]) -> Callable[P, R]:
    """Enable gradients in a function that `torch.jit.trace` records.

    A scan saves what its backward pass needs only if gradients are enabled. torch.jit.trace disables them when it
    traces a second time to check the first, and would see another graph.
    """
    return torch.enable_grad()(function) if torch._C._get_tracing_state() is not None else function


def refuse_scripting(module: nn.Module) -> NoReturn:
    """Raise the error of `torch.jit.script`."""
    name = type(module).__name__
    raise RuntimeError(f"torch.jit.script cannot compile {name}: use torch.export, torch.compile or torch.jit.trace")
