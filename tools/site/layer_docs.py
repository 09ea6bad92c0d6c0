"""Extension of the API reference: layers and cells with the signatures and docstrings that they have when imported.

All else is read from the source without running it. But a layer's arguments are those of its cell, and
`rru.nn.signatures` writes them into its signature and docstring.
"""

import importlib
import inspect
from typing import Any

import griffe


class LayerDocs(griffe.Extension):
    """Takes the docstrings and signatures of classes in `rru.nn` from the imported classes."""

    def on_class(self, *, cls: griffe.Class, **others: Any) -> None:
        """Replace what is known of a class, if the imported class has a signature of its own."""
        if not cls.path.startswith("rru.nn."):
            return
        imported = getattr(importlib.import_module(cls.module.path), cls.name, None)
        if imported is None or "__signature__" not in vars(imported):
            return
        cls.docstring = griffe.Docstring(inspect.getdoc(imported) or "", parent=cls)
        parameters = [as_parameter(each) for each in inspect.signature(imported).parameters.values()]
        init = griffe.Function("__init__", parameters=griffe.Parameters(griffe.Parameter("self"), *parameters))
        cls.set_member("__init__", init)


def as_parameter(parameter: inspect.Parameter) -> griffe.Parameter:
    """Return an argument as griffe describes it."""
    default = None if parameter.default is parameter.empty else repr(parameter.default)
    kind = griffe.ParameterKind(parameter.kind.description)
    return griffe.Parameter(parameter.name, kind=kind, default=default)
