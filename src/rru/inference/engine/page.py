"""The page of `--format web`: one HTML file with the engine, a model, and what fits its kind of data."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from string import Template
from typing import TYPE_CHECKING

import rru
from rru.data import load as load_data
from rru.data.own.data_json import SequenceFacts, SeriesFacts
from rru.inference import music
from rru.inference.engine.model import blob
from rru.kinds import kind_of
from rru.nn import count_parameters
from rru.tasks.classification import pixel_order

if TYPE_CHECKING:
    from rru.inference.trained import Trained

SCRIPTS = {
    "music": ("midi.js", "sound.js", "roll.js", "keys.js", "music.js"),
    "text": ("field.js", "tokens.js", "bars.js", "text.js"),
    "texts": ("field.js", "tokens.js", "bars.js", "chart.js", "reading.js", "texts.js"),
    "digits": ("bars.js", "chart.js", "reading.js", "digits.js"),
    "sequences": ("field.js", "table.js", "bars.js", "chart.js", "reading.js", "sequences.js"),
    "series": ("field.js", "table.js", "chart.js", "fan.js", "scaling.js", "inputs.js", "series.js"),
}
"""What runs each page, beside rru.js and base.js; a kind of data names its page."""
EMPTY = {
    "texts": "Write or paste a text.",
    "digits": "Draw a digit.",
    "sequences": "Paste a sequence of numbers.",
}
"""What stands in the place of the result before there is one."""
OPENINGS, OPENING_STEPS = 6, 8
"""The chorales, and their steps, that music can begin with."""
Facts = dict[str, object]


def web_page(trained: Trained, *, int8: bool = False) -> bytes:
    """Return a page that runs a model in the browser; raise ValueError if there is none for its kind of data.

    **Arguments:** `int8`: whether weights are rounded to int8.
    """
    name = kind_of(trained.kind).page
    if name not in SCRIPTS:
        raise ValueError(f"there is no page for a model of {trained.kind}: --format onnx or safetensors has it")
    model = blob(trained, int8=int8)  # raises if the engine cannot run the model
    script = "\n".join([_engine("rru.js").decode(), *(part(file) for file in ("base.js", *SCRIPTS[name]))])
    style = part("theme.css") + part("page.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}' 'wasm-unsafe-eval'; style-src '{_digest(style)}'; "
        "img-src data:; connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    texts = {"title": f"rru: {trained.config.title}", "lead": _lead(trained), "version": rru.__version__}
    escaped = {name: html.escape(text) for name, text in texts.items()}
    result = Template(part("result.html").strip()).substitute(empty=EMPTY.get(name, ""))
    filled = {
        "policy": policy,
        "style": style,
        "script": script,
        "content": Template(part(f"{name}.html").strip()).substitute(escaped, result=result),
        "about": _json(_about(trained, name, len(model), int8)),
        "simd": _base64(_engine("rru-simd.wasm")),
        "plain": _base64(_engine("rru.wasm")),
        "model": _base64(model),
    }
    return Template(part("shell.html")).substitute(escaped | filled).encode()


def part(name: str) -> str:
    """Return a file of the sources of pages; the report takes its theme from them too."""
    return resources.files("rru.inference.engine").joinpath("web", name).read_text(encoding="utf-8")


def _engine(name: str) -> bytes:
    return resources.files("rru.inference.engine").joinpath(name).read_bytes()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _digest(text: str) -> str:
    return "sha256-" + _base64(hashlib.sha256(text.encode()).digest())


def _json(value: object) -> str:
    """Return JSON that can stand in a script element: nothing in it can end the element or begin a comment."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _lead(trained: Trained) -> str:
    """Return what the model is, in a sentence."""
    parameters = count_parameters(trained.model)
    learnt = trained.config.title.partition(",")[0]  # without what its settings are
    return f"A recurrent network of {parameters:,} parameters that learnt from {learnt} runs in this page."


def _about(trained: Trained, page: str, model_bytes: int, int8: bool) -> Facts:
    """Return what the page has to know beside the model."""
    size = f"{count_parameters(trained.model):,} parameters, {'int8' if int8 else 'float32'}, {model_bytes:,} bytes"
    about: Facts = {
        "page": page,
        "task": trained.task,
        "title": trained.config.title,
        "context": trained.config.task.context,
        "facts": {"data": trained.config.title, "cell": trained.config.model.cell, "model": size},
    }
    return about | _MORE.get(page, lambda _: {})(trained)


def _music(trained: Trained) -> Facts:
    """Return how music is read, and the beginnings of a few chorales that the package has."""
    pieces = load_data("bach").test[:OPENINGS]
    octave = -1 if trained.task == "jsb" else 0  # the published JSB Chorales are an octave too high
    return {
        "beats_per_bar": music.beats_per_bar(trained),
        "rests": music.keeps_rests(trained),
        "octave": octave,
        "openings": [
            {
                "name": f"a chorale by Bach ({number})",
                "chords": [[int(21 + key) for key in step.nonzero()[0]] for step in piece[:OPENING_STEPS]],
            }
            for number, piece in enumerate(pieces, 1)
        ],
    }


def _digits(trained: Trained) -> Facts:
    return {"order": pixel_order(trained.task).tolist()}


def _sequences(trained: Trained) -> Facts:
    assert isinstance(trained.facts, SequenceFacts)  # every model of sequences has them
    return {"columns": trained.facts.columns, "wide": trained.facts.wide}


def _series(trained: Trained) -> Facts:
    assert isinstance(trained.facts, SeriesFacts)  # every model of series has them
    layout = trained.facts.layout
    known = [scaling.unit for scaling in trained.facts.series.values() if scaling.floor is not None]
    return {
        "target": layout.target,
        "time": layout.time,
        "id": layout.id,
        "past": layout.past,
        "known": layout.known,
        "levels": dict(layout.levels),
        "calendar": layout.calendar,
        "series": list(trained.facts.series),
        "log_unit": known[0] if known else None,
    }


_MORE = {"music": _music, "digits": _digits, "sequences": _sequences, "series": _series}
