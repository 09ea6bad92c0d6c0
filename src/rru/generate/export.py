"""Trained models for other runtimes: a folder with the model, what it was trained for, and a card that says so."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rru import data
from rru.experiments.execute import VOCABULARY
from rru.generate.output import check_free, plainly
from rru.generate.trained import CONFIG, Trained
from rru.nn import count_parameters
from rru.tasks import SequenceModel
from rru.training import RunError, toml
from rru.training.checkpoint import MODEL, pack
from rru.training.files import write_folder
from rru.training.result import Result

FORMATS = ("safetensors", "onnx", "torch-export")
CARD = "README.md"
STATE = "initial_state.npz"


def export(trained: Trained, folder: Path, form: str) -> list[str]:
    """Writes a model to a new folder, whole or not at all.

    **Arguments:**

    - `trained`: the model.
    - `folder`: where to; must not be there yet.
    - `form`: `safetensors`, which `rru.load` reads; `onnx`, a model over whole sequences and one of a single step;
      `torch-export`, a program for `torch.export.load`.

    **Returns:** the names of the files.
    """
    if form not in FORMATS:
        raise ValueError(f"format must be {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, got {form!r}")
    check_free([folder])
    writers: dict[str, Callable[[Trained], dict[str, bytes]]] = {
        "safetensors": lambda trained: {MODEL: pack(trained.model.state_dict())},
        "onnx": _onnx,
        "torch-export": _program,
    }
    files = writers[form](trained)
    files[CONFIG] = toml.dumps(trained.config).encode()
    if trained.vocabulary is not None:
        files[VOCABULARY] = json.dumps(trained.vocabulary.fields()).encode()
    files[CARD] = card(trained, form).encode()
    check_free([folder])  # nor was it made meanwhile
    with plainly(folder):
        write_folder(folder, files)
    return sorted(files)


def _onnx(trained: Trained) -> dict[str, bytes]:
    try:
        from rru.generate import onnx_graph
    except ImportError as error:
        raise ValueError(f"ONNX is not installed ({error}): `pip install rru[onnx]`") from error
    files = {"sequence.onnx": onnx_graph.sequence_model(trained.model).SerializeToString(deterministic=True)}
    files["step.onnx"] = onnx_graph.step_model(trained.model).SerializeToString(deterministic=True)
    state = trained.model.initial_state(1)  # (layers, 1, n) for each part
    names = trained.model.layers.cells[0].state_names
    parts = (state,) if isinstance(state, Tensor) else state
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **{name: part.numpy() for name, part in zip(names, parts, strict=True)})
    files[STATE] = content.getvalue()
    return files


def _program(trained: Trained) -> dict[str, bytes]:
    """The model over whole sequences, with free time and batch."""
    steps, batch = torch.export.Dim("T", min=2), torch.export.Dim("B", min=2)
    if trained.kind in ("music", "images"):
        inputs = torch.zeros(16, 4, 88 if trained.kind == "music" else 1)
    else:
        inputs = torch.zeros(16, 4, dtype=torch.long)
    program = torch.export.export(trained.model, (inputs,), dynamic_shapes=({0: steps, 1: batch},))
    content = io.BytesIO()
    torch.export.save(program, content)
    return {"model.pt2": content.getvalue()}


_USE = {
    "safetensors": """import rru

trained = rru.load(".")
logits, state = trained.model(inputs)
""",
    "onnx": """import numpy as np
import onnxruntime

sequence = onnxruntime.InferenceSession("sequence.onnx")
logits, *state = sequence.run(None, {"input": inputs})  # from the initial state

step = onnxruntime.InferenceSession("step.onnx")
state = dict(np.load("initial_state.npz"))  # (layers, 1, features) each: repeat along axis 1 for a batch
for x in inputs:
    logits, *after = step.run(None, {"input": x, **state})
    state = dict(zip(state, after))
""",
    "torch-export": """import torch
import rru  # has the operator that the program calls

logits, state = torch.export.load("model.pt2").module()(inputs)
""",
}
_INPUTS = {
    "music": "(steps, batch, 88) float32, 1 where a key sounds; logits are of the keys of the next step",
    "images": "(784, batch, 1) float32, pixels from 0 to 1; logits are of the ten digits",
    "reviews": "(steps, batch) int64, numbers of words in vocabulary.json; logits are of negative and positive",
    "words": "(steps, batch) int64, numbers of words in vocabulary.json; logits are of the next word",
    "characters": "(steps, batch) int64, numbers of characters in vocabulary.json; logits are of the next one",
    "bytes": "(steps, batch) int64, numbers of bytes in vocabulary.json; logits are of the next one",
}


def card(trained: Trained, form: str) -> str:
    """What there is to know of an exported model, in Markdown."""
    entry, model = data.entry(trained.task), trained.config["model"]
    lines = [f"# {model['cell']} on {entry.title}", ""]
    lines += [f"A recurrent model of {count_parameters(trained.model):,} parameters, made with `rru`.", ""]
    lines += ["## Use", "", f"`inputs`: {_INPUTS[trained.kind]}.", "", "```python", _USE[form].rstrip(), "```", ""]
    if not isinstance(trained.model, SequenceModel):
        lines += ["All sequences of a batch must be equally long.", ""]
    lines += ["## Results", "", *_results(trained), ""]
    lines += ["## Data", "", f"{entry.description}", "", f"Licence: {entry.licence}", "", f"Cite: {entry.citation}", ""]
    return "\n".join(lines)


def _results(trained: Trained) -> list[str]:
    """Lines of Markdown that say how well the model did."""
    if trained.epoch is None:
        return ["This was made from another export, which has no results; its card may."]
    if trained.result is None:
        return ["The run had not ended when this was made: there is no test result."]
    result = Result.from_json(trained.result)
    splits = {"validation": result.validation, "test": result.test}
    if not all(isinstance(scores, dict) for scores in splits.values()):
        raise RunError(f"{trained.path}: result.json must hold the metrics of validation and test by name")
    if not result.test:
        return [f"The run is {result.status} ({result.reason}): there is no test result."]
    lines = [f"| split | {' | '.join(result.test)} |", "|---" * (1 + len(result.test)) + "|"]
    for split, scores in splits.items():
        lines += [f"| {split} | {' | '.join(_score(scores.get(name)) for name in result.test)} |"]
    chosen = f"The epoch ({trained.epoch}) was chosen by validation, the test done once."
    return [*lines, "", f"{chosen} Seed {trained.config['schedule']['seed']}.", "All settings are in `config.toml`."]


def _score(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else "not finite"
