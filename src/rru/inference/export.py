"""Export trained models to a folder with the model, its settings and a model card."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from rru.files import write_folder
from rru.inference import engine
from rru.inference.card import card, own_files
from rru.inference.output import check_free, write_files
from rru.settings.config import Tables
from rru.tasks import ChordNetwork, ChordStep, LinearJointHead
from rru.training.checkpoint import MODEL, pack
from rru.training.run_files import ABOUT_DATA, EXPORT_CONFIG, VOCABULARY, about_content

if TYPE_CHECKING:
    from rru.inference.trained import Trained

FORMATS = ("safetensors", "onnx", "torch-export", "c", "web")
ROUNDED = ("c", "web")
"""The formats whose weights can be int8."""
CARD = "README.md"
STATE = "initial_state.npz"
HEAD = "head.npz"
CHORD_STATE = "chord_state.npz"
ADVICE = "choose another name, or remove it first"


def export(trained: Trained, folder: Path, form: str, *, int8: bool = False) -> list[str]:
    """Write a model to a new folder, in the layout of the Hugging Face Hub, or to a page. It is complete or not there.

    **Arguments:**

    - `trained`: the model.
    - `folder`: the folder to create, or the .html file for `web`; raises ValueError if it exists.
    - `form`: `safetensors`: for `rru.load`; `onnx`: one model for whole sequences and one for a single step;
      `torch-export`: a program for `torch.export.load`; `c`: C sources without dependencies, and the weights;
      `web`: one page that runs the model in any browser, without a server.
    - `int8`: whether weights are rounded to int8, for `c` and `web`.

    **Returns:** the names of the files, sorted.
    """
    if form not in FORMATS:
        raise ValueError(f"format must be {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, got {form!r}")
    if int8 and form not in ROUNDED:
        raise ValueError(
            f"int8 is for the format {' or '.join(ROUNDED)}, got {form!r}; `rru.quantize` rounds in Python"
        )
    check_free([folder], ADVICE)
    if form == "web":
        return _page(trained, folder, int8=int8)
    writers: dict[str, Callable[[Trained], dict[str, bytes]]] = {
        "safetensors": lambda trained: {MODEL: pack(trained.model.state_dict())},
        "onnx": _onnx,
        "torch-export": _program,
        "c": lambda trained: engine.files(trained, int8=int8),
    }
    files = writers[form](trained)
    files[EXPORT_CONFIG] = json.dumps(_without_folders(trained.config.tables()), indent=1).encode()
    if trained.facts is not None:
        files[ABOUT_DATA] = about_content(trained.facts.fields())
    if trained.vocabulary is not None:
        files[VOCABULARY] = json.dumps(trained.vocabulary.fields()).encode()
    files |= own_files(trained, form)
    use = engine.usage(trained, files, int8=int8) if form == "c" else None
    files[CARD] = card(trained, form, use).encode()
    check_free([folder], ADVICE)  # in case it was created meanwhile
    write_folder(folder, files, manifest=False)  # users may edit the card
    return sorted(files)


def _page(trained: Trained, path: Path, *, int8: bool) -> list[str]:
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the output of format web must be an .html file, got {path}")
    write_files({path: engine.web_page(trained, int8=int8)})
    return [path.name]


def _without_folders(tables: Tables) -> Tables:
    """Return the tables of a config with only the names of the user's files: folder names are private."""
    if "data" not in tables:
        return tables
    names = {name: Path(value).name for name, value in tables["data"].items() if name in ("path", "valid", "test")}
    return {**tables, "data": {**tables["data"], **names}}


def _onnx(trained: Trained) -> dict[str, bytes]:
    from rru.inference import onnx

    files = {"sequence.onnx": onnx.sequence_model(trained.model)}
    if trained.model.window_steps:  # it reads whole windows, not steps
        return files
    files["step.onnx"] = onnx.step_model(trained.model)
    state = trained.model.initial_state(1)  # (layers, 1, n) for each part
    names = trained.model.state_names
    parts = (state,) if isinstance(state, Tensor) else state
    files[STATE] = _npz(dict(zip(names, parts, strict=True)))
    if isinstance(trained.model.head, ChordNetwork):
        files["chord.onnx"] = onnx.chord_model(trained.model.head)
    return files | _head(trained)


def _head(trained: Trained) -> dict[str, bytes]:
    """Return the weights with which a joint output samples chords, or the initial state of its network over keys."""
    head = trained.model.head
    if isinstance(head, ChordNetwork):
        names = head.layers.cells[0].state_names
        return {CHORD_STATE: _npz(dict(zip(names, ChordStep(head).initial_state(1), strict=True)))}
    return {HEAD: _npz(head.sampling())} if isinstance(head, LinearJointHead) else {}


def _npz(tensors: Mapping[str, Tensor]) -> bytes:
    content = io.BytesIO()
    arrays = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def _program(trained: Trained) -> dict[str, bytes]:
    """Return the exported program for whole sequences, with dynamic time and batch dimensions."""
    steps, batch = torch.export.Dim("T", min=2), torch.export.Dim("B", min=2)
    window = trained.model.window_steps
    inputs = (trained.model.example(window or 16, 4),)
    shapes = ({1: batch} if window else {0: steps, 1: batch},)
    files = {"model.pt2": _exported(trained.model, inputs, shapes)}
    if isinstance(trained.model.head, ChordNetwork):
        step = ChordStep(trained.model.head)
        key, conditions, chord, *state = step.example(4)
        chord_shapes = (None, {0: batch}, {0: batch}, ({1: batch},) * len(state))
        files["chord.pt2"] = _exported(step, (key, conditions, chord, *state), chord_shapes)
    return files | _head(trained)


def _exported(module: nn.Module, inputs: tuple[Tensor, ...], shapes: Any) -> bytes:
    content = io.BytesIO()
    torch.export.save(torch.export.export(module.eval(), inputs, dynamic_shapes=shapes), content)
    return content.getvalue()
