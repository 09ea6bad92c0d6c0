"""Signatures, docstrings and errors of the constructors of cells and layers, generated from the declared arguments."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from rru.nn.options import Declared, without_metadata
from rru.suggestions import known_names

NOT_HERE = {
    "bias": "biases cannot be turned off; omit it, or freeze them with requires_grad_(False)",
    "proj_size": "use output_size with rru.RRU; follow any other layer with an nn.Linear",
    "nonlinearity": "the cell's equations fix its activations; omit it",
}
"""Arguments of torch's recurrent layers that ours do not have, with what to use instead."""

HARMLESS = {"bias": True, "proj_size": 0}
"""The values of such arguments that ask for nothing else than our layers do."""

_TORCHS_ORDER = ("bias", "batch_first", "dropout", "bidirectional", "proj_size")  # of nn.LSTM, after num_layers


class ClassSignature:
    """Descriptor for `__signature__` that exists on the class only; instances are called with other arguments."""

    def __init__(self, signature: inspect.Signature) -> None:
        self.signature = signature

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        return self.signature


def describe(cls: Any, parameters: Iterable[inspect.Parameter], known: Mapping[str, Declared]) -> None:
    """Set a class's signature and add the arguments to its docstring, unless the docstring already lists them."""
    parameters = [parameter.replace(annotation=without_metadata(parameter.annotation)) for parameter in parameters]
    cls.__signature__ = ClassSignature(inspect.Signature(parameters))
    text = vars(cls).get("__doc__")
    if text and "**Arguments:**" not in text:
        lines = "\n".join(_line(parameter, known) for parameter in parameters)
        cls.__doc__ = f"{inspect.cleandoc(text)}\n\n**Arguments:**\n\n{lines}\n"


def _line(parameter: inspect.Parameter, known: Mapping[str, Declared]) -> str:
    """Return the docstring line of one argument: ``- `expansion`: description. Default: 2.0.``"""
    description = known[parameter.name].option.about if parameter.name in known else "as in every torch module"
    default = "" if parameter.default is parameter.empty else f" Default: {parameter.default!r}."
    return f"- `{parameter.name}`: {description}.{default}"


def known_arguments(cls: type, given: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Return the given arguments without the harmless ones of torch; raise TypeError if any other is not known."""
    known = list(known)
    for name, value in given.items():
        if name in known or (name in HARMLESS and value == HARMLESS[name]):
            continue
        if name in NOT_HERE:
            raise TypeError(f"{cls.__name__} takes no argument {name}={value!r}: {NOT_HERE[name]}")
        raise TypeError(f"{cls.__name__} takes no argument {name!r}; {known_names(name, known)}")
    return {name: value for name, value in given.items() if name in known}


def refuse_unnamed(cls: type, positional: tuple[str, ...], unnamed: tuple[object, ...]) -> NoReturn:
    """Raise TypeError for arguments after the positional ones; name those that torch has in their places."""
    others = ", ".join(f"{name}={value!r}" for name, value in zip(_TORCHS_ORDER, unnamed, strict=False))
    raise TypeError(
        f"{cls.__name__} takes {len(positional)} arguments by position ({', '.join(positional)}), got "
        f"{len(positional) + len(unnamed)}: pass the others by name; in torch's order they are {others}"
    )
