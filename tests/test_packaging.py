"""Installing the package: light dependencies, every system, consistent metadata."""

import importlib.util
import shutil
import struct
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import rru
from rru.extras import MissingExtraError, extra
from tools import record_calls

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "rru").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
UNIX = ["fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"]
BLOCKER = """
import importlib, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
for name in BLOCKED:
    sys.modules.pop(name, None)
"""


HOSTS = ("sklearn", "sktime", "darts", "neuralforecast")
HOST_MODULES = [f"rru.integrations.{host}" for host in HOSTS]


def run_without(blocked, program):
    """Run a program in a Python that has none of these modules."""
    code = f"BLOCKED = {sorted(blocked)!r}{BLOCKER}{program}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)


MISSING = "is not installed; add it to this install: pip install 'rru[train]'"


def extra_packages():
    names = {requirement.split(">")[0] for requirement in PROJECT["optional-dependencies"]["train"]}
    names = {"PIL" if name == "pillow" else name for name in names}
    return names - {"jinja2", "markupsafe"}  # these torch itself brings


def test_the_core_depends_on_torch_numpy_safetensors_and_filelock_alone():
    names = {requirement.split(">")[0] for requirement in PROJECT["dependencies"]}
    assert names == {"torch", "numpy", "safetensors", "filelock"}


def test_the_core_trains_loads_and_streams_without_the_extras(tmp_path):
    program = f"""
from pathlib import Path
import torch, rru
from rru.settings import presets
from rru.training import train_config
run = Path({str(tmp_path / "run")!r})
train_config(presets.override(presets.load("bach", "rru", "smoke"), ["limit=2", "evaluation_limit=2"]), run)
stream = rru.stream(rru.load(run).model)
stream.open(["anna"])
print(tuple(stream.step(["anna"], torch.zeros(1, 88)).shape))
"""
    ran = run_without(extra_packages(), program)
    assert ran.stdout.strip() == "(1, 88)", ran.stderr


def test_command_without_its_extra_prints_what_to_install():
    ran = run_without(extra_packages(), "from rru.cli import main; main()")
    assert (ran.returncode, ran.stderr) == (1, f"error: typer {MISSING}\n")


def test_functions_without_their_extra_name_what_to_install(monkeypatch):
    monkeypatch.delenv("RRU_CACHE_DIR", raising=False)
    program = """
from rru import data, inference
def search():
    from rru.experiments.search import study
for function in (search, data.cache_dir, lambda: inference.read_midi("README.md", 4)):
    try:
        function()
    except ImportError as error:
        print(error)
"""
    ran = run_without(extra_packages(), program)
    packages = ("optuna", "pooch", "mido")
    assert ran.stdout == "".join(f"{name} {MISSING}\n" for name in packages), ran.stderr


def test_modules_of_hosts_without_these_name_what_to_install():
    hosts = ("sklearn", "darts", "neuralforecast")
    program = f"""
import importlib
for host in {hosts!r}:
    try:
        importlib.import_module(f"rru.integrations.{{host}}")
    except ImportError as error:
        print(error)
"""
    missing = "{0} is not installed; add it to this install: pip install 'rru[{0}]'\n"
    assert run_without(hosts, program).stdout == "".join(map(missing.format, hosts))


def test_every_host_has_an_extra():
    assert set(HOSTS) <= set(PROJECT["optional-dependencies"])


def test_the_extra_of_onnx_also_runs_what_it_exports():
    assert {"onnxruntime", "onnxscript"} <= set(PROJECT["optional-dependencies"]["onnx"])


def test_missing_module_of_the_package_is_not_a_missing_extra():
    with pytest.raises(ModuleNotFoundError, match=r"rru\.nowhere"), extra("train"):
        importlib.import_module("rru.nowhere")
    with pytest.raises(MissingExtraError, match="nowhere is not installed"), extra("train"):
        importlib.import_module("nowhere")


def test_every_module_can_be_imported_where_there_are_no_unix_modules():
    """As on Windows. Other packages are imported before, as they have their own ways there."""
    modules = [".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in SOURCES]
    modules = [name.removesuffix(".__init__") for name in modules if not name.endswith("__main__")]
    modules = [name for name in modules if ".triton" not in name]  # imported only where Triton is
    modules = [name for name in modules if name not in HOST_MODULES]  # imported only where their hosts are
    program = f"""
import importlib, sys
import filelock, mido, numpy, onnx, optuna, PIL.Image, pooch, ray, requests, rich.progress, safetensors.torch, torch
import multiprocessing.resource_tracker, tarfile, typer
for name in {UNIX!r}:
    sys.modules[name] = None
for name in {modules!r}:
    importlib.import_module(name)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr


def test_version_changelog_and_citation_agree():
    version = PROJECT["version"]
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def recipe():
    spec = importlib.util.spec_from_file_location("recipe", ROOT / "native" / "recipe.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["recipe"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_library_is_found_under_its_build_name():
    here = recipe().this_platform().library
    assert (Path(rru.__file__).parent / "scan" / "native" / here).exists() == rru.scan.native.library.BUILT


def test_install_without_the_library_warns_on_import(monkeypatch):
    spec = importlib.util.spec_from_file_location("library", rru.scan.native.library.__file__)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(Path, "exists", lambda path: False)
    with pytest.warns(UserWarning, match="this install of rru has no native library"):
        spec.loader.exec_module(module)
    assert not module.BUILT


def test_build_without_a_compiler_warns(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    module = recipe()
    with pytest.raises(FileNotFoundError, match=r"no C\+\+ compiler found: install GCC or Clang"):
        module.compiler_for(module.this_platform())


@pytest.mark.skipif(
    not rru.scan.native.library.BUILT or shutil.which("c++") is None, reason="needs the library and a compiler"
)
def test_self_check_accepts_the_library_and_detects_a_wrong_number(tmp_path):
    program, calls = tmp_path / "selfcheck", tmp_path / "calls.bin"
    library = Path(rru.scan.native.library.__file__).parent
    command = ["c++", "-std=c++17", str(ROOT / "native" / "selfcheck.cpp"), "-ldl", "-o", str(program)]
    subprocess.run(command, check=True)
    recorder = record_calls.Recorder()
    record_calls.record(recorder, rru.LSTM, {}, torch.float64)
    recorder.write(calls)
    check = [str(program), str(library / recipe().this_platform().library), str(calls)]
    assert subprocess.run(check, stdout=subprocess.DEVNULL).returncode == 0
    content = bytearray(calls.read_bytes())
    content[-8:] = struct.pack("<d", struct.unpack("<d", content[-8:])[0] + 1)  # the last gradient of the last call
    calls.write_bytes(content)
    wrong = subprocess.run(check, capture_output=True, text=True)
    assert wrong.returncode == 1
    assert "lstm_gradients_f64" in next(line for line in wrong.stdout.splitlines() if line.endswith("WRONG"))


def test_the_wheel_has_every_file_of_the_c_engine_and_of_pages():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["rru"]
    package = ROOT / "src" / "rru"
    included = {path for pattern in patterns for path in package.glob(pattern)}
    files = {path for path in (package / "inference" / "engine").rglob("*.*") if not path.suffix.startswith(".py")}
    assert {path.suffix for path in files} >= {".c", ".h", ".wasm", ".js", ".html", ".css"}
    assert files <= included
