"""The Residual Recurrent Unit for PyTorch, and the gated cells it is compared with."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # that of `typing` takes milliseconds, before the command can handle Ctrl-C
if TYPE_CHECKING:
    from typing import Any

    from rru.inference import fit, load, stream
    from rru.nn import (
        GRU,
        LSTM,
        RRU,
        Cell,
        GRUCell,
        Layer,
        LSTMCell,
        MogrifierLSTM,
        MogrifierLSTMCell,
        RRUCell,
        cell_names,
        count_parameters,
        hidden_size_for,
        layer_class,
        quantize,
        register_cell,
        replace,
        verify,
    )

    __version__: str

__all__ = [
    "GRU",
    "LSTM",
    "RRU",
    "Cell",
    "GRUCell",
    "LSTMCell",
    "Layer",
    "MogrifierLSTM",
    "MogrifierLSTMCell",
    "RRUCell",
    "cell_names",
    "count_parameters",
    "fit",
    "hidden_size_for",
    "layer_class",
    "load",
    "quantize",
    "register_cell",
    "replace",
    "stream",
    "verify",
]

_INFERENCE_NAMES = ("fit", "load", "stream")  # the layers need nothing that inference imports


def __getattr__(name: str) -> Any:
    """Import what a public name needs when it is first used: torch takes seconds, and the command starts without it."""
    if name in ("nn", "data", "inference", "report"):
        return importlib.import_module(f"rru.{name}")
    if name == "__version__":
        from importlib.metadata import version  # imports much, before the command can handle Ctrl-C

        return globals().setdefault(name, version("rru"))
    if name not in __all__:
        raise AttributeError(f"module 'rru' has no attribute {name!r}")
    module = importlib.import_module("rru.inference" if name in _INFERENCE_NAMES else "rru.nn")
    return globals().setdefault(name, getattr(module, name))


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
