import multiprocessing
import os
import re
import signal
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from rru.nn import registry
from rru.scan import operator
from rru.settings import user_cells
from tests.report.browser import CHROMIUM, Browser

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"

settings.register_profile("rru", deadline=None, max_examples=15, derandomize=True)
settings.load_profile("rru")

os.environ["OMP_NUM_THREADS"] = "1"  # of processes that tests start: small models are faster on one thread
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _the_same_for_every_test():
    torch.manual_seed(0)
    yield
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_interrupts():
    """Restore Ctrl-C as at a terminal: a parent process in the background may have disabled it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk():
    """No test pulls the plug, and what was written outlives a process that is killed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def processes():
    """Make processes that need not import torch each: all fork from one that has."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "tests.training.victim",
            "tests.training.rank",
            "tests.experiments.searcher",
            "rru.experiments.running.workers",
        ]
    )
    return context


@pytest.fixture
def own_cell(monkeypatch):
    """The cell that CONTRIBUTING.md adds, forgotten again afterwards."""
    for known in (registry._layers, operator.registered):
        monkeypatch.setitem(known, "janet", None)
    source, *_ = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)
    names = {"__name__": "own_cell"}
    exec(source, names)
    return names


@pytest.fixture
def janet(tmp_path, monkeypatch):
    """The file that CONTRIBUTING.md shows; what it registers is forgotten afterwards."""
    source, *_ = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)
    (tmp_path / "janet.py").write_text(source)
    monkeypatch.setattr(registry, "_layers", dict(registry._layers))
    monkeypatch.setattr(operator, "registered", dict(operator.registered))
    monkeypatch.setenv(user_cells.VARIABLE, "")
    yield tmp_path / "janet.py"
    sys.modules.pop("rru_own_janet", None)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium without a window."""
    if not CHROMIUM:
        pytest.skip("chromium is not on the path")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
