"""Native scans use PyTorch's threads or keep their own: forks, several callers and the end of the process are safe."""

import subprocess
import sys
from threading import Thread

import pytest
import torch

import rru
from rru.scan.native import library
from tests.timeouts import TIMEOUT

pytestmark = pytest.mark.skipif(not library.BUILT, reason="needs the native library")


@pytest.fixture(params=[True, False], ids=["openmp", "own"])
def layer(request):
    """A layer large enough for two threads, its input and its outputs."""
    torch.set_num_threads(2)
    library.use_openmp(request.param)
    layer, x = rru.LSTM(3, 100, backend="native"), torch.randn(30, 40, 3)
    with torch.no_grad():
        yield layer, x, layer(x)[0]
    library.use_openmp(True)


def test_several_python_threads_can_scan_at_once(layer):
    layer, x, outputs = layer
    equal = []

    def scan():
        with torch.no_grad():
            equal.extend(torch.equal(layer(x)[0], outputs) for _ in range(10))

    callers = [Thread(target=scan) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert equal == [True] * 40


LAYER = """
import os, torch, rru
from rru.scan.native import library
torch.set_num_threads(2)
layer, x = rru.LSTM(3, 100, backend="native"), torch.randn(30, 40, 3)
"""
FORK = """
with torch.no_grad():
    outputs = layer(x)[0].tolist()
    child = os.fork()
    same = layer(x)[0].tolist() == outputs  # torch.equal would wait for OpenMP's threads, which a fork lacks
if child == 0:
    os._exit(0 if same else 1)
print(same, os.waitpid(child, 0)[1])
"""


COUNT = """
big = torch.ones(1_000_000)
big + big
before = len(os.listdir("/proc/self/task"))
layer(x)
print(len(os.listdir("/proc/self/task")) - before)
"""


def ran(script):
    """The exit status, output and errors of a new process."""
    command = [sys.executable, "-W", "ignore", "-c", LAYER + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("openmp", [True, False])
def test_a_forked_process_scans_on_threads_of_its_own_and_both_end_in_silence(openmp):
    assert ran(f"library.use_openmp({openmp})\n" + FORK) == (0, "True 0\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="PyTorch uses GCC's OpenMP on Linux only")
@pytest.mark.parametrize(("openmp", "new"), [(True, 0), (False, 1)])
def test_scans_run_on_the_threads_of_torch_unless_told_otherwise(openmp, new):
    assert ran(("" if openmp else "library.use_openmp(False)\n") + COUNT) == (0, f"{new}\n", "")
