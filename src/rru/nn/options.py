"""Options: declared once, in a constructor's signature, and checked against that declaration everywhere.

```python
class MyCell(Cell):
    def __init__(self, input_size: int, hidden_size: int, *, gain: Annotated[float, Option("...", above=0)] = 1.0): ...
```

The layer's signature, the settings of a run, `--set` and the search ranges are all derived from it.
"""

import inspect
import math
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

_KIND_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
_INT64_LIMIT = 2**63  # integers of this size and above do not fit into int64
MAX_PARTS = 1000
"""The maximum number of layers, or other parts with their own weights, of a model: building millions takes hours."""


@dataclass(frozen=True)
class Option:
    """A description of an option and its allowed values, for use in `Annotated`.

    **Arguments:**

    - `about`: a short description for help texts and errors.
    - `at_least`, `at_most`, `above`, `below`: bounds of a number; the first two are inclusive, the others exclusive.
    - `choices`: the allowed strings. If the type also allows numbers, those are allowed too.
    - `search`: the lowest and highest value that a search tries; None excludes the option from searches.
    - `log`: whether a search samples on a logarithmic scale.
    - `computes`: whether a cell with trained weights computes something else with another value.
    """

    about: str = ""
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    search: tuple[float, float] | None = None
    log: bool = False
    computes: bool = True


@dataclass(frozen=True)
class Declared:
    """One parameter of a signature: its name, the types it takes, its default, and its `Option`."""

    name: str
    kinds: tuple[type, ...]  # any of int, float, bool, str, NoneType
    default: Any  # inspect.Parameter.empty if required
    option: Option

    @property
    def required(self) -> bool:
        """Whether the parameter has no default."""
        return self.default is inspect.Parameter.empty

    def check(self, value: object, name: str | None = None) -> Any:
        """Return the value, converted to its declared type; raise TypeError or ValueError if it is not allowed.

        **Arguments:** `name`: the name to use in the error. Default: the parameter's name.
        """
        name = name or self.name
        if value is None and type(None) in self.kinds:
            return None
        if isinstance(value, bool | str):
            if (bool if isinstance(value, bool) else str) not in self.kinds:
                raise TypeError(f"{name} must be {self.described}, got {value!r}")
            if isinstance(value, str) and self.option.choices and value not in self.option.choices:
                raise ValueError(f"{name} must be {self.described}, got {value!r}")
            return value
        if isinstance(value, int) and abs(value) >= _INT64_LIMIT:
            raise ValueError(f"{name} must be {self.described}, below 2**63; got {value}")
        if isinstance(value, int | float) and float in self.kinds:
            number = float(value)
        elif isinstance(value, int) and int in self.kinds:
            number = value
        else:
            raise TypeError(f"{name} must be {self.described}, got {value!r} of type {type(value).__name__}")
        if not self._within(number):
            raise ValueError(f"{name} must be {self.described}, got {number}")
        return number

    @property
    def described(self) -> str:
        """The allowed values in words, such as `a number above 0` or `'vector' or 'scalar'`."""
        option = self.option
        bounds = {"at least": option.at_least, "above": option.above, "at most": option.at_most, "below": option.below}
        limits = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)
        numbers = [f"{_KIND_NAMES[kind]} {limits}".strip() for kind in self.kinds if kind in (int, float)]
        words = [*map(repr, option.choices)] if option.choices else [_KIND_NAMES[str]] * (str in self.kinds)
        return " or ".join([*numbers, *words, *([_KIND_NAMES[bool]] if bool in self.kinds else [])])

    def _within(self, value: float) -> bool:
        option = self.option
        return (
            math.isfinite(value)
            and (option.at_least is None or value >= option.at_least)
            and (option.at_most is None or value <= option.at_most)
            and (option.above is None or value > option.above)
            and (option.below is None or value < option.below)
        )


def declared(function: Callable[..., object], leave_out: tuple[str, ...] = ()) -> dict[str, Declared]:
    """Return the parameters of a signature that take plain values, by name, in order.

    Parameters of other types, such as a device or a tensor, are skipped.

    **Arguments:**

    - `function`: a function, or a class, meaning its constructor. If a constructor takes `**keywords`, the parameters
      of its base class's constructor are included.
    - `leave_out`: names of parameters to skip.
    """
    arguments = {}
    for name, parameter in parameters_of(function).items():
        kinds = _plain_kinds(parameter.annotation)
        if kinds and name not in leave_out:
            arguments[name] = Declared(name, kinds, parameter.default, option_of(parameter.annotation) or Option())
    return arguments


def parameters_of(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """Return all parameters of a function or constructor by name, with resolved annotations; see `declared`."""
    merged: dict[str, inspect.Parameter] = {}
    takes_more = True
    for depth, constructor in enumerate(_constructors(function) if isinstance(function, type) else [function]):
        hints = get_type_hints(constructor, include_extras=True)
        parameters = list(inspect.signature(constructor).parameters.values())[isinstance(function, type) :]  # no self
        for parameter in parameters:
            name = parameter.name
            annotation = hints.get(name, type(parameter.default))
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if name in merged and not option_of(merged[name].annotation) and option_of(annotation):
                merged[name] = merged[name].replace(annotation=annotation)  # take the Option from the base class
            elif name not in merged and takes_more:
                kind = parameter.KEYWORD_ONLY if depth else parameter.kind
                merged[name] = parameter.replace(annotation=annotation, kind=kind)
        takes_more &= any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return merged


def option_of(annotation: object) -> Option | None:
    """Return the `Option` in an annotation, or None."""
    return next((extra for extra in getattr(annotation, "__metadata__", ()) if isinstance(extra, Option)), None)


def without_metadata(annotation: object) -> object:
    """Return a type without its `Annotated` metadata."""
    return get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation


def _plain_kinds(hint: object) -> tuple[type, ...]:
    """Return the plain types in an annotation; empty if it contains any other type."""
    hint = without_metadata(hint)
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    plain = (*_KIND_NAMES, type(None))
    return tuple(parts) if all(part in plain for part in parts) and set(parts) != {type(None)} else ()


def _constructors(cls: type) -> Iterator[Callable[..., object]]:
    """Yield the constructors of a class and its base classes that are written in Python."""
    for base in cls.__mro__:
        if isinstance(vars(base).get("__init__"), types.FunctionType):
            yield vars(base)["__init__"]
