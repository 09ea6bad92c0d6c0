"""Build the sdist and a wheel for every platform, on one machine, and check what is in them.

    python tools/build_wheels.py [--only linux-x86_64 ...] [--output dist]

Zig (the package `ziglang`) compiles for all platforms. Each wheel is built from the sdist, so that one is complete too.
Needs: auditwheel, build, macholib, pefile, setuptools >= 77, ziglang. `make wheels` installs them and runs this.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "native"))
from recipe import PLATFORMS, Platform

ROOT = Path(__file__).parents[1]
FOLDER = "rru/scan/native/"  # where the library is in a wheel
SYSTEM_LIBRARIES = {  # what a library may need from a system; auditwheel knows it for Linux
    "windows": ("kernel32.dll", "ntdll.dll", "api-ms-win-crt-"),
    "darwin": ("/usr/lib/libSystem.B.dylib",),
}


@dataclass(frozen=True)
class Built:
    """A wheel and what was found in it."""

    wheel: Path
    library_size: int
    needs: str


def run_build(source: Path, output: Path, *arguments: str, platform: str = "") -> Path:
    """Run `python -m build` on a folder and return the new file."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "build", "--no-isolation", *arguments, "--outdir", place, str(source)]
        subprocess.run(command, check=True, env={**os.environ, "RRU_PLATFORM": platform})
        (file,) = Path(place).iterdir()
        output.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(file, output))


def build_wheel(sdist: Path, name: str, output: Path) -> Path:
    """Build the wheel of a platform, or of `none`, from the unpacked sdist."""
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(sdist) as archive:
            archive.extractall(place, filter="data")
        (source,) = Path(place).iterdir()
        return run_build(source, output, "--wheel", platform=name)


def check_wheel(wheel: Path, platform: Platform | None) -> Built:
    """Raise unless the wheel is named for its platform, has its library alone, and that needs only the system."""
    tag = platform.tag if platform else "any"
    if not wheel.name.endswith(f"-py3-none-{tag}.whl"):
        raise SystemExit(f"{wheel.name}: must be tagged py3-none-{tag}")
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if name.endswith((".so", ".dll", ".dylib", ".pyd"))]
        expected = [FOLDER + platform.library] if platform else []
        if libraries != expected:
            raise SystemExit(f"{wheel.name}: must have the libraries {expected}, has {libraries}")
        if platform is None:
            return Built(wheel, 0, "-")
        content = archive.read(libraries[0])
    return Built(
        wheel,
        len(content),
        {"linux": _linux, "windows": _windows, "darwin": _macos}[platform.system](wheel, platform, content),
    )


def _linux(wheel: Path, platform: Platform, content: bytes) -> str:
    """Ask auditwheel which manylinux tag the symbols allow."""
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    answer = " ".join(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    newest = platform.tag.partition(".")[0]
    if f'consistent with the following platform tag: "{newest}"' not in answer:
        raise SystemExit(f"{wheel.name}: auditwheel does not allow {newest}: {answer}")
    return f"auditwheel: {newest}"


def _windows(wheel: Path, platform: Platform, content: bytes) -> str:
    import pefile

    image = pefile.PE(data=content)
    return _needs(wheel, platform, [entry.dll.decode().lower() for entry in image.DIRECTORY_ENTRY_IMPORT])


def _macos(wheel: Path, platform: Platform, content: bytes) -> str:
    from macholib.mach_o import LC_LOAD_DYLIB
    from macholib.MachO import MachO

    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        (header,) = MachO(file.name).headers
    needed = [data.rstrip(b"\0").decode() for load, _, data in header.commands if load.cmd == LC_LOAD_DYLIB]
    return _needs(wheel, platform, needed)


def _needs(wheel: Path, platform: Platform, needed: list[str]) -> str:
    for name in needed:
        if not name.startswith(SYSTEM_LIBRARIES[platform.system]):
            raise SystemExit(f"{wheel.name}: its library needs {name}, which not every system has")
    groups = {"api-ms-win-crt" if name.startswith("api-ms-win-crt") else Path(name).name for name in needed}
    return "needs " + ", ".join(sorted(groups))


def table(built: list[Built], sdist: Path) -> str:
    """Return a Markdown table of what was built."""
    lines = ["| file | size | library | checked |", "|---|---|---|---|"]
    for entry in built:
        sizes = f"{entry.wheel.stat().st_size / 1e6:.2f} MB | {entry.library_size / 1e6:.2f} MB"
        lines.append(f"| {entry.wheel.name} | {sizes} | {entry.needs} |")
    sdist_size = f"{sdist.stat().st_size / 1e6:.2f} MB"
    return "\n".join([*lines, f"| {sdist.name} | {sdist_size} | - | every wheel is built from it |\n"])


def main() -> None:
    """Build and check everything, then print a table."""
    names = [*PLATFORMS, "none"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PLATFORM", help=", ".join(names))
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    chosen = parser.parse_args()
    sdist = run_build(ROOT, chosen.output, "--sdist")
    wheels = {name: build_wheel(sdist, name, chosen.output) for name in chosen.only}
    print(table([check_wheel(wheel, PLATFORMS.get(name)) for name, wheel in wheels.items()], sdist))


if __name__ == "__main__":
    main()
