"""Install the wheel for this machine into a fresh environment without a compiler, and see that it works.

    python tools/check_install.py [--tests] [dist] [-- arguments of pip]

Check with the core alone: the README's example runs on the native library, a model is trained, loaded and streamed,
and the command `rru` says in one line what to install. With `--tests`: installs `rru[train]`, runs the tests of scans.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ["tests/scan", *(f"tests/nn/test_{name}.py" for name in ("drop_in", "empty_batch", "equations", "gradients"))]
CORE = """
import importlib.metadata, json, sys, tempfile, time, warnings
from pathlib import Path

begin = time.perf_counter()
import torch
torch_is_there = time.perf_counter()
import rru
done = time.perf_counter()
warnings.simplefilter("error")  # such as the one that there is no native library
exec(sys.argv[1])
assert rru.RRU(3, 4, backend="native")(torch.randn(5, 2, 3))[0].shape == (5, 2, 4)

def seconds(backend):
    layer = rru.RRU(88, 200, backend=backend)
    x = torch.randn(100, 16, 88)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        layer(x)[0].sum().backward()
        times.append(time.perf_counter() - start)
    return min(times)

from rru.settings import presets
from rru.training import train_config
folder = Path(tempfile.mkdtemp()) / "run"
train_config(presets.load("bach", "rru", "smoke"), folder)
model = rru.load(folder).model
stream = rru.stream(model)
stream.open(["anna", "ben"])
assert stream.step(["ben"], torch.zeros(1, 88)).shape == (1, 88)
print(json.dumps({
    "packages": len(list(importlib.metadata.distributions())) - 1,  # pip comes with the environment
    "import_torch": round(torch_is_there - begin, 2),
    "import_rru_after_torch": round(done - torch_is_there, 3),
    "times_faster_than_reference": round(seconds("reference") / seconds("native"), 1),
}))
"""


def readme_example() -> str:
    """Return the README's first block of Python."""
    return (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]


def main() -> None:
    """Check the wheel that pip chooses for this machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", action="store_true")
    parser.add_argument("dist", type=Path, nargs="?", default=ROOT / "dist")
    parser.add_argument("pip", nargs="*", help="arguments of pip, such as --extra-index-url")
    chosen = parser.parse_args()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    with tempfile.TemporaryDirectory() as place:
        check(Path(place), chosen.dist.resolve(), version, chosen.pip, tests=chosen.tests)


def check(place: Path, dist: Path, version: str, pip_arguments: list[str], *, tests: bool) -> None:
    """Check in an environment at `place`."""
    venv.create(place / "venv", with_pip=True)
    scripts = place / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    python = str(scripts / "python")
    alone = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CC", "CXX")}
    alone["PATH"] = str(scripts)  # where no compiler is

    def pip(*wanted: str) -> None:
        command = [python, "-m", "pip", "install", "--quiet", "--only-binary", "rru", "--find-links", str(dist)]
        subprocess.run([*command, "-c", str(ROOT / "constraints.txt"), *pip_arguments, *wanted], check=True)

    pip(f"rru=={version}")
    subprocess.run([python, "-c", CORE, readme_example()], check=True, env=alone, cwd=place)
    ran = subprocess.run([scripts / "rru", "train"], env=alone, cwd=place, capture_output=True, text=True)
    if (
        ran.returncode != 1
        or ran.stderr.strip() != "error: typer is not installed; add it to this install: pip install 'rru[train]'"
    ):
        raise SystemExit(f"`rru` without its extra must say in one line what to install, said: {ran.stderr}")
    print(ran.stderr.strip())
    if tests:
        pip(f"rru[train]=={version}", "pytest", "hypothesis")
        for name in ("tests", "pyproject.toml", "CONTRIBUTING.md"):
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, place / "copy" / name)
        subprocess.run([python, "-m", "pytest", "-q", *TESTS], check=True, env=alone, cwd=place / "copy")


if __name__ == "__main__":
    main()
