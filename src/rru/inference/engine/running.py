"""Run the steps of a model in the C engine: compiled here, or as WebAssembly in Node. For checks, not for speed."""

import ctypes
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rru.inference.engine.blob import BLOCKS_I8, FIELDS, ROWS_I8, tensor_types
from rru.inference.engine.folder import FLAGS, MAX_SECONDS, WEIGHTS, compiler

Steps = Callable[[NDArray[np.generic]], tuple[NDArray[np.float32], NDArray[np.float32]]]
"""Takes a sequence, (T,) tokens or (T, m) features; returns the outputs (T, p) and the last state, flat."""

NODE = """
const fs = require("fs"), engine = process.argv[1], { RruModel } = require(engine + "/rru.js");
const modules = ["rru-simd.wasm", "rru.wasm"].map((name) => fs.readFileSync(engine + "/" + name));
RruModel.load(modules, fs.readFileSync(process.argv[2])).then((model) => {
  const steps = JSON.parse(fs.readFileSync(0));
  const outputs = steps.map((x) => Array.from(Array.isArray(x) ? model.step(x) : model.stepToken(x)));
  console.log(JSON.stringify([outputs, Array.from(model.state)]));
}).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
"""


def is_rounded(blob: bytes) -> bool:
    """Return whether a model has matrices in int8."""
    return not {ROWS_I8, BLOCKS_I8}.isdisjoint(tensor_types(blob))


def steps_in_c(blob: bytes) -> Steps:
    """Compile the engine of this package, and return what runs a model in it; raise RuntimeError if that cannot be."""
    command = compiler()
    if command is None:
        raise RuntimeError("there is no C compiler; set CC to the command of one")
    with tempfile.TemporaryDirectory() as place, resources.as_file(resources.files(__package__)) as sources:
        library = Path(place) / "engine.so"
        given = [*command, *FLAGS, "-shared", "-fPIC", str(sources / "rru.c"), "-o", str(library)]
        subprocess.run(given, check=True, capture_output=True, timeout=MAX_SECONDS)
        model = _CModel(ctypes.CDLL(str(library)), blob)
    return model.run


class _CModel:
    """A model in memory of its own."""

    def __init__(self, library: ctypes.CDLL, blob: bytes) -> None:
        self.library = library
        pointer, size, floats = ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_float)
        library.rru_size.restype, library.rru_size.argtypes = size, [pointer, size, pointer]
        library.rru_init.restype, library.rru_init.argtypes = pointer, [pointer, size, pointer, size, pointer]
        library.rru_message.restype = ctypes.c_char_p
        library.rru_reset.argtypes = [pointer]
        library.rru_number.argtypes = [pointer, ctypes.c_int]
        library.rru_step.restype, library.rru_step.argtypes = floats, [pointer, pointer]
        library.rru_step_token.restype, library.rru_step_token.argtypes = floats, [pointer, ctypes.c_uint32]
        library.rru_state.restype, library.rru_state.argtypes = floats, [pointer, pointer]
        self.blob = np.zeros(len(blob) // 8 + 1, np.uint64)  # aligned to 8 bytes
        self.blob.view(np.uint8)[: len(blob)] = np.frombuffer(blob, np.uint8)
        status, place = ctypes.c_int(), (self.blob.ctypes.data, len(blob))
        room = library.rru_size(*place, ctypes.byref(status))
        self.memory = np.zeros(max(room, 1), np.uint8)
        self.model = room and library.rru_init(*place, self.memory.ctypes.data, room, ctypes.byref(status))
        if not self.model:
            raise RuntimeError(library.rru_message(status.value).decode())
        self.logits = library.rru_number(self.model, FIELDS.index("logits"))

    def run(self, sequence: NDArray[np.generic]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        self.library.rru_reset(self.model)
        outputs = np.stack([self._step(x) for x in sequence])
        count = ctypes.c_size_t()
        state = self.library.rru_state(self.model, ctypes.byref(count))
        return outputs, np.ctypeslib.as_array(state, (count.value,)).copy()

    def _step(self, x: NDArray[np.generic]) -> NDArray[np.float32]:
        if x.ndim == 0:
            outputs = self.library.rru_step_token(self.model, int(x))
        else:
            features = np.ascontiguousarray(x, np.float32)
            outputs = self.library.rru_step(self.model, features.ctypes.data)
        return np.ctypeslib.as_array(outputs, (self.logits,)).copy()


def steps_in_node(blob: bytes) -> Steps:
    """Return what runs a model in the WebAssembly of this package; raise RuntimeError if there is no Node."""
    node = shutil.which("node")
    if node is None:
        raise RuntimeError("there is no Node to run WebAssembly")

    def run(sequence: NDArray[np.generic]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        with tempfile.TemporaryDirectory() as place, resources.as_file(resources.files(__package__)) as engine:
            file = Path(place) / WEIGHTS
            file.write_bytes(blob)
            command = [node, "-e", NODE, str(engine), str(file)]
            steps = json.dumps(sequence.tolist())
            ran = subprocess.run(command, input=steps, capture_output=True, text=True, timeout=MAX_SECONDS)
        if ran.returncode:
            raise RuntimeError(ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else "Node failed")
        outputs, state = json.loads(ran.stdout)
        return np.array(outputs, np.float32), np.array(state, np.float32)

    return run
