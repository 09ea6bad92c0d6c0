"""Exports trained models to a folder with the model, its settings and a model card."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rru import data
from rru.extras import extra
from rru.files import write_folder
from rru.inference.output import check_free
from rru.inference.trained import Trained
from rru.nn import count_parameters
from rru.tasks import JointHead, SequenceModel
from rru.training.checkpoint import MODEL, pack
from rru.training.run_files import ABOUT_DATA, EXPORT_CONFIG, VOCABULARY

FORMATS = ("safetensors", "onnx", "torch-export")
CARD = "README.md"
STATE = "initial_state.npz"
HEAD = "head.npz"


def export(trained: Trained, folder: Path, form: str) -> list[str]:
    """Writes a model to a new folder, in the layout of the Hugging Face Hub. The folder is complete or not there.

    **Arguments:**

    - `trained`: the model.
    - `folder`: the folder to create; raises ValueError if it exists.
    - `form`: `safetensors`: for `rru.load`; `onnx`: one model for whole sequences and one for a single step;
      `torch-export`: a program for `torch.export.load`.

    **Returns:** the names of the files, sorted.
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
    files[EXPORT_CONFIG] = json.dumps(_without_folders(trained.config.tables()), indent=1).encode()
    if trained.about:
        files[ABOUT_DATA] = json.dumps(trained.about, indent=1).encode()
    if trained.vocabulary is not None:
        files[VOCABULARY] = json.dumps(trained.vocabulary.fields()).encode()
    files[CARD] = card(trained, form).encode()
    check_free([folder])  # in case it was created meanwhile
    write_folder(folder, files, manifest=False)  # users may edit the card
    return sorted(files)


