"""The cases that `fuzz.py` runs: one function per kind makes a case from random numbers and returns how it ended."""

import json
import random
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

import rru
from rru import data
from rru.data.midi import read_midi
from rru.experiments.search.proposals import Proposals
from rru.files import FileError
from rru.inference.export import export
from rru.inference.loading import load
from rru.inference.trained import Trained
from rru.report.gather import gather
from rru.settings.ranges import Range
from rru.training.checkpoint import Checkpoint, Checkpoints
from tests.attacks.fuzzed_calls import always_wide, fuzzed_call
from tests.attacks.fuzzed_folders import fuzzed_own_data, fuzzed_runs, fuzzed_use
from tests.attacks.hostile import prepare
from tests.attacks.test_fuzz import FORMATS, changed
from tests.attacks.test_midi import OFF, ON, file
from tests.attacks.used import untrained
from tests.data import samples
from tests.report.samples import preset, write_run
from tests.variants import NATIVE, randomize, state_parts

REFUSALS = (ValueError, TypeError, RuntimeError, IndexError, NotImplementedError, MemoryError)
Fuzzer = Callable[[random.Random], str]


def make(name: str, folder: Path) -> Fuzzer:
    """Return the fuzzer of a kind; `folder` is empty and its own."""
    made: dict[str, Callable[[Path], Fuzzer]] = {
        "data": _data,
        "own data": fuzzed_own_data,
        "forged run": fuzzed_runs,
        "used model": fuzzed_use,
        "run folder": _run_folder,
        "weights": _weights,
        "export": _export,
        "study": _study,
        "midi": _midi,
        "layer": lambda folder: _layer,
        "library": lambda folder: fuzzed_call,
    }
    return made[name](folder)


def _changes(draw: random.Random) -> list[tuple[float, str, bytes]]:
    kinds = ("bytes", "insert", "delete", "repeat", "cut")
    return [(draw.random(), draw.choice(kinds), draw.randbytes(draw.randint(1, 8))) for _ in range(draw.randint(1, 5))]


def _ended(reader: str, read: Callable[[], object], *errors: type[Exception]) -> str:
    try:
        read()
    except errors:
        return f"{reader}, refused"
    return f"{reader}, accepted"


def _data(folder: Path) -> Fuzzer:
    def run(draw: random.Random) -> str:
        form = draw.choice(sorted(FORMATS))
        name, file, content, beside = FORMATS[form]
        shutil.rmtree(folder)
        for other, given in beside.items():
            if other != file.removesuffix(".gz"):
                samples.write(folder, other, given)
        samples.write(folder, file, changed(content, _changes(draw)))
        return _ended(f"data, {form}", lambda: prepare(name, folder), data.DataError)

    return run


def _forged(draw: random.Random, depth: int = 0) -> Any:
    plain = [None, True, -1, 5, 1e999, 10**400, 2**70, "", "\x1b[2J", "\ud800", draw.random(), draw.getrandbits(40)]
    if depth < 3 and draw.random() < 0.3:
        inner = [_forged(draw, depth + 1) for _ in range(draw.randint(0, 3))]
        return inner if draw.random() < 0.5 else {str(draw.choice(plain)): value for value in inner}
    return draw.choice(plain)


def _mutated(draw: random.Random, content: Any) -> Any:
    """Replace a value somewhere in a JSON object."""
    if isinstance(content, dict) and content and draw.random() < 0.9:
        key = draw.choice(sorted(content))
        if draw.random() < 0.1:
            return {name: value for name, value in content.items() if name != key}
        return content | {key: _mutated(draw, content[key])}
    return _forged(draw)


def _run_folder(folder: Path) -> Fuzzer:
    whole = write_run(folder / "runs", preset(cell="gru"), 8.5)
    damaged = write_run(folder / "runs", preset(), 7.8)
    original = {path.name: path.read_bytes() for path in damaged.iterdir() if path.is_file()}

    def run(draw: random.Random) -> str:
        name = draw.choice(sorted(original))
        content = changed(original[name], _changes(draw))
        if name.endswith("json") and draw.random() < 0.7:
            content = json.dumps(_mutated(draw, json.loads(original[name]))).encode()
        (damaged / name).write_bytes(content)
        runs = {run.folder: run for run in gather([folder / "runs"])}
        (damaged / name).write_bytes(original[name])
        assert runs[whole].test == 8.5
        return f"{name}, {'damaged' if damaged not in runs or runs[damaged].problems else 'accepted'}"

    return run


