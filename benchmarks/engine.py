"""Time a step of models in C, in Python and in onnxruntime, at batch 1 on one thread.

Run `python -m benchmarks.engine`. A time is the shortest of many calls, so that it means something on a busy machine.
`python -m benchmarks.engine RUN` composes 64 bars with a run on music instead, in C and in Python, in processor time.
"""

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import rru
from rru import data
from rru.data.vocabulary import Vocabulary
from rru.inference import compose, load, onnx
from rru.inference.engine.blob import FIELDS
from rru.inference.engine.folder import FLAGS, compiler
from rru.inference.engine.model import blob, layer_blob
from rru.inference.trained import Trained
from rru.kinds import kind_of
from rru.settings import presets
from rru.tasks import Recurrent

ENGINE = Path(rru.__file__).parent / "inference" / "engine"
LAYERS = [(88, 64), (88, 200), (88, 600), (256, 1000)]
TASKS = [
    ("bach", "demo", None),
    ("bach", "best", None),
    ("ptb-chars", "cpu", 51),
    ("ptb-words", "cpu", 10_000),
    ("imdb", "cpu", 10_000),
    ("mnist", "cpu", None),
]
CELLS = {"rru": rru.RRU, "gru": rru.GRU, "lstm": rru.LSTM, "mogrifier": rru.MogrifierLSTM}
SECONDS = 1.5
STEPS, OPENING = 256, 8  # 64 bars of quarter notes, after two


def shortest(call: Callable[[], object]) -> float:
    """Return the microseconds of the shortest of many calls."""
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return 1e6 * best


class InC:
    """A blob in the engine, compiled as an export's Makefile does."""

    def __init__(self, library: ctypes.CDLL, blob: bytes) -> None:
        library.rru_init.restype = ctypes.c_void_p
        library.rru_size.restype = ctypes.c_size_t
        status, self.blob = ctypes.c_int(), np.frombuffer(blob + bytes(16), np.uint8).copy()
        place, size = ctypes.c_void_p(self.blob.ctypes.data), ctypes.c_size_t(len(blob))
        bytes_needed = library.rru_size(place, size, ctypes.byref(status))
        self.memory = np.zeros(bytes_needed, np.uint8)
        room = ctypes.c_void_p(self.memory.ctypes.data), ctypes.c_size_t(bytes_needed)
        self.model = ctypes.c_void_p(library.rru_init(place, size, *room, ctypes.byref(status)))
        inputs = library.rru_number(self.model, FIELDS.index("inputs"))
        self.features = np.random.default_rng(0).standard_normal(inputs).astype(np.float32)
        given = ctypes.c_void_p(self.features.ctypes.data)
        tokens = library.rru_number(self.model, FIELDS.index("tokens"))
        step = library.rru_step_token if tokens else library.rru_step
        self.step = (lambda: step(self.model, 3)) if tokens else (lambda: step(self.model, given))


def compiled(folder: Path) -> ctypes.CDLL:
    """Compile the engine."""
    command = compiler()
    assert command is not None, "there is no C compiler"
    subprocess.run([*command, *FLAGS, "-shared", "-fPIC", ENGINE / "rru.c", "-o", folder / "rru.so"], check=True)
    return ctypes.CDLL(str(folder / "rru.so"))


