"""The folder of `--format c`: engine, weights, an example program, and what to compile them with."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from rru.data.own.data_json import SequenceFacts, SeriesFacts
from rru.inference.engine.model import blob
from rru.kinds import kind_of

if TYPE_CHECKING:
    from rru.inference.trained import Trained

WEIGHTS = "model.rru"
SOURCES = ("rru.h", "rru.c", "main.c", "Makefile", "CMakeLists.txt")
FLAGS = ("-std=c99", "-O3", "-march=native", "-ffp-contract=fast")
"""Those of the Makefile."""
MAX_SECONDS = 120  # for compiling and measuring
NOT_MEASURED = "not measured: there was no C compiler"

CALL = """#include "rru.h"

rru_status status;
size_t bytes = rru_size(blob, blob_bytes, &status);  /* 0 if the blob cannot be used: rru_message(status) says why */
rru_model *model = rru_init(blob, blob_bytes, memory, bytes, &status);
"""
STEPS = {
    "compose": """float keys[88] = {0};  /* 1 where a key sounds; key 0 is the MIDI note 21 */
uint8_t next[88];
rru_step(model, keys);
rru_chord(model, 1.0f, 0, next);  /* draws the keys of the next step: temperature 1, any number of voices */
""",
    "write": """rru_step_token(model, token);  /* a number of a token: rru_name says which */
token = rru_token(model, 0.8f, 0);  /* draws the next one: temperature 0.8, among all */
""",
    "classify": """rru_READ(model, STEP);  /* for each step */
rru_predict(model);
rru_chances(model, chances);  /* of each class */
""",
    "forecast": """rru_scaling scaling = rru_scaling_of(model, 0);  /* of the first series that it was trained on */
rru_forecast(model, &scaling, values, count, NULL, quantiles);  /* 2.5, 10, 50, 90 and 97.5 % of each step */
""",
}
"""What a program does in C, by the main command of a kind of data."""
LINES = {
    "compose": "the MIDI notes of a step, separated by spaces; it prints the notes that are likely at the next step",
    "write": "text; it prints how many bits each token took, and what is likely to follow",
    "classify": "the words of a text, or the numbers of a step or of several, separated by commas; it prints the "
    "likeliest classes so far. An empty line begins another sequence",
    "forecast": "the value of a step; it prints the forecast after the last line",
}
"""What a line of input to the example program is."""


def files(trained: Trained, *, int8: bool = False) -> dict[str, bytes]:
    """Return the files of an export for C by name, without its card."""
    weights = {WEIGHTS: blob(trained, int8=int8)}  # raises if the engine cannot run the model
    return weights | {name: resources.files(__package__).joinpath(name).read_bytes() for name in SOURCES}


def usage(trained: Trained, files: Mapping[str, bytes], *, int8: bool = False) -> list[str]:
    """Return what the card says about using the files in C, as lines of Markdown."""
    main = kind_of(trained.kind).commands[0]
    step = STEPS[main]
    if main == "classify":
        read = ("read_token", "token") if trained.vocabulary is not None else ("read", "features")
        step = step.replace("READ", read[0]).replace("STEP", read[1])
    named = ", `--series=NAME` says of which series" if _series(trained) > 1 else ""
    lines = ["The code needs a C99 compiler and nothing else. `rru.h` says what each function does.", ""]
    lines += ["```c", *(CALL + step).splitlines(), "```", ""]
    lines += [f"`make` builds an example, `./main`. Each line of its input is {LINES[main]}{named}.", ""]
    if more := _inputs(trained):
        lines += [more, ""]
    lines += [
        "For a device without files, `./main --array > model.c` writes the weights as an array. They stay where they "
        "are; the engine never allocates memory. On 32-bit processors it takes less than on 64-bit ones. "
        "Define `RRU_PLAIN` to compile it without vector instructions.",
        "",
    ]
    rounding = "int8, each row with its scale" if int8 else "float32"
    rows = {"weights": f"{len(files[WEIGHTS]):,} bytes ({rounding})", **measured(files, of_step=main != "forecast")}
    table = [f"| {name} | {value} |" for name, value in rows.items()]
    return [*lines, "| | on the computer that exported it |", "|---|---|", *table, ""]


def _series(trained: Trained) -> int:
    return len(trained.facts.series) if isinstance(trained.facts, SeriesFacts) else 0


def _inputs(trained: Trained) -> str:
    """Return what the numbers of a step are, if the data has columns."""
    facts = trained.facts
    if isinstance(facts, SequenceFacts):
        return f"The numbers of a step are, in this order: {', '.join(facts.columns)}."
    if isinstance(facts, SeriesFacts) and facts.layout.size:
        known = [*facts.layout.known, *facts.layout.calendar]
        return (
            f"After the value, a line has the inputs of its step: {', '.join([*facts.layout.past, *known])}; a "
            "category has a number for each of its levels, 1 for the one it has. Those known in advance "
            f"({', '.join(known) or 'none'}) can go on for the steps to be forecast, in lines that begin with a comma. "
            "What is missing is taken as its mean."
        )
    return ""


def compiler() -> list[str] | None:
    """Return the command of a C compiler: `$CC`, or the first one found; None if there is none."""
    if named := os.environ.get("CC"):
        return shlex.split(named)
    return next(([path] for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)


def measured(files: Mapping[str, bytes], *, of_step: bool = True) -> dict[str, str]:
    """Compile the files and run the program; return the size of its code and memory, and the time of a step."""
    command, names = compiler(), ("code", "memory, of which state", "a step" if of_step else "a forecast")
    if command is None:
        return dict.fromkeys(names, NOT_MEASURED)
    with tempfile.TemporaryDirectory() as place:
        for name, content in files.items():
            (Path(place) / name).write_bytes(content)
        try:
            _run([*command, *FLAGS, "-c", "rru.c", "-o", "rru.o"], place)
            _run([*command, *FLAGS, "main.c", "rru.o", "-o", "main"], place)
            found = dict(re.findall(r"(\w+) ([\d.]+) ", _run(["./main", "--bench"], place)))
            code = _code_bytes(Path(place) / "rru.o")
        except (OSError, subprocess.SubprocessError):
            return dict.fromkeys(names, NOT_MEASURED)
    sizes = f"{int(found['memory']):,} bytes, {int(found['state']):,} bytes"
    return dict(zip(names, (code, sizes, f"{float(found['step']):.3g} microseconds"), strict=True))


def _run(command: list[str], place: str) -> str:
    ran = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=MAX_SECONDS, check=True)
    return ran.stdout


def _code_bytes(compiled: Path) -> str:
    """Return the bytes of code and constants in an object file."""
    if shutil.which("size") is None:
        return NOT_MEASURED
    numbers = _run(["size", compiled.name], str(compiled.parent)).splitlines()[1].split()
    return f"{int(numbers[0]):,} bytes"
