"""Registry of cells by name. A registered cell can be sized, compiled, exported and compared with others."""

from collections.abc import Callable
from typing import TypeVar

from rru.nn.cell import Cell
from rru.nn.layer import Layer
from rru.scan import operator
from rru.suggestions import known_names

L = TypeVar("L", bound=type[Layer])

_layers: dict[str, type[Layer]] = {}


def register_cell(name: str) -> Callable[[L], L]:
    """Register a layer class and its `cell_class` under `name`, as a class decorator.

    ```python
    @rru.register_cell("mine")
    class Mine(rru.Layer):
        cell_class = MyCell
    ```
    """

    if not isinstance(name, str) or not name:
        raise TypeError(f"register_cell takes a name: @register_cell('mine'), got {name!r}")

    def register(layer: L) -> L:
        cell: type[Cell] | None = getattr(layer, "cell_class", None)
        if not (isinstance(layer, type) and issubclass(layer, Layer) and cell is not None):
            raise TypeError(f"{layer!r} must be a subclass of rru.Layer that names its cell_class")
        if vars(cell).get("name", name) not in (name, None):
            raise ValueError(f"{cell.__name__} is already registered as {cell.name!r}; derive your own class from it")
        known = _layers.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (layer.__module__, layer.__qualname__):
            raise ValueError(f"cell name {name!r} is taken by {known.__module__}.{known.__qualname__}")
        cell.name = name
        _layers[name] = layer
        operator.registered[name] = cell
        return layer

    return register


def cell_names() -> tuple[str, ...]:
    """Return the names of all registered cells, in the order of registration."""
    return tuple(_layers)


def layer_class(name: str) -> type[Layer]:
    """Return the layer class registered under `name`; raise ValueError if there is none."""
    if name not in _layers:
        raise ValueError(f"unknown cell {str(name)!r}; {known_names(str(name), _layers)}")
    return _layers[name]
