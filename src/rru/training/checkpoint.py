"""Checkpoints without pickle: tensors as safetensors, all else as JSON, in folders that are whole or not there.

A run keeps its last two. Each is a folder `checkpoint/000012` with

- `model.safetensors`: the model's weights under their own names;
- `state.safetensors` and `state.json`: optimiser, generators, the recurrent state carried on, and the counters;
- `manifest.json`: sizes and checksums of these.
"""

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from rru.training.files import Damaged, RunError, read_folder, write_folder

MODEL = "model.safetensors"
_TENSORS = "state.safetensors"
_TREE = "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """What a run continues from.

    **Arguments:**

    - `model`: the model's `state_dict`.
    - `state`: whatever else there is: dicts, lists and tuples of tensors, numbers, strings, None, nested at will.
    """

    model: dict[str, Tensor]
    state: dict[str, Any]


@dataclass
class Checkpoints:
    """The checkpoints of a run, the last two of them kept.

    **Arguments:** `folder`: where they are; need not be there yet.
    """

    folder: Path
    _good: int | None = field(default=None, init=False)

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes one more, then removes all but this and the one before it that is known to be good, or is newest."""
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

    def load(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest that is whole.

        **Returns:** it, or None if there never was one; and what is the matter with each newer one. If there are some
        but none is whole, that is a `RunError`: starting anew in silence would throw work away.
        """
        damages: list[str] = []
        for number in sorted(self._numbers(), reverse=True):
            try:
                checkpoint = read_checkpoint(self._path(number))
            except Damaged as damage:
                damages.append(str(damage))
                continue
            self._good = number
            return checkpoint, damages
        if damages:
            raise RunError(
                f"{self.folder}: no checkpoint here can be read: {'; '.join(damages)}. "
                "Remove this folder to have the run start from its beginning"
            )
        return None, []

    def clear(self) -> None:
        """Removes them all, for a run that has ended."""
        for number in self._numbers():
            shutil.rmtree(self._path(number), ignore_errors=True)

    def _numbers(self) -> list[int]:
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return [int(name) for name in names if re.fullmatch(r"[0-9]{6,12}", name)]

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06}"


def read_checkpoint(path: Path) -> Checkpoint:
    """One checkpoint from its folder; `Damaged` if it is not as it was written."""
    files = read_folder(path)
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


def pack(tensors: dict[str, Tensor]) -> bytes:
    """Tensors by name as the bytes of a safetensors file. Names that share memory are written each for itself."""
    seen: set[int] = set()
    apart: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    return safetensors.torch.save(apart)


def unpack(content: bytes, path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; `Damaged`, naming `path`, if it is none.

    Each is copied to memory of torch's own: how memory is aligned can change the last bit of a product.
    """
    try:
        return {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
    except Exception as error:  # safetensors has errors of its own, and lets those of torch and struct through
        raise Damaged(f"{path}: is not a safetensors file ({error})") from error


def flatten(value: Any) -> tuple[Any, dict[str, Tensor]]:
    """Takes nested containers apart: a tree JSON can hold, and the tensors its places refer to by name."""
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
    """Puts together again what `flatten` took apart."""
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
