"""Checkpoints without pickle: tensors as safetensors, everything else as JSON, in folders written atomically.

A run keeps its last two. Each is a folder such as `checkpoint/000012` with

- `model.safetensors`: the model's `state_dict`;
- `state.safetensors` and `state.json`: optimiser, random generators, carried recurrent state, and counters;
- `manifest.json`: sizes and checksums of these files.
"""

import json
import mmap
import os
import re
import shutil
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from rru.files import Damaged, open_file, own_folder, parse_json, read_folder, write_folder
from rru.training.errors import RunError

MODEL = "model.safetensors"
_TENSORS = "state.safetensors"
_TREE = "state.json"
PACKING = 32 << 20  # bytes that packing needs besides two copies of the tensors
HEADER_LIMIT = 16 << 20  # bytes of the header of a safetensors file
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
        """Write a checkpoint, then remove all others except the last one known to be good.

        If none has been loaded or saved yet, it keeps the newest instead.
        """
        newest = max(self._numbers(), default=0)
        number, before = newest + 1, newest if self._good is None else self._good
        tree, tensors = flatten(checkpoint.state)
        files = {MODEL: pack(checkpoint.model), _TENSORS: pack(tensors), _TREE: json.dumps(tree).encode()}
        write_folder(self._path(number), files)
        for old in self._numbers():
            if old not in (number, before):
                shutil.rmtree(self._path(old), ignore_errors=True)
        self._good = number

    def load(self, model: Mapping[str, Tensor] | None = None) -> tuple[Checkpoint | None, list[str]]:
        """Load the newest undamaged checkpoint.

        Raise RunError if there are checkpoints but all are damaged, because silently starting over would lose work.

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
        """Remove all checkpoints, once the run has ended."""
        for number in self._numbers():
            shutil.rmtree(self._path(number), ignore_errors=True)

    def _numbers(self) -> list[int]:
        names = [path.name for path in own_folder(self.folder).glob("*")]
        return [int(name) for name in names if re.fullmatch(r"[0-9]{6,12}", name)]

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06}"


def read_checkpoint(path: Path, model: Mapping[str, Tensor] | None = None) -> Checkpoint:
    """Read a checkpoint from its folder; raise `Damaged` if a file is missing, changed or too large for the model."""
    files = read_folder(path, limited(model, STATE_FACTOR) if model else _check_header)
    for name in (MODEL, _TENSORS, _TREE):
        if name not in files:
            raise Damaged(f"{path / name}: missing from the manifest")
    tensors = unpack(files[_TENSORS], path / _TENSORS)
    try:
        state = restore(parse_json(files[_TREE]), tensors)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Damaged(f"{path / _TREE}: cannot be read ({error!r})") from error
    if not isinstance(state, dict):
        raise Damaged(f"{path / _TREE}: must hold a dict, holds {type(state).__name__}")
    return Checkpoint(unpack(files[MODEL], path / MODEL), state)


def limited(model: Mapping[str, Tensor], factor: int = 1) -> Callable[[Path], None]:
    """Return a check for `read_folder`: raises `Damaged` for files larger than `factor` models and some slack."""
    most = SLACK + factor * sum(tensor.nbytes for tensor in model.values())

    def check(file: Path) -> None:
        if (size := file.lstat().st_size) > most:
            raise Damaged(f"{file}: has {size} bytes; at most {most} fit this model")
        _check_header(file)

    return check


def _check_header(file: Path) -> None:
    if file.suffix == ".safetensors":
        declared(file)


def _type(name: str) -> str:
    """Return torch's name of a type in a safetensors file, such as F32."""
    for letters, words in (("BF", "bfloat"), ("F", "float"), ("I", "int"), ("U", "uint")):
        if name.startswith(letters) and name.removeprefix(letters).isdigit():
            return words + name.removeprefix(letters)
    return name.lower()


def declared(file: Path) -> dict[str, str]:
    """Read the header of a safetensors file, not its tensors; raise `Damaged` if its sizes are not the file's.

    **Returns:** shape and type of each tensor by name, as in `(2, 3) of float32`.
    """
    try:
        with open_file(file, sys.maxsize) as content:
            size = os.fstat(content.fileno()).st_size
            (length,) = struct.unpack("<Q", content.read(8))
            if length > HEADER_LIMIT:
                raise ValueError(f"its header has {length} bytes; at most {HEADER_LIMIT} are allowed")
            header = parse_json(content.read(length))
        header.pop("__metadata__", None)
        end = max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
        if size != 8 + length + end:
            raise ValueError(f"it has {size} bytes, but its header needs {8 + length + end}")
        return {
            str(name): f"{tuple(map(int, entry['shape']))} of {_type(str(entry['dtype']))}"
            for name, entry in header.items()
        }
    except OSError as error:
        raise Damaged(f"{file}: cannot be read ({error.strerror or error})") from error
    except (struct.error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise Damaged(f"{file}: is not a safetensors file ({error})") from error


def pack(tensors: dict[str, Tensor]) -> bytes:
    """Return the content of a safetensors file with these tensors. Tensors that share memory are stored separately."""
    seen: set[int] = set()
    apart: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    size = sum(each.nbytes for each in apart.values())
    try:
        mmap.mmap(-1, 2 * size + PACKING).close()  # safetensors copies twice, and ends the process if it gets no memory
        return safetensors.torch.save(apart)
    except BaseException as error:
        if isinstance(error, OSError) or type(error).__name__ == "PanicException":  # of safetensors; not an Exception
            raise MemoryError(f"not enough memory to save {size} bytes") from None
        raise


def unpack(content: bytes, path: Path) -> dict[str, Tensor]:
    """Return the tensors in the content of a safetensors file; raise `Damaged`, naming `path`, if it is invalid.

    Copy each tensor to memory allocated by torch, because alignment can change the last bit of a product.
    """
    try:
        return {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
    except Exception as error:  # safetensors raises its own errors and those of torch and struct
        raise Damaged(f"{path}: is not a safetensors file ({error})") from error


def flatten(value: object) -> tuple[object, dict[str, Tensor]]:
    """Split nested containers into a JSON-compatible tree and the tensors it refers to by name."""
    tensors: dict[str, Tensor] = {}

    def visit(value: object, path: str) -> object:
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


def restore(tree: object, tensors: dict[str, Tensor]) -> object:
    """Rebuild the value that `flatten` split."""
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
