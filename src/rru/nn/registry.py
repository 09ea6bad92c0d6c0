"""The cells by name. Registering one is all it takes for it to be sized, compiled, exported and compared."""

import difflib
from collections.abc import Callable
from typing import Any, TypeVar

from rru.nn.layer import Layer
from rru.scan import operator

L = TypeVar("L", bound=type[Layer])

_layers: dict[str, type[Layer]] = {}


def register_cell(name: str) -> Callable[[L], L]:
    """Makes a layer class, and the cell class it names, known under `name`; a class decorator.

    ```python
    @rru.register_cell("mine")
    class Mine(rru.Layer):
        cell_class = MyCell
    ```
    """

    if not isinstance(name, str) or not name:
        raise TypeError(f"register_cell takes a name: @register_cell('mine'), got {name!r}")

    def register(layer: L) -> L:
        cell: Any = getattr(layer, "cell_class", None)
        if not (isinstance(layer, type) and issubclass(layer, Layer) and cell is not None):
            raise TypeError(f"{layer!r} must be a subclass of rru.Layer that names its cell_class")
        if vars(cell).get("name", name) not in (name, None):
            raise ValueError(f"{cell.__name__} is registered as {cell.name!r} already; derive a cell class of your own")
        known = _layers.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (layer.__module__, layer.__qualname__):
            raise ValueError(f"cell name {name!r} is taken by {known.__module__}.{known.__qualname__}")
        cell.name = name
        _layers[name] = layer
        operator.registered[name] = cell
        return layer

    return register


def cell_names() -> tuple[str, ...]:
    """The names of all registered cells, in the order they were registered."""
    return tuple(_layers)


def layer_class(name: str) -> type[Layer]:
    """The layer class registered under `name`."""
    if name not in _layers:
        name = str(name)
        close = difflib.get_close_matches(name, _layers, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"no cell is named {name!r}; {hint}Known: {', '.join(_layers)}")
    return _layers[name]
