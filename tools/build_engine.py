"""Compile the C engine to WebAssembly, with and without vector instructions, into the package.

Zig (the package `ziglang`, in the version of constraints.txt) gives the same bytes on every machine, so the results are
in the repository: installing needs no compiler, and tests/inference/test_engine_wasm.py builds them again.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ENGINE = Path(__file__).parents[1] / "src" / "rru" / "inference" / "engine"
FLAGS = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-ffp-contract=off", "-nostdlib", "-g0"]
LINK = ["-Wl,--no-entry", "-Wl,--strip-all", "-Wl,--export=reserve"]
MODULES = {"rru-simd.wasm": ["-mcpu=mvp+simd128"], "rru.wasm": ["-mcpu=mvp", "-DRRU_PLAIN"]}
"""The modules, and what is special about them; browsers without vector instructions take the second."""


def build(name: str, folder: Path) -> Path:
    """Compile a module into a folder, and return it."""
    functions = re.findall(r"\b(rru_\w+)\(", re.sub(r"/\*.*?\*/", "", (ENGINE / "rru.h").read_text(), flags=re.DOTALL))
    exports = [f"-Wl,--export={function}" for function in functions]
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-freestanding"]
    command = [*compiler, *MODULES[name], *FLAGS, *LINK, *exports, "wasm.c", "-o", str((folder / name).resolve())]
    subprocess.run(command, check=True, cwd=ENGINE)  # no path of this machine gets into the module
    return folder / name


def main() -> None:
    """Build both modules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ENGINE, help="where to write them; default: into the package")
    folder = parser.parse_args().folder
    for name in MODULES:
        print(f"{build(name, folder)}: {(folder / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
