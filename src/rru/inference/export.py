"""Export trained models to a folder with the model, its settings and a model card."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rru import data
from rru.extras import extra
from rru.files import write_folder
from rru.inference.output import check_free
from rru.inference.trained import Trained
from rru.kinds import kind_of
from rru.nn import count_parameters
from rru.settings.config import Tables
from rru.tasks import JointHead, SequenceModel
from rru.training.checkpoint import MODEL, pack
from rru.training.run_files import ABOUT_DATA, EXPORT_CONFIG, VOCABULARY

FORMATS = ("safetensors", "onnx", "torch-export")
CARD = "README.md"
STATE = "initial_state.npz"
HEAD = "head.npz"


def export(trained: Trained, folder: Path, form: str) -> list[str]:
    """Write a model to a new folder, in the layout of the Hugging Face Hub. The folder is complete or not there.

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
    if trained.facts is not None:
        files[ABOUT_DATA] = json.dumps(trained.facts.fields(), indent=1).encode()
    if trained.vocabulary is not None:
        files[VOCABULARY] = json.dumps(trained.vocabulary.fields()).encode()
    files[CARD] = card(trained, form).encode()
    check_free([folder])  # in case it was created meanwhile
    write_folder(folder, files, manifest=False)  # users may edit the card
    return sorted(files)


def _without_folders(tables: Tables) -> Tables:
    """Return the tables of a config with only the names of the user's files: folder names are private."""
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
    """Return the exported program for whole sequences, with dynamic time and batch dimensions."""
    steps, batch = torch.export.Dim("T", min=2), torch.export.Dim("B", min=2)
    inputs = (trained.model.example(16, 4),)
    program = torch.export.export(trained.model, inputs, dynamic_shapes=({0: steps, 1: batch},))
    content = io.BytesIO()
    torch.export.save(program, content)
    return {"model.pt2": content.getvalue()}


_OCTAVE = (
    "The published JSB Chorales, and so this model, are an octave too high: `rru compose --octave -1` for listening."
)


def card(trained: Trained, form: str) -> str:
    """Return the model card, in Markdown."""
    title = f"# {trained.config.model.cell} on {trained.config.title}"
    lines = [*_front_matter(trained, form), title, ""]
    lines += [f"A recurrent model of {count_parameters(trained.model):,} parameters, made with `rru`.", ""]
    about = kind_of(trained.kind).card(trained.model)
    lines += ["## Use", "", f"`inputs`: {about.inputs}.", "", "```python", about.code[form].rstrip(), "```", ""]
    lines += [_OCTAVE, ""] if trained.task == "jsb" else []
    if not isinstance(trained.model, SequenceModel):
        lines += ["All sequences of a batch must be equally long.", ""]
    lines += ["## Results", "", *_results(trained), ""]
    return "\n".join([*lines, *_data(trained)])


def _data(trained: Trained) -> list[str]:
    """Return the section of the card about the data, as lines of Markdown."""
    if trained.facts is not None:
        return ["## Data", "", f"{trained.config.title}: {trained.facts.summary}.", ""]
    about = data.data_set(trained.task)
    return ["## Data", "", f"{about.description}", "", f"Licence: {about.licence}", "", f"Cite: {about.citation}", ""]


def _front_matter(trained: Trained, form: str) -> list[str]:
    """Return the YAML metadata for the Hugging Face Hub, as lines. Values are written as JSON, a subset of YAML."""
    title, cell = trained.config.title, trained.config.model.cell
    fields: dict[str, object] = {
        "library_name": "rru",
        "license": "unknown",
        "tags": list(dict.fromkeys(["rru", "recurrent-neural-network", cell, *(["onnx"] if form == "onnx" else [])])),
    }
    if (pipeline := kind_of(trained.kind).pipeline) is not None:
        fields["pipeline_tag"] = pipeline
    result = trained.result
    scores = {name: value for name, value in (result.test if result else {}).items() if isinstance(value, int | float)}
    if scores:
        fields["metrics"] = list(scores)
        scored = {
            "task": {"type": pipeline or "other"},
            "dataset": {"type": trained.task, "name": title, "split": "test"},
            "metrics": [{"type": name, "value": value} for name, value in scores.items()],
        }
        fields["model-index"] = [{"name": f"{cell} on {title}", "results": [scored]}]
    return ["---", *(f"{name}: {json.dumps(value)}" for name, value in fields.items()), "---", ""]


def _results(trained: Trained) -> list[str]:
    """Return the results section of the card, as lines of Markdown."""
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