def _weights(folder: Path) -> Fuzzer:
    layer = rru.LSTM(3, 4)
    state = {"step": 3, "moments": [torch.zeros(4), torch.zeros(2, 3)], "name": "adam"}
    Checkpoints(folder / "kept").save(Checkpoint(layer.state_dict(), state))
    original = {path.name: path.read_bytes() for path in (folder / "kept" / "000001").iterdir()}

    def checkpoint(draw: random.Random) -> str:
        name = draw.choice(sorted(original))
        files = original | {name: changed(original[name], _changes(draw))}
        if draw.random() < 0.5:  # a manifest that fits
            from rru.files import write_folder

            shutil.rmtree(folder / "run", ignore_errors=True)
            write_folder(folder / "run" / "000001", {key: files[key] for key in files if key != "manifest.json"})
        else:
            for key, content in files.items():
                samples.write(folder / "run" / "000001", key, content)
        return _ended(f"checkpoint, {name}", lambda: Checkpoints(folder / "run").load(layer.state_dict()), FileError)

    return checkpoint


def _export(folder: Path) -> Fuzzer:
    """Return exports that load: of music, and of text with a vocabulary."""
    vocabulary = data.Vocabulary.of("abcdefgh", "characters")
    original: list[dict[str, bytes]] = []
    for config, words in ((preset("jsb", name="smoke"), None), (preset("ptb-chars", name="smoke"), vocabulary)):
        trained = Trained(folder, config, untrained(config, words), words, None, None, None)
        export(trained, folder / config.kind, "safetensors")
        original.append({path.name: path.read_bytes() for path in sorted((folder / config.kind).iterdir())})

    def run(draw: random.Random) -> str:
        files = draw.choice(original)
        name = draw.choice([each for each in files if each != "README.md"])
        content = changed(files[name], _changes(draw))
        if name.endswith("json") and draw.random() < 0.7:
            content = json.dumps(_mutated(draw, json.loads(files[name]))).encode()
        if name.endswith("safetensors") and draw.random() < 0.7:
            content = _forged_header(draw, files[name])
        for key, value in files.items():
            samples.write(folder / "copy", key, content if key == name else value)
        try:
            return _ended(f"export, {name}", lambda: load(folder / "copy"), FileError, data.DataError)
        finally:
            shutil.rmtree(folder / "copy")

    return run


def _forged_header(draw: random.Random, content: bytes) -> bytes:
    """Replace a value in the header of a safetensors file: names, dtypes, shapes and places of its tensors."""
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(_mutated(draw, json.loads(content[8 : 8 + size]))).encode()
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def _study(folder: Path) -> Fuzzer:
    ranges = {"optimiser.lr": Range(1e-4, 1e-2, True)}
    proposals = Proposals(folder, ranges, 0, False)
    proposals.extend(3)
    proposals.tell(0, 1.5)
    journal = folder / "study.journal"
    original = journal.read_bytes()

    def run(draw: random.Random) -> str:
        lines = original.splitlines()
        at = draw.randrange(len(lines))
        lines[at] = json.dumps(_mutated(draw, json.loads(lines[at]))).encode()
        content = b"\n".join(lines) + b"\n"
        journal.write_bytes(content if draw.random() < 0.7 else changed(original, _changes(draw)))
        return _ended("study.journal", lambda: Proposals(folder, ranges, 0, False).trials(), FileError)

    return run


def _midi(folder: Path) -> Fuzzer:
    content = file(*[ON, OFF] * 4)

    def run(draw: random.Random) -> str:
        (folder / "piece.mid").write_bytes(changed(content, _changes(draw)))
        return _ended("midi", lambda: read_midi(folder / "piece.mid", 4), data.DataError, FileError, ValueError)

    return run


