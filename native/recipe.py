"""How the native library is built: sources, flags and instruction sets for each platform.

`setup.py` builds it for this machine, or for the platform that `RRU_PLATFORM` names; `tools/build_wheels.py` does that
for every platform in `PLATFORMS`, with Zig as the compiler.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

NATIVE = Path(__file__).parent


@dataclass(frozen=True)
class InstructionSet:
    """A set of instructions the scans are compiled for; scan/native/library.py chooses one at run time."""

    name: str  # the C++ namespace
    vector_bytes: int
    flags: tuple[str, ...] = ()


PORTABLE = InstructionSet("portable", 16)  # SSE2 on x86_64, NEON on aarch64
AVX2 = InstructionSet("avx2", 32, ("-mavx2", "-mfma"))
AVX512 = InstructionSet("avx512", 64, ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"))


@dataclass(frozen=True)
class Platform:
    """A platform the library can be built for."""

    system: str  # linux, windows or darwin
    machine: str  # x86_64 or aarch64
    zig: str = ""  # the name Zig has for it
    tag: str = ""  # the platform tag of its wheel

    @property
    def library(self) -> str:
        """The file name of the library."""
        return "_native" + {"windows": ".dll", "darwin": ".dylib"}.get(self.system, ".so")

    @property
    def instruction_sets(self) -> tuple[InstructionSet, ...]:
        """The instruction sets in the library."""
        # Portable first: of a standard library function that several have, the linker takes the first one.
        return (PORTABLE, AVX2, AVX512) if self.machine == "x86_64" else (PORTABLE,)

    @property
    def flags(self) -> list[str]:
        """The flags of every compilation."""
        flags = ["-O3", "-std=c++17", "-g0", "-fvisibility=hidden", "-fno-math-errno"]
        if self.system != "windows":
            flags += ["-fPIC", "-pthread"]
        if self.machine == "x86_64":
            flags.append("-DRRU_X86")
        return flags


PLATFORMS = {
    "linux-x86_64": Platform("linux", "x86_64", "x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64.manylinux2014_x86_64"),
    "linux-aarch64": Platform(
        "linux", "aarch64", "aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64.manylinux2014_aarch64"
    ),
    "windows-x86_64": Platform("windows", "x86_64", "x86_64-windows-gnu", "win_amd64"),
    "macos-aarch64": Platform("darwin", "aarch64", "aarch64-macos.11.0", "macosx_11_0_arm64"),
    "macos-x86_64": Platform("darwin", "x86_64", "x86_64-macos.10.15", "macosx_10_15_x86_64"),
}


def this_platform() -> Platform:
    """The platform this Python runs on."""
    machine = platform.machine().lower()
    return Platform(platform.system().lower(), {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine))


def compiler_for(target: Platform) -> list[str]:
    """The command of the C++ compiler: Zig for a platform with a Zig name, else `$CXX` or the first one found."""
    if target.zig:
        return [sys.executable, "-m", "ziglang", "c++", "-target", target.zig]
    if named := os.environ.get("CXX"):
        return shlex.split(named)
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return [found]
    raise FileNotFoundError("no C++ compiler found: install GCC or Clang, or name one with CXX")


def build(target: Platform, library: Path, objects: Path) -> None:
    """Compile the sources once for each instruction set and link them into `library`.

    **Arguments:** `objects`: a folder for the object files.
    """
    compiler = compiler_for(target)
    more = shlex.split(os.environ.get("CXXFLAGS", ""))  # such as those of a sanitizer
    objects.mkdir(parents=True, exist_ok=True)
    library.parent.mkdir(parents=True, exist_ok=True)

    def compile_source(source: str, name: str, flags: list[str]) -> Path:
        result = objects / f"{name}.o"
        _run([*compiler, *target.flags, *flags, *more, "-c", str(NATIVE / source), "-o", str(result)])
        return result

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compile_source, "library.cpp", "library", [])]
        for isa in target.instruction_sets:
            macros = [f"-DRRU_ISA={isa.name}", f"-DRRU_VECTOR_BYTES={isa.vector_bytes}"]
            jobs.append(pool.submit(compile_source, "scans.cpp", isa.name, [*macros, *isa.flags]))
        made = [str(job.result()) for job in jobs]
    strip = [] if target == this_platform() and target.system == "darwin" else ["-s"]  # Apple's linker has no -s
    threads = [] if target.system == "windows" else ["-pthread"]
    _run([*compiler, "-shared", *strip, *threads, *more, *made, "-o", str(library)])


def _run(command: list[str]) -> None:
    print(shlex.join(command), flush=True)
    subprocess.run(command, check=True)
