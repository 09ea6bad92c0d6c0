"""Build the native scans with sanitizers of addresses and undefined behaviour; run their tests and fuzz them.

GCC on Linux. MINUTES sets how long to fuzz.

The build is temporary: the package in src/ keeps its own library.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -O1 -g"  # sanitized, -O3 takes many minutes
NAMES = ("native", "bfloat16", "dense_gradient", "native_library", "native_functions", "narrow", "wide")
TESTS = [f"tests/scan/test_{name}.py" for name in NAMES]


def main() -> None:
    """Build a copy of the package in a temporary folder and run the tests on it."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src" / "rru", Path(folder) / "rru", ignore=shutil.ignore_patterns("_native*"))
        build = [sys.executable, "setup.py", "build_ext", "--build-lib", folder, "--build-temp", f"{folder}/build"]
        subprocess.run(build, cwd=ROOT, check=True, env=os.environ | {"CXXFLAGS": FLAGS})
        environment = os.environ | {
            "LD_PRELOAD": f"{_library('libasan.so')} {_library('libstdc++.so')}",  # the first needs the second to throw
            "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps much memory until the end
            "PYTHONPATH": folder,
        }
        # A sanitizer takes terabytes of addresses, so no limit on them can be set
        tests = [sys.executable, "-m", "pytest", "-q", *TESTS, "-k", "not threads_that_cannot_be_started"]
        subprocess.run(tests, cwd=ROOT, env=environment, check=True)
        minutes = os.environ.get("MINUTES", "1")
        fuzz = [
            sys.executable,
            "-m",
            "tests.attacks.fuzz",
            "--minutes",
            minutes,
            "--only",
            "layer",
            "--only",
            "library",
        ]
        sys.exit(subprocess.run(fuzz, cwd=ROOT, env=environment).returncode)


def _library(name: str) -> str:
    """Return the path of one of GCC's libraries."""
    printed = subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True)
    return printed.stdout.strip()


if __name__ == "__main__":
    main()
