"""Checkpoints without pickle: tensors as safetensors, everything else as JSON, in folders written atomically.

A run keeps its last two. Each is a folder such as `checkpoint/000012` with

- `model.safetensors`: the model's `state_dict`;
- `state.safetensors` and `state.json`: optimiser, random generators, carried recurrent state, and counters;
- `manifest.json`: sizes and checksums of these files.
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from rru.files import Damaged, own_folder, read_folder, write_folder
from rru.training.errors import RunError
from rru.training.safetensors import declared, pack, unpack

MODEL = "model.safetensors"
_TENSORS = "state.safetensors"
_TREE = "state.json"
SLACK = 64 << 20  # bytes that a file may have beyond the tensors of its model
STATE_FACTOR = 16  # largest state of a run, as a multiple of its model: optimisers keep two tensors for each


@dataclass(frozen=True)
class Checkpoint:
    """The state a run resumes from.

    **Arguments:**

    - `model`: the model's `state_dict`.
    - `state`: everything else: nested dicts, lists and tuples of tensors, numbers, strings and None.
    """

    model: dict[str, Tensor]
    state: dict[str, Any]


@dataclass
class Checkpoints:
    """The checkpoints of a run; keeps the last two.

    **Arguments:** `folder`: the folder they are in; need not exist yet.
    """

    folder: Path
    _good: int | None = field(default=None, init=False)

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint, then removes all others except the last one known to be good.

        If none has been loaded or saved yet, it keeps the newest instead.
        """
        newest = max(self._numbers(), default=0)
        number, before = newest + 1, newest if self._good is None else self._good
        tree, tensors = flatten(checkpoint.state)
        files = {
            MODEL: pack(checkpoint.model),
            _TENSORS: pack(tensors),
            _TREE: json.dumps(tree).encode(),
        }
        write_folder(self._path(number), files)
        for old in self._numbers():
            if old not in (number, before):
                shutil.rmtree(self._path(old), ignore_errors=True)
        self._good = number

    def load(self, model: Mapping[str, Tensor] | None = None) -> tuple[Checkpoint | None, list[str]]:
        """Loads the newest undamaged checkpoint.

        Raises RunError if there are checkpoints but all are damaged, because silently starting over would lose work.

        **Arguments:** `model`: the `state_dict` of the model; files too large to belong to it are not read.

        **Returns:** the checkpoint, or None if there are none; and a message for each newer, damaged one.
        """
        damages: list[str] = []
        for number in sorted(self._numbers(), reverse=True):
            try:
                checkpoint = read_checkpoint(self._path(number), model)
            except Damaged as damage:
                damages.append(str(damage))
                continue
            self._good = number
            return checkpoint, damages
        if damages:
            raise RunError(
                f"{self.folder}: no readable checkpoint: {'; '.join(damages)}. "
                "Remove this folder to start the run again"
            )
        return None, []

    def clear(self) -> None:
        """Removes all checkpoints, once the run has ended."""
        for number in self._numbers():
            shutil.rmtree(self._path(number), ignore_errors=True)

    def _numbers(self) -> list[int]:
        if not own_folder(self.folder).is_dir():
            return []
        names = [path.name for path in self.folder.iterdir()]
        return [int(name) for name in names if re.fullmatch(r"[0-9]{6,12}", name)]

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06}"


def read_checkpoint(path: Path, model: Mapping[str, Tensor] | None = None) -> Checkpoint:
    """Reads a checkpoint from its folder; raises `Damaged` if a file is missing, changed or too large for the model."""
    files = read_folder(path, limited(model, STATE_FACTOR) if model else _check_header)
    for name in (MODEL, _TENSORS, _TREE):
        if name not in files:
            raise Damaged(f"{path / name}: missing from the manifest")
    tensors = unpack(files[_TENSORS], path / _TENSORS)
    try:
        state = restore(json.loads(files[_TREE]), tensors)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Damaged(f"{path / _TREE}: cannot be read ({error!r})") from error
    if not isinstance(state, dict):
        raise Damaged(f"{path / _TREE}: must hold a dict, holds {type(state).__name__}")
    return Checkpoint(unpack(files[MODEL], path / MODEL), state)


def limited(model: Mapping[str, Tensor], factor: int = 1) -> Callable[[Path], None]:
    """Returns a check for `read_folder`: raises `Damaged` for files larger than `factor` models and some slack."""
    most = SLACK + factor * sum(tensor.nbytes for tensor in model.values())

    def check(file: Path) -> None:
        if (size := file.lstat().st_size) > most:
            raise Damaged(f"{file}: has {size} bytes; at most {most} fit this model")
        _check_header(file)

    return check


def _check_header(file: Path) -> None:
    if file.suffix == ".safetensors":
        declared(file)


def flatten(value: Any) -> tuple[Any, dict[str, Tensor]]:
    """Splits nested containers into a JSON-compatible tree and the tensors it refers to by name."""
    tensors: dict[str, Tensor] = {}

    def visit(value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            tensors[path] = value
            return {"tensor": path}
        if isinstance(value, dict):
            return {"dict": [[key, visit(entry, f"{path}.{key}")] for key, entry in value.items()]}
        if isinstance(value, list | tuple):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [visit(entry, f"{path}.{index}") for index, entry in enumerate(value)]}
        if value is None or type(value) in (bool, int, float, str):
            return value
        raise TypeError(f"a checkpoint holds tensors, numbers, strings and None, got {type(value).__name__} at {path}")

    tree = visit(value, "state")
    return tree, tensors


def restore(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """Rebuilds the value that `flatten` split."""
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: restore(entry, tensors) for key, entry in content}
    if kind in ("list", "tuple"):
        entries = [restore(entry, tensors) for entry in content]
        return tuple(entries) if kind == "tuple" else entries
    raise ValueError(f"must be a tensor, dict, list or tuple, got {kind!r}")
