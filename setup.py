"""Builds the native library and names the wheel. Everything else about the package is in pyproject.toml.

The library is plain C++ behind a C interface, opened with ctypes: it needs neither torch nor Python to be built, and
one wheel per platform serves every Python. Where it cannot be built, the install goes on without it, the layers run on
plain PyTorch, and the wheel is named `py3-none-any`.

`RRU_PLATFORM` names another platform to build for, one of `PLATFORMS` in native/recipe.py, or `none` for no library.
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

sys.path.insert(0, str(Path(__file__).parent / "native"))
from recipe import PLATFORMS, Platform, build, this_platform

NAME = os.environ.get("RRU_PLATFORM", "")
if NAME not in ("", "none", *PLATFORMS):
    sys.exit(f"RRU_PLATFORM must be none or one of {', '.join(PLATFORMS)}, got {NAME!r}")
TARGET: Platform = PLATFORMS.get(NAME) or this_platform()


class BuildNative(build_ext):
    """Builds the library by native/recipe.py."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split(".")).with_name(TARGET.library))

    def build_extension(self, ext: Extension) -> None:
        try:
            build(TARGET, Path(self.get_ext_fullpath(ext.name)), Path(self.build_temp) / "native")
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompileError(str(error)) from error  # which an optional extension survives


class NameWheel(bdist_wheel):
    """Names the wheel after the platform alone, and `any` where it has no library."""

    def get_tag(self) -> tuple[str, str, str]:
        command = self.get_finalized_command("build_ext")
        if not any(Path(command.get_ext_fullpath(ext.name)).exists() for ext in self.distribution.ext_modules or []):
            return "py3", "none", "any"
        return "py3", "none", TARGET.tag or super().get_tag()[2]


SOURCES = sorted(str(path) for path in Path("native").iterdir() if path.suffix in (".cpp", ".h", ".py"))
LIBRARY = Extension("rru.scan.native._native", SOURCES, optional=not TARGET.tag)
setup(
    ext_modules=[] if NAME == "none" else [LIBRARY],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": NameWheel},
)
