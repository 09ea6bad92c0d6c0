"""User cells, registered by a Python file. The file is run only if the user names it."""

import functools
import importlib.util
import inspect
import os
import sys
import tempfile
from pathlib import Path

from rru import kinds
from rru.kinds import FILES, KINDS
from rru.nn import cell_names, layer_class
from rru.settings.cells import PAPER_CELLS

VARIABLE = "RRU_CODE"
"""The environment variable that holds the file's path, so that child processes load it too."""

Sent = tuple[str, bytes]
"""A file of cells to send to another machine: its name and content."""


def source(cell: str) -> bytes | None:
    """Return the source file of a user cell; None for the paper's cells, or if there is no file."""
    if cell in PAPER_CELLS:
        return None
    try:
        return Path(inspect.getfile(layer_class(cell))).read_bytes()
    except (OSError, TypeError):  # defined in an interactive session
        return None


def kind_source(kind: str) -> bytes | None:
    """Return the file that registers a user's kind of data; None for the package's kinds, or if there is no file."""
    path = FILES[kind]
    try:
        return None if path == Path(kinds.__file__) else path.read_bytes()
    except OSError:  # defined in an interactive session
        return None


def file() -> Sent | None:
    """Return the loaded file of cells, to send to other machines; None if there is none."""
    path = Path(os.environ.get(VARIABLE, ""))
    return (path.name, path.read_bytes()) if path.is_file() else None


@functools.cache
def load_sent(name: str, content: bytes) -> tempfile.TemporaryDirectory[str]:
    """Run a file of cells that another machine sent (from its `file()`), once per process."""
    folder = tempfile.TemporaryDirectory(prefix="rru-cells-")
    path = Path(folder.name, name)
    path.write_bytes(content)
    load(path)
    return folder


def load(path: Path | str | None = None) -> None:
    """Run a file that registers cells or kinds of data, once per process; child processes run it too.

    Raise ValueError if the file cannot be run or registers neither.

    **Arguments:** `path`: the file. Default: the one the environment variable `RRU_CODE` names, if set.
    """
    name = os.environ.get(VARIABLE, "") if path is None else str(path)
    if not name:
        return
    file = Path(os.path.abspath(name))  # a download of the Hugging Face Hub is a link to a file without suffix
    module = f"rru_own_{file.stem}"
    if getattr(sys.modules.get(module), "__file__", None) == str(file):
        return
    if not file.exists():
        raise ValueError(f"{name}: does not exist; it should be a Python file with your own cells or kinds of data")
    spec = importlib.util.spec_from_file_location(module, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"code must come from a Python file, got {name}")
    before = cell_names(), tuple(KINDS)
    sys.modules[module] = loaded = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(loaded)
    except BaseException as error:
        del sys.modules[module]
        if isinstance(error, Exception):
            raise ValueError(f"{name}: raised an error ({type(error).__name__}: {error})") from error
        raise
    if (cell_names(), tuple(KINDS)) == before:
        raise ValueError(f"{name}: registers no cell; it needs a class decorated with @rru.register_cell(...)")
    os.environ[VARIABLE] = str(file)
