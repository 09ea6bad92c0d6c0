"""Fingerprints of a user's own model, loss and batches, to tell whether a run folder holds the same training."""

import functools
import hashlib
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset, TensorDataset

MAX_ITEMS = 64  # of a data set that are compared, evenly spaced
TRIED = 4  # of these are read twice, to see whether they are the same every time
SIMPLE = (bool, int, float, str, type(None))
LIBRARIES = ("torch", "rru")  # the code of their functions may differ in another version


class Hash(Protocol):
    """What hashlib makes."""

    def update(self, data: bytes, /) -> None:
        """Add bytes."""


def fingerprint(
    model: nn.Module, scores: Mapping[str, Callable[..., object] | None], loaders: Mapping[str, Iterable[object]]
) -> dict[str, dict[str, object]]:
    """Return a description of a training by table and name, as JSON values. Initial weights do not count.

    **Arguments:** `model`; `scores`: the loss and the metric by name; `loaders`: the batches by split.
    """
    return {
        "functions": {name: function_name(score) for name, score in scores.items() if score is not None},
        "modules": {name or "model": _module_name(module) for name, module in model.named_modules()},
        "weights": {name: _array_name(value) for name, value in model.state_dict().items()},
        **{split: data_of(loader) for split, loader in loaders.items()},
    }


def data_of(loader: Any) -> dict[str, object]:
    """Describe the batches of a loader: their number and, as far as it is the same every time, their content.

    The content is that of the data set, in whatever order it is drawn: all of a `TensorDataset`; of others that can be
    indexed, as of a list of batches, 64 evenly spaced items; else the first batch. If reading something twice, with the
    same random seeds, gives different content, only its shapes and types count.
    """
    facts: dict[str, object] = {"batches": len(loader)}
    data = getattr(loader, "dataset", loader)
    if isinstance(data, TensorDataset):
        return {**facts, "items": len(data), "shapes": _shapes(data[0]), "content": _digest([data.tensors])}
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, IterableDataset | Mapping):
        count = len(data)
        places = sorted({place * (count - 1) // (MAX_ITEMS - 1) for place in range(MAX_ITEMS)})
        facts["items"] = count
    else:
        data, places = loader, []

    def read(most: int) -> list[object]:
        with _fixed_randomness(loader):
            return [data[place] for place in places[:most]] if places else [next(iter(loader))]

    first = read(TRIED)
    facts["shapes"] = _shapes(first[0])
    if _digest(first) == _digest(read(TRIED)):
        facts["content"] = _digest(read(MAX_ITEMS))
    return facts


@contextmanager
def _fixed_randomness(loader: object) -> Iterator[None]:
    """Seed every random generator that a data set may draw from; restore them afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    generator = getattr(loader, "generator", None)
    own = generator.get_state() if isinstance(generator, torch.Generator) else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(0)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            if isinstance(generator, torch.Generator) and own is not None:
                generator.set_state(own)


def function_name(function: Any) -> str:
    """Describe a loss or metric: its qualified name, its plain options, and for the user's own what its code names."""
    if isinstance(function, functools.partial):
        options = [_plain(value) for value in function.args]
        options += [f"{name}={_plain(value)}" for name, value in sorted(function.keywords.items())]
        return f"{function_name(function.func)} with {', '.join(options)}"
    named = function if hasattr(function, "__qualname__") else type(function)
    name = f"{named.__module__}.{named.__qualname__}"
    if named is not function:
        attributes = sorted(getattr(function, "__dict__", {}).items())
        options = [f"{key}={value!r}" for key, value in attributes if _is_option(key, value)]
        weights = function.state_dict() if isinstance(function, nn.Module) else {}
        return f"{name}({', '.join(options)})" + (f" {_digest([weights])}" if weights else "")
    code = getattr(function, "__code__", None)
    if code is None or named.__module__.partition(".")[0] in LIBRARIES:
        return name
    outside = [cell.cell_contents for cell in function.__closure__ or ()] + [*(function.__defaults__ or ())]
    facts = [*_code_facts(code, function.__doc__), *(_plain(value) for value in outside)]
    return f"{name} {hashlib.sha256(repr(facts).encode()).hexdigest()[:8]}"


def _is_option(key: str, value: object) -> bool:
    return not key.startswith("_") and key != "training" and isinstance(value, SIMPLE)


def _code_facts(code: CodeType, doc: str | None) -> list[object]:
    """Return the names and constants in code, which other versions of Python have too; without its docstring."""
    facts: list[object] = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            facts += _code_facts(constant, None)
        elif constant != doc or doc is None:
            facts.append(_plain(constant))
    return facts


def _plain(value: object) -> str:
    """Return a value as text that is the same in every process."""
    if callable(value) and not isinstance(value, nn.Module):
        return function_name(value)
    if isinstance(value, Tensor | np.ndarray):
        return _digest([value])
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _module_name(module: nn.Module) -> str:
    extra = re.sub(r" at 0x[0-9a-f]+", "", module.extra_repr())
    return f"{type(module).__name__}({extra})"


def _array_name(value: Any) -> str:
    return f"{tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}" if hasattr(value, "dtype") else "other"


def _shapes(value: Any) -> str:
    """Describe the shapes and types in an item or batch."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _array_name(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_shapes(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"({', '.join(_shapes(each) for each in value[:8])})"
    return type(value).__name__


def _digest(values: Iterable[object]) -> str:
    """Return a hash of the content of items."""
    digest = hashlib.sha256()
    for value in values:
        _add(digest, value)
    return digest.hexdigest()[:16]


def _add(digest: Hash, value: Any) -> None:
    """Add what is in an item to a hash: arrays and plain values, in lists, tuples and dicts to any depth."""
    digest.update(_shapes(value).encode())
    if isinstance(value, Tensor) and not value.is_sparse:
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, np.ndarray | np.generic) and value.dtype.kind not in "OV":
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for name, each in value.items():
            digest.update(repr(name).encode())
            _add(digest, each)
    elif isinstance(value, list | tuple):
        for each in value:
            _add(digest, each)
    elif isinstance(value, (*SIMPLE, bytes)):
        digest.update(repr(value).encode())