def in_onnxruntime(model: Recurrent) -> Callable[[], object]:
    """Return a function that runs a step of a model in onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx.step_model(model), options)
    state, names = model.initial_state(1), model.state_names
    parts = (state,) if isinstance(state, torch.Tensor) else state
    given = {"input": model.example(1).numpy()} | {n: part.numpy() for n, part in zip(names, parts, strict=True)}
    return lambda: session.run(None, given)


def compare_layers(library: ctypes.CDLL) -> None:
    """Print a table of single layers."""
    print("| cell | m, n | parameters | stepper | stepper, int8 | C | C, int8 |\n|---|---|---|---|---|---|---|")
    for name, layer_class in CELLS.items():
        for m, n in LAYERS:
            torch.manual_seed(0)
            layer = layer_class(m, n).eval()
            for parameter in layer.parameters():
                torch.nn.init.normal_(parameter, std=0.05)
            x, times = torch.randn(1, m), []
            for each in (layer, layer if name == "mogrifier" else rru.quantize(layer)):
                stepper = each.stepper()
                _, state = stepper(x)
                times.append(shortest(partial(stepper, x, state)))
            times += [shortest(InC(library, layer_blob(layer, int8=int8)).step) for int8 in (False, True)]
            if name == "mogrifier":
                times[1] = float("nan")
            count = sum(parameter.numel() for parameter in layer.parameters())
            print(f"| {name} | {m}, {n} | {count:,} | {' | '.join(f'{each:.1f}' for each in times)} |", flush=True)


def untrained(task: str, preset: str, tokens: int | None) -> Trained:
    """Return a model of a preset before training."""
    config = presets.load(task, "rru", preset)
    kind = kind_of(config.kind)
    vocabulary = Vocabulary.of(map(str, range(tokens - 2)), kind.vocabularies[0]) if tokens else None
    architecture = kind.task.architecture_of(config.task, None, tokens)
    model = architecture.build(config.model.cell, config.model.arguments, config.model.budget).eval()
    return Trained(Path(), config, model, vocabulary, None, None, None)


def compare_models(library: ctypes.CDLL) -> None:
    """Print a table of whole models, with random weights, of the sizes that presets give them."""
    print(
        "\n| task | parameters | float32 bytes | int8 bytes | C | C, int8 | rru.stream | onnxruntime |\n|" + "---|" * 8
    )
    for task, preset, tokens in TASKS:
        trained = untrained(task, preset, tokens)
        model = trained.model
        stream = rru.stream(model)
        stream.open(["a"])
        x = model.example(1)
        blobs = [blob(trained, int8=int8) for int8 in (False, True)]
        times = [shortest(InC(library, content).step) for content in blobs]
        times += [shortest(partial(stream.step, ["a"], x)), shortest(in_onnxruntime(model))]
        count = sum(parameter.numel() for parameter in model.parameters())
        sizes = " | ".join(f"{len(content):,}" for content in blobs)
        print(
            f"| {task} ({preset}) | {count:,} | {sizes} | {' | '.join(f'{each:.1f}' for each in times)} |", flush=True
        )


def composed_in_c(library: ctypes.CDLL, content: bytes, opening: np.ndarray, temperature: float) -> None:
    """Continue a piece, (T, 88), in the engine."""
    in_c, chord = InC(library, content), np.zeros(opening.shape[1], np.uint8)
    drawn = ctypes.c_float(temperature), 0, ctypes.c_void_p(chord.ctypes.data)
    for keys in opening:
        in_c.features[:] = keys
        in_c.step()
    for _ in range(STEPS):
        library.rru_chord(in_c.model, *drawn)
        in_c.features[:] = chord
        in_c.step()


def compare_composing(library: ctypes.CDLL, run: Path) -> None:
    """Print a table of the processor time of 64 bars."""
    trained, opening = load(run), data.load("bach").test[0][:OPENING]
    print("| temperature | C | C, int8 | Python |\n|---|---|---|---|")
    for temperature in (1.0, 0.9):
        times = []
        for call in (
            partial(composed_in_c, library, blob(trained), opening, temperature),
            partial(composed_in_c, library, blob(trained, int8=True), opening, temperature),
            partial(compose, trained, opening, STEPS, temperature=temperature),
        ):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
        print(f"| {temperature} | {' | '.join(f'{each:.2f} s' for each in times)} |", flush=True)


def main() -> None:
    """Compare composing with a run, if one is given; else layers, then models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", type=Path, help="a run on music")
    run = parser.parse_args().run
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        library = compiled(Path(folder))
        if run is not None:
            compare_composing(library, run)
            return
        compare_layers(library)
        compare_models(library)


if __name__ == "__main__":
    main()
