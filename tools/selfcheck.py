"""Run the libraries in the wheels, for every platform this machine can run or emulate.

    python tools/selfcheck.py [dist]

Records calls of the library installed here, which PyTorch confirms (tools/record_calls.py), and replays them on the
library of each wheel (native/selfcheck.cpp): aarch64 under qemu-aarch64, Windows under wine, where these are installed.
On Debian: `apt-get install qemu-user libc6-arm64-cross wine wine64`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "native"))
from recipe import NATIVE, PLATFORMS, Platform, compiler_for, this_platform

ROOT = Path(__file__).parents[1]
EMULATORS = {("linux", "aarch64"): "qemu-aarch64", ("windows", "x86_64"): "wine"}


def emulator(platform: Platform) -> list[str] | None:
    """Return the command that runs a program of this platform, empty if none is needed, None if there is none here."""
    here = this_platform()
    if (platform.system, platform.machine) == (here.system, here.machine):
        return []
    emulator = shutil.which(EMULATORS.get((platform.system, platform.machine), "none"))
    return [emulator] if emulator else None


def check(wheel: Path, platform: Platform, calls: Path, place: Path, command: list[str]) -> None:
    """Build the program for a platform and run it on the wheel's library."""
    with zipfile.ZipFile(wheel) as archive:
        library = archive.extract(f"rru/scan/native/{platform.library}", place)
    program = place / ("selfcheck.exe" if platform.system == "windows" else "selfcheck")
    flags = ["-O1", "-std=c++17", *(["-ldl"] if platform.system == "linux" else [])]
    subprocess.run([*compiler_for(platform), str(NATIVE / "selfcheck.cpp"), *flags, "-o", str(program)], check=True)
    environment = {"QEMU_LD_PREFIX": "/usr/aarch64-linux-gnu", "WINEDEBUG": "-all", **os.environ}
    subprocess.run([*command, str(program), library, str(calls)], check=True, env=environment)


def main() -> None:
    """Check all wheels that can run here; say which cannot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path, nargs="?", default=ROOT / "dist")
    dist: Path = parser.parse_args().dist
    with tempfile.TemporaryDirectory() as temporary:
        calls = Path(temporary) / "calls.bin"
        patient = {**os.environ, "OMP_WAIT_POLICY": "passive"}  # else torch's threads spin on a busy machine
        subprocess.run([sys.executable, str(ROOT / "tools/record_calls.py"), str(calls)], check=True, env=patient)
        for name, platform in PLATFORMS.items():
            command = emulator(platform)
            wheels = sorted(dist.glob(f"*-py3-none-{platform.tag}.whl"))
            if command is None or not wheels:
                print(f"{name}: not checked, {'there is no wheel' if command is not None else 'cannot be run here'}")
                continue
            print(f"{name}{f' under {Path(command[0]).name}' if command else ''}:", flush=True)
            place = Path(temporary) / name
            place.mkdir()
            check(wheels[-1], platform, calls, place, command)


if __name__ == "__main__":
    main()
