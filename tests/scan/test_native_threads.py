"""Native scans keep their threads between calls: forks, several callers and the end of the process are safe."""

import subprocess
import sys
from threading import Thread

import pytest
import torch

import rru
from rru.scan.native.library import BUILT
from tests.timeouts import TIMEOUT

pytestmark = pytest.mark.skipif(not BUILT, reason="needs the native library")


@pytest.fixture
def layer():
    """A layer large enough for two threads, its input and its outputs."""
    torch.set_num_threads(2)
    layer, x = rru.LSTM(3, 100, backend="native"), torch.randn(30, 40, 3)
    with torch.no_grad():
        yield layer, x, layer(x)[0]


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


FORK = """
import os, torch, rru
torch.set_num_threads(2)
layer, x = rru.LSTM(3, 100, backend="native"), torch.randn(30, 40, 3)
with torch.no_grad():
    outputs = layer(x)[0]
    child = os.fork()
    same = torch.equal(layer(x)[0], outputs)
if child == 0:
    os._exit(0 if same else 1)
print(same, os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_process_scans_on_threads_of_its_own_and_both_end_in_silence():
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=TIMEOUT)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True 0\n", "")