def _tensor(draw: random.Random, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a random tensor with any strides: of a transposed, sliced or expanded one, or contiguous."""
    kind = draw.choice(("plain", "plain", "transposed", "sliced", "expanded"))
    if kind == "transposed":
        order = draw.sample(range(len(shape)), len(shape))
        back = [order.index(axis) for axis in range(len(shape))]
        return torch.randn([shape[axis] for axis in order], dtype=dtype).permute(back)
    if kind == "sliced":
        return torch.randn([2 * size for size in shape], dtype=dtype)[tuple(slice(None, None, 2) for _ in shape)]
    if kind == "expanded":  # all rows are the same memory
        return torch.randn([1, *shape[1:]], dtype=dtype).expand(shape)
    return torch.randn(shape, dtype=dtype)


def _lengths(draw: random.Random, batch: int, steps: int) -> torch.Tensor | None:
    kind = draw.choice(("none", "right", "right", "right", "wrong"))
    if kind == "none":
        return None
    if kind == "right" and steps:
        return torch.tensor([draw.randint(1, steps) for _ in range(batch)], dtype=torch.int64)
    return draw.choice(
        (
            torch.tensor([draw.randint(-2, steps + 2) for _ in range(batch)]),
            torch.zeros(batch + 1, dtype=torch.int64),
            torch.full((batch,), 2**40),
            torch.ones(batch),
            torch.tensor(3),
        )
    )


def _layer(draw: random.Random) -> str:
    """Call a layer with random shapes, strides, options and threads; compare what it accepts with the reference."""
    torch.manual_seed(draw.getrandbits(30))
    torch.set_num_threads(draw.randint(1, 4))
    variant, dtype = draw.choice(NATIVE), draw.choice((torch.float32, torch.float64))
    steps, batch, m, n = (draw.choice((0, 1, 2, 5, 17, 33)) for _ in range(4))
    options = {
        "num_layers": draw.randint(1, 2),
        "bidirectional": draw.random() < 0.3,
        "batch_first": draw.random() < 0.3,
        "dropout": draw.choice((0.0, 0.0, 0.5, 0.8)),
    }
    try:
        layer = variant.build(m, n, dtype=dtype, **options)
        reference = type(layer)(m, n, dtype=dtype, **{**variant.options, "backend": "reference"}, **options)
    except REFUSALS:
        return "layer, refused"
    reference.load_state_dict(randomize(layer).state_dict())
    shape = [batch, steps] if options["batch_first"] else [steps, batch]
    if draw.random() < 0.1:
        shape = draw.choice(([steps], [], [0, 0, 0], [batch, steps, 1]))
    x = _tensor(draw, [*shape, m if draw.random() < 0.95 else m + 1], draw.choice((dtype, dtype, dtype, torch.float16)))
    given = {
        "lengths": _lengths(draw, batch, steps),
        "resets": torch.rand(shape) < 0.3 if draw.random() < 0.3 else None,
    }
    state = None
    if draw.random() < 0.4:
        cells, wrong = len(layer.cells), draw.random() < 0.2
        parts = tuple(_tensor(draw, [cells, batch + wrong, n], dtype) for _ in layer.cells[0].state_names)
        state = layer.cells[0].public_state(parts)
    if draw.random() < 0.3 and options["dropout"] == 0:
        layer.eval(), reference.eval()
    grad, rounded = draw.random() < 0.6, draw.random() < 0.2
    try:
        wide = always_wide() if draw.random() < 0.5 else nullcontext()
        with wide, torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16, enabled=rounded):
            results = _run(layer, x, state, given, grad)
    except REFUSALS:
        return "layer, refused"
    if rounded:  # to 8 bits, which the reference does elsewhere
        return "layer, bfloat16, ran"
    torch.set_num_threads(1)  # OpenMP's threads wait for each other for seconds on a busy machine
    with torch.set_grad_enabled(grad):
        expected = _run(reference, x, state, given, grad)
    loose = 1e-2 if dtype == torch.float32 else 1e-6
    if not all(part.isfinite().all() for part in expected):  # gradients may be NaN elsewhere then: docs/performance.md
        forward = len(expected) - grad * len(list(layer.parameters()))
        results, expected = results[:forward], expected[:forward]
    for result, wanted in zip(results, expected, strict=True):
        scale = max(1.0, float(wanted.abs().max())) if wanted.numel() else 1.0
        torch.testing.assert_close(result, wanted, rtol=loose, atol=loose * scale, equal_nan=True)
    return "layer, same as reference"


def _run(layer: Any, x: Any, state: Any, given: dict[str, Any], grad: bool) -> list[torch.Tensor]:
    layer.zero_grad()
    torch.manual_seed(3)
    output, last = layer(x, state, **given)
    results = [output, *state_parts(last)]
    if grad:
        sum(part.sum() for part in results).backward()
        results += [parameter.grad for parameter in layer.parameters()]
    return [result.detach() for result in results]