def _without_folders(tables: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the tables of a config with only the names of the user's files: folder names are private."""
    if "data" not in tables:
        return tables
    names = {name: Path(value).name for name, value in tables["data"].items() if name in ("path", "valid", "test")}
    return {**tables, "data": {**tables["data"], **names}}


def _onnx(trained: Trained) -> dict[str, bytes]:
    with extra("onnx"):
        from rru.inference import onnx
    files = {"sequence.onnx": onnx.sequence_model(trained.model), "step.onnx": onnx.step_model(trained.model)}
    state = trained.model.initial_state(1)  # (layers, 1, n) for each part
    names = trained.model.layers.cells[0].state_names
    parts = (state,) if isinstance(state, Tensor) else state
    files[STATE] = _npz(dict(zip(names, parts, strict=True)))
    if isinstance(trained.model.head, JointHead):
        files[HEAD] = _npz(trained.model.head.sampling())
    return files


def _npz(tensors: Mapping[str, Tensor]) -> bytes:
    content = io.BytesIO()
    arrays = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def _program(trained: Trained) -> dict[str, bytes]:
    """Returns the exported program for whole sequences, with dynamic time and batch dimensions."""
    steps, batch = torch.export.Dim("T", min=2), torch.export.Dim("B", min=2)
    if trained.model.embedding is None:
        inputs = torch.zeros(16, 4, trained.model.layers.input_size)
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
import rru.nn  # has the operator that the program calls

logits, state = torch.export.load("model.pt2").module()(inputs)
""",
}
_JOINT_USE = {  # with a joint output
    "safetensors": """import torch
import rru

trained = rru.load(".")
conditions, state = trained.model(inputs)
chords = trained.model.head.sample(conditions[-1], torch.Generator())  # (batch, 88): the next step
""",
    "onnx": """import numpy as np
import onnxruntime

head, random = dict(np.load("head.npz")), np.random.default_rng(0)

def sample(conditions):  # of one sequence
    chord = np.zeros(88, np.float32)
    for key in head["order"]:
        logit = conditions[key]
        if "between" in head:  # chain
            logit = logit + head["between"][key] @ chord
        else:  # nade
            hidden = np.maximum(conditions[88:] + chord @ head["to_hidden"], 0)
            logit = logit + hidden @ head["from_hidden"][:, key]
        chord[key] = random.random() < 1 / (1 + np.exp(-logit))
    return chord

step = onnxruntime.InferenceSession("step.onnx")
state = dict(np.load("initial_state.npz"))  # (layers, 1, features) each: repeat along axis 1 for a batch
for x in inputs:
    conditions, *after = step.run(None, {"input": x, **state})
    state = dict(zip(state, after))
chords = np.stack([sample(each) for each in conditions])  # (batch, 88): the next step; feed it back to compose on
""",
    "torch-export": """import torch
import rru.nn  # has the operator that the program calls

conditions, state = torch.export.load("model.pt2").module()(inputs)
""",
}
_SERIES_USE = """from rru import inference

trained = inference.load(".")
for one in inference.forecast(trained, "new.csv"):
    print(one.name, one.quantiles)  # (horizon, 5)
"""
_JOINT = (
    "(steps, batch, 88) float32, 1 where a key sounds; conditions say how probable the chords of the next step are, "
    "together with the weights of the head"
)
_OCTAVE = (
    "The published JSB Chorales, and so this model, are an octave too high: `rru compose --octave -1` for listening."
)
_INPUTS = {
    "music": "(steps, batch, 88) float32, 1 where a key sounds; logits are of the keys of the next step",
    "images": "(784, batch, 1) float32, pixels from 0 to 1; logits are of the ten digits",
    "reviews": "(steps, batch) int64, numbers of words in vocabulary.json; logits are of negative and positive",
    "words": "(steps, batch) int64, numbers of words in vocabulary.json; logits are of the next word",
    "characters": "(steps, batch) int64, numbers of characters in vocabulary.json; logits are of the next one",
    "bytes": "(steps, batch) int64, numbers of bytes in vocabulary.json; logits are of the next one",
    "texts": "(steps, batch) int64, numbers of words in vocabulary.json; logits are of the classes in data.json",
    "series": "(context + horizon, batch, features) float32, windows as `rru.tasks.Windows` makes them; logits are the "
    "2.5, 10, 50, 90 and 97.5 % quantiles of each step, which `Windows.forecasts` turns into the units of the file. "
    "The steps of the context have no meaning",
    "sequences": "(steps, batch, columns) float32, scaled as data.json says; logits are of the classes there",
}
_PIPELINES = {  # the Hub's task names
    "images": "image-classification",
    "reviews": "text-classification",
    "texts": "text-classification",
    "words": "text-generation",
    "characters": "text-generation",
    "bytes": "text-generation",
}


def card(trained: Trained, form: str) -> str:
    """Returns the model card, in Markdown."""
    title = f"# {trained.config.model.cell} on {trained.config.title}"
    lines = [*_front_matter(trained, form), title, ""]
    lines += [f"A recurrent model of {count_parameters(trained.model):,} parameters, made with `rru`.", ""]
    joint = isinstance(trained.model.head, JointHead)
    inputs, use = (_JOINT, _JOINT_USE[form]) if joint else (_INPUTS[trained.kind], _USE[form])
    if trained.kind == "series" and form == "safetensors":
        use = _SERIES_USE
    lines += ["## Use", "", f"`inputs`: {inputs}.", "", "```python", use.rstrip(), "```", ""]
    lines += [_OCTAVE, ""] if trained.task == "jsb" else []
    if not isinstance(trained.model, SequenceModel):
        lines += ["All sequences of a batch must be equally long.", ""]
    lines += ["## Results", "", *_results(trained), ""]
    return "\n".join([*lines, *_data(trained)])


def _data(trained: Trained) -> list[str]:
    """Returns the section of the card about the data, as lines of Markdown."""
    if trained.config.data is not None:
        return ["## Data", "", f"{trained.config.title}: {trained.about.get('summary', '')}.", ""]
    about = data.data_set(trained.task)
    return ["## Data", "", f"{about.description}", "", f"Licence: {about.licence}", "", f"Cite: {about.citation}", ""]


def _front_matter(trained: Trained, form: str) -> list[str]:
    """Returns the YAML metadata for the Hugging Face Hub, as lines. Values are written as JSON, a subset of YAML."""
    title, cell = trained.config.title, trained.config.model.cell
    fields: dict[str, object] = {
        "library_name": "rru",
        "license": "unknown",
        "tags": list(dict.fromkeys(["rru", "recurrent-neural-network", cell, *(["onnx"] if form == "onnx" else [])])),
    }
    if (kind := _PIPELINES.get(trained.kind)) is not None:
        fields["pipeline_tag"] = kind
    result = trained.result
    scores = {name: value for name, value in (result.test if result else {}).items() if isinstance(value, int | float)}
    if scores:
        fields["metrics"] = list(scores)
        found = {
            "task": {"type": kind or "other"},
            "dataset": {"type": trained.task, "name": title, "split": "test"},
            "metrics": [{"type": name, "value": value} for name, value in scores.items()],
        }
        fields["model-index"] = [{"name": f"{cell} on {title}", "results": [found]}]
    return ["---", *(f"{name}: {json.dumps(value)}" for name, value in fields.items()), "---", ""]


def _results(trained: Trained) -> list[str]:
    """Returns the results section of the card, as lines of Markdown."""
    if trained.epoch is None:
        return ["Made from another export, which stores no results; see its model card."]
    result = trained.result
    if result is None:
        return ["The run had not finished when this was exported: there is no test result."]
    splits = {"validation": result.validation, "test": result.test}
    if not result.test:
        return [f"The run is {result.status} ({result.reason}): there is no test result."]
    lines = [f"| split | {' | '.join(result.test)} |", "|---" * (1 + len(result.test)) + "|"]
    for split, scores in splits.items():
        lines += [f"| {split} | {' | '.join(_score(scores.get(name)) for name in result.test)} |"]
    chosen = f"The epoch ({trained.epoch}) was selected by validation; the test set was evaluated once."
    return [*lines, "", f"{chosen} Seed {trained.config.schedule.seed}.", "All settings are in `config.json`."]


def _score(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else "not finite"
