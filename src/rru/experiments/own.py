"""Cells of the user's own: a Python file that registers them, loaded where the user names it and nowhere else."""

import functools
import importlib.util
import inspect
import os
import sys
import tempfile
from pathlib import Path

from rru.nn import cell_names, layer_class

VARIABLE = "RRU_CELLS"
"""The environment variable that names the file, for commands and for the processes they start."""

CELLS = ("rru", "gru", "lstm", "mogrifier")
"""The paper's cells, in its order."""

Sent = tuple[str, bytes]
"""A file of cells on its way to another machine: its name, and what is in it."""

_NOT_OPTIONS = ("input_size", "hidden_size", "dropout", "device", "dtype")


def cells() -> tuple[str, ...]:
    """The names of all cells: the paper's, then others in the order they were registered."""
    return (*CELLS, *(name for name in cell_names() if name not in CELLS))


def options(cell: str) -> dict[str, type]:
    """What a cell of the user's own can be given beside sizes and dropout, and of which type: that of its default."""
    if cell in CELLS:
        return {}
    parameters = inspect.signature(layer_class(cell).cell_class).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items() if name not in _NOT_OPTIONS}
    for name, default in defaults.items():
        if default is inspect.Parameter.empty:
            raise ValueError(f"cell {cell!r}: its option {name} must have a default, has none")
    return {name: type(default) for name, default in defaults.items() if type(default) in (bool, int, float, str)}


def source(cell: str) -> bytes | None:
    """The content of the file that a cell of the user's own is in; None for the paper's, or where there is no file."""
    if cell in CELLS:
        return None
    try:
        return Path(inspect.getfile(layer_class(cell))).read_bytes()
    except (OSError, TypeError):  # of an interactive session
        return None


def file() -> Sent | None:
    """The file of cells that was loaded, for other machines; None if there is none."""
    path = Path(os.environ.get(VARIABLE, ""))
    return (path.name, path.read_bytes()) if path.is_file() else None


@functools.cache
def load_sent(name: str, content: bytes) -> tempfile.TemporaryDirectory[str]:
    """Runs a file of cells that another machine has sent: `file()` there. Once for each process; it goes with it."""
    folder = tempfile.TemporaryDirectory(prefix="rru-cells-")
    path = Path(folder.name, name)
    path.write_bytes(content)
    load(path)
    return folder


def load(path: Path | str | None = None) -> None:
    """Runs a file that registers cells, once, and has the processes that this one starts do so too.

    **Arguments:** `path`: the file. Default: the one that the environment variable names, if it does.
    """
    name = os.environ.get(VARIABLE, "") if path is None else str(path)
    if not name:
        return
    file = Path(name).resolve()
    module = f"rru_own_{file.stem}"
    if getattr(sys.modules.get(module), "__file__", None) == str(file):
        return
    spec = importlib.util.spec_from_file_location(module, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"cells must come from a Python file, got {name}")
    before = cell_names()
    sys.modules[module] = loaded = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(loaded)
    except BaseException as error:
        del sys.modules[module]
        if isinstance(error, Exception):
            raise ValueError(f"{name}: could not be run ({type(error).__name__}: {error})") from error
        raise
    if cell_names() == before:
        raise ValueError(f"{name}: registers no cell; it should have a class decorated with @rru.register_cell(...)")
    os.environ[VARIABLE] = str(file)
