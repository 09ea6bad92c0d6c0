"""Compile the C engine and call it from Python."""

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np

from rru.inference.engine.blob import FIELDS

ENGINE = Path(str(resources.files("rru.inference.engine")))
STRICT = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
FAST = ["-O3", "-march=native", "-ffp-contract=fast"]


def zig():
    """Return the command of Zig's compiler, a Clang; None if it is not installed."""
    return [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None


def compilers():
    """Return the compilers that are there, by name, with the flags of a vectorised and of a plain build."""
    names = [name for name in ("gcc", "clang") if shutil.which(name)]
    return [f"{name} {build}" for name in names for build in ("native", "plain")] + (["zig native"] if zig() else [])


def compiled(compiler, folder):
    """Return the engine, compiled as a library, with all warnings as errors."""
    name, build = compiler.split()
    command = zig() if name == "zig" else [name]
    flags = FAST if build == "native" else ["-O2", "-DRRU_PLAIN"]
    library = folder / f"{name}-{build}.so"
    subprocess.run([*command, *STRICT, *flags, "-shared", "-fPIC", ENGINE / "rru.c", "-o", library], check=True)
    return Engine(library)


class Scaling(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("floor", "centre", "unit", "least")] + [("width", ctypes.c_float)]


class Engine:
    """The functions of rru.h."""

    def __init__(self, library):
        self.library = ctypes.CDLL(str(library))
        pointer, floats, size = ctypes.c_void_p, ctypes.POINTER(ctypes.c_float), ctypes.c_size_t
        types = {
            "rru_size": (size, [pointer, size, pointer]),
            "rru_init": (pointer, [pointer, size, pointer, size, pointer]),
            "rru_message": (ctypes.c_char_p, [ctypes.c_int]),
            "rru_reset": (None, [pointer]),
            "rru_step": (floats, [pointer, pointer]),
            "rru_step_token": (floats, [pointer, ctypes.c_uint32]),
            "rru_read": (ctypes.c_int, [pointer, pointer]),
            "rru_number": (ctypes.c_int32, [pointer, ctypes.c_int]),
            "rru_state": (floats, [pointer, pointer]),
            "rru_name": (pointer, [pointer, ctypes.c_uint32, pointer]),
            "rru_scale": (None, [pointer, pointer, pointer]),
            "rru_seed": (None, [pointer, ctypes.c_uint32]),
            "rru_random": (ctypes.c_double, [pointer]),
            "rru_chances": (None, [pointer, pointer]),
            "rru_token": (ctypes.c_uint32, [pointer, ctypes.c_float, ctypes.c_uint32]),
            "rru_chord": (ctypes.c_int, [pointer, ctypes.c_float, ctypes.c_int, pointer]),
            "rru_nats": (ctypes.c_double, [pointer, pointer]),
            "rru_scaling_of": (Scaling, [pointer, ctypes.c_uint32]),
            "rru_forecast": (ctypes.c_int, [pointer, pointer, pointer, size, pointer, pointer]),
        }
        for name, (result, arguments) in types.items():
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("rru_"), function)

    def status(self, content, aligned=True):
        """Return why a blob cannot be used; None if it can."""
        try:
            Model(self, content, aligned)
        except RuntimeError as error:
            return str(error)
        return None

    def model(self, content):
        return Model(self, content)


class Model:
    """A model in its own memory."""

    def __init__(self, engine, content, aligned=True):
        self.engine = engine
        self.room = np.zeros(len(content) + 32, np.uint8)
        start = -self.room.ctypes.data % 16 + (0 if aligned else 4)
        self.content = self.room[start : start + len(content)]
        self.content[:] = np.frombuffer(content, np.uint8)
        status = ctypes.c_int()
        place = self.content.ctypes.data, len(content)
        self.bytes = engine.size(*place, ctypes.byref(status))
        self.memory = np.full(self.bytes + 1, 0xFF, np.uint8)  # floats of it are NaN; not aligned
        self.pointer = self.bytes and engine.init(*place, self.memory.ctypes.data + 1, self.bytes, ctypes.byref(status))
        if not self.pointer:
            raise RuntimeError(engine.message(status.value).decode())

    def __getattr__(self, name):
        if name in FIELDS:
            return self.engine.number(self.pointer, FIELDS.index(name))
        raise AttributeError(name)

    def reset(self):
        self.engine.reset(self.pointer)

    def step(self, features):
        given = np.ascontiguousarray(features, np.float32)
        return self._outputs(self.engine.step(self.pointer, given.ctypes.data))

    def step_token(self, token):
        return self._outputs(self.engine.step_token(self.pointer, token))

    def _outputs(self, pointer):
        return np.ctypeslib.as_array(pointer, (self.logits,)).copy() if pointer else None

    def _state(self):
        count = ctypes.c_size_t()
        pointer = self.engine.state(self.pointer, ctypes.byref(count))
        return np.ctypeslib.as_array(pointer, (count.value,))

    def state(self):
        return self._state().copy()

    def set_state(self, values):
        self._state()[:] = values

    def name(self, index):
        length = ctypes.c_size_t()
        pointer = self.engine.name(self.pointer, index, ctypes.byref(length))
        return ctypes.string_at(pointer, length.value) if pointer else None

    def scaled(self, values):
        result = np.zeros(self.inputs, np.float32)
        given = np.ascontiguousarray(values, np.float64)
        self.engine.scale(self.pointer, given.ctypes.data, result.ctypes.data)
        return result

    def seed(self, seed):
        self.engine.seed(self.pointer, seed)

    def random(self):
        return self.engine.random(self.pointer)

    def chances(self):
        result = np.zeros(self.logits, np.float32)
        self.engine.chances(self.pointer, result.ctypes.data)
        return result

    def token(self, temperature=1.0, most=0):
        return self.engine.token(self.pointer, temperature, most)

    def chord(self, temperature=1.0, voices=0):
        result = np.zeros(self.keys, np.uint8)
        count = self.engine.chord(self.pointer, temperature, voices, result.ctypes.data)
        assert count == result.sum()
        return result

    def nats(self, chord):
        given = np.ascontiguousarray(chord, np.uint8)
        return self.engine.nats(self.pointer, given.ctypes.data)

    def forecast(self, values, number=0, inputs=None, scaling=None):
        given, quantiles = np.array(values, np.float64), np.zeros((self.horizon, 5))
        scaling = self.engine.scaling_of(self.pointer, number) if scaling is None else scaling
        place = None if inputs is None else (inputs := np.ascontiguousarray(inputs, np.float32)).ctypes.data
        done = self.engine.forecast(
            self.pointer, ctypes.byref(scaling), given.ctypes.data, len(given), place, quantiles.ctypes.data
        )
        return quantiles if done else None
