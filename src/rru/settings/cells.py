"""The cells a config can name, and the options each cell declares in its constructor."""

import functools
from collections.abc import Mapping
from types import MappingProxyType

from rru.data.spelling import in_command
from rru.nn import Cell, cell_names, layer_class
from rru.nn.options import Declared, declared
from rru.suggestions import did_you_mean

PAPER_CELLS = ("rru", "gru", "lstm", "mogrifier")
"""The paper's cells, in its order."""

_NOT_OPTIONS = ("input_size", "hidden_size", "dropout")  # set by the data and the budget, or shared by all cells


def cells() -> tuple[str, ...]:
    """Return the names of all cells: the paper's, then user cells in order of registration."""
    return (*PAPER_CELLS, *(name for name in cell_names() if name not in PAPER_CELLS))


def known_cell(name: str) -> str:
    """Return the name of a cell; raise ValueError, which lists all and says how to load others, if there is none."""
    if name in cells():
        return name
    how = "`rru --code FILE` loads" if in_command() else "@rru.register_cell adds"
    advice = did_you_mean(name, cells()) or f"; {how} your own"
    raise ValueError(f"cell must be one of {', '.join(cells())}; got {name!r}{advice}")


def options(cell: str) -> Mapping[str, Declared]:
    """Return a cell's options by name, in constructor order; raise ValueError if one has no default."""
    declared_options = _options(layer_class(cell).cell_class)
    for name, option in declared_options.items():
        if option.required:
            raise ValueError(f"cell {cell!r}: option {name} must have a default")
    return declared_options


@functools.cache
def _options(cell_class: type[Cell]) -> Mapping[str, Declared]:
    return MappingProxyType(declared(cell_class, leave_out=_NOT_OPTIONS))
