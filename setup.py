"""Builds the native scans with whatever C++ compiler is there. Everything else about the package is in pyproject.toml.

The library is plain C++ behind a C interface, opened with ctypes: it needs neither torch nor Python to be built. Where
it cannot be built, the install goes on without it and the layers run on plain PyTorch.
"""

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

X86 = platform.machine().lower() in ("x86_64", "amd64")
# (namespace, register bytes, flags) of each instruction set; dispatch.cpp chooses among them when the library runs.
INSTRUCTION_SETS = [("portable", 16, [])]
if X86:
    INSTRUCTION_SETS += [
        ("avx2", 32, ["-mavx2", "-mfma"]),
        ("avx512", 64, ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"]),
    ]
COMMON = ["-O3", "-std=c++17", "-fvisibility=hidden", "-fno-math-errno"]
if sys.platform == "win32":
    COMMON = ["-O3", "-std=c++17", "-fno-math-errno"]  # clang-cl takes these; MSVC's own compiler has no vector types
elif sys.platform != "darwin":
    COMMON.append("-pthread")


class BuildNative(build_ext):
    """Compiles isa.cpp once for each instruction set and links all of them into one library."""

    def build_extension(self, ext: Extension) -> None:
        if self.compiler.compiler_type == "msvc":
            self.compiler.initialize()
            self.compiler.cc = "clang-cl"
        macros = [("RRU_X86", None)] if X86 else []
        objects = self.compiler.compile(
            ["native/dispatch.cpp"], output_dir=self.build_temp, macros=macros, extra_postargs=COMMON
        )

        def compile_for(name: str, width: int, flags: list[str]) -> list[str]:
            return self.compiler.compile(
                ["native/isa.cpp"],
                output_dir=f"{self.build_temp}/{name}",
                macros=[*macros, ("RRU_ISA", name), ("RRU_VECTOR_BYTES", str(width))],
                extra_postargs=[*COMMON, *flags],
                depends=ext.depends,
            )

        with ThreadPoolExecutor(os.cpu_count()) as pool:  # each waits for a compiler
            for compiled in pool.map(compile_for, *zip(*INSTRUCTION_SETS, strict=True)):
                objects += compiled
        self.compiler.link_shared_object(
            objects,
            self.get_ext_fullpath(ext.name),
            extra_postargs=[] if sys.platform in ("win32", "darwin") else ["-pthread"],
            build_temp=self.build_temp,
            target_lang="c++",
        )

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """The library exports its own functions and no Python module."""
        return []


HEADERS = sorted(str(path) for path in Path("native").glob("*.h"))
setup(
    ext_modules=[
        Extension("rru.scan._native", ["native/dispatch.cpp", "native/isa.cpp"], depends=HEADERS, optional=True)
    ],
    cmdclass={"build_ext": BuildNative},
)
