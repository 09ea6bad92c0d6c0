"""The card of an exported model: what it is, code that uses it and runs as it stands, its results and its data."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rru import data
from rru.kinds import Card, kind_of
from rru.nn import count_parameters
from rru.tasks import SequenceModel
from rru.training.own_code import own_code
from rru.training.run_files import CELL, KIND

if TYPE_CHECKING:
    from rru.inference.trained import Trained

NEEDS = {"safetensors": "rru", "onnx": "onnxruntime and numpy", "torch-export": "torch, numpy and rru"}
"""The packages that the code on a card needs, by format."""
RUN = {
    "safetensors": """import numpy as np
import rru
import torch

trained = rru.load(".")
with torch.no_grad():
    OUTPUT, state = trained.model(torch.from_numpy(inputs))
OUTPUT = OUTPUT.numpy()
""",
    "onnx": """import numpy as np
import onnxruntime

sequence = onnxruntime.InferenceSession("sequence.onnx")
OUTPUT, *state = sequence.run(None, {"input": inputs})  # from the initial state
""",
    "torch-export": """import numpy as np
import rru.nn  # has the operator that the program calls
import torch

inputs = np.repeat(inputs, 2, axis=1)  # the program takes two sequences or more
program = torch.export.load("model.pt2").module()
with torch.no_grad():
    OUTPUT, state = program(torch.from_numpy(inputs))
OUTPUT = OUTPUT.numpy()
""",
}
"""Code that runs a model on `inputs`, by format."""
STEPS = """
step = onnxruntime.InferenceSession("step.onnx")  # the same, step by step
state = dict(np.load("initial_state.npz"))  # (layers, 1, features) each: repeat along axis 1 for a batch
for x in inputs:
    after_step, *after = step.run(None, {"input": x, **state})
    state = dict(zip(state, after))
"""
"""Code that runs the same with ONNX step by step, if the model does not read whole windows."""
OWN_FILES = {"safetensors": (CELL, KIND), "onnx": (), "torch-export": (CELL,), "c": ()}
OWN_CODE = "the model's own code"

_OCTAVE = (
    "The published JSB Chorales, and so this model, are an octave too high: `rru compose --octave -1` for listening."
)


def card(trained: Trained, form: str, use: Sequence[str] | None = None) -> str:
    """Return the model card, in Markdown.

    **Arguments:** `use`: the lines about using the model. Default: code in Python.
    """
    title = f"# {trained.config.model.cell} on {trained.config.title}"
    lines = [*_front_matter(trained, form), title, ""]
    lines += [f"A recurrent model of {count_parameters(trained.model):,} parameters, made with `rru`.", ""]
    lines += ["## Use", "", *(_in_python(trained, form) if use is None else use)]
    lines += [_OCTAVE, ""] if trained.task == "jsb" else []
    lines += ["## Results", "", *_results(trained), ""]
    return "\n".join([*lines, *_data(trained)])


def _in_python(trained: Trained, form: str) -> list[str]:
    """Return how to use the model in Python, as lines of Markdown."""
    about = kind_of(trained.kind).card(trained.trained_on, trained.model)
    lines = [*_own_code(trained, form), *_commands(trained, form)]
    lines += [f"The code needs {NEEDS[form]}. Run it in this folder.", ""]
    lines += ["```python", *_program(trained, about, form).splitlines(), "```", "", f"`inputs`: {about.inputs}.", ""]
    if not isinstance(trained.model, SequenceModel):
        lines += ["All sequences of a batch must be equally long.", ""]
    return lines


def own_files(trained: Trained, form: str) -> dict[str, bytes]:
    """Return the user's own files that an exported model needs, by name; graphs for ONNX and C need none."""
    return {name: source for name, source in own_code(trained.config).items() if name in OWN_FILES[form]}


def _program(trained: Trained, about: Card, form: str) -> str:
    """Return the code that uses the model: all imports, then each part."""
    imports = {f"import {name.removesuffix('.py')}  # {OWN_CODE}" for name in own_files(trained, form)}
    interpret = {"safetensors": about.native, "torch-export": about.program}.get(form, about.interpret)
    parts = []
    run = RUN[form] + (STEPS if form == "onnx" and not trained.model.window_steps else "")
    for part in (about.prepare, run.replace("OUTPUT", about.output), interpret):
        lines = part.splitlines()
        above = {line for line in lines if line.startswith(("import ", "from "))}
        parts.append("\n".join(line for line in lines if line not in above).strip())
        imports |= above
    standard = {line for line in imports if line.split()[1] in sys.stdlib_module_names}
    return "\n\n".join([*_sorted(standard), *_sorted(imports - standard), *parts])


def _sorted(imports: set[str]) -> list[str]:
    """Return lines that import, sorted, as one text; nothing if there is none."""
    lines = sorted(imports, key=lambda line: (line.startswith("from"), line))
    return ["\n".join(lines)] if lines else []


def _own_code(trained: Trained, form: str) -> list[str]:
    """Return what the card says about the user's own cell or kind of data, as lines of Markdown."""
    files = " and ".join(f"`{name}`" for name in own_files(trained, form))
    return [f"The model needs its own code, in {files}. Loading it runs that: read it first.", ""] if files else []


def _commands(trained: Trained, form: str) -> list[str]:
    """Return the commands that use the exported model, as lines of Markdown."""
    if form != "safetensors":
        return []
    cells = "".join(f"--code {name} " for name in list(own_files(trained, form))[:1])
    commands = kind_of(trained.kind).commands
    names = " and ".join(f"`rru {cells}{command}`" for command in commands)
    return [f"Use it with {names}, with this folder as RUN; with `rru.inference.{commands[0]}` in Python; or so:", ""]


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
