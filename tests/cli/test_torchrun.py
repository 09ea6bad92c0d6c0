"""`torchrun -m rru train`, as a user types it."""

import json
import os
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from tests.timeouts import TIMEOUT


def launch(folder, count, *more):
    command = [sys.executable, "-m"]
    if count > 1:
        command += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(count), "-m"]
    command += ["rru", "train", "bach", "--preset", "smoke", "--run-dir", str(folder), *more]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["rru", "lstm"])
def test_two_processes_match_one(tmp_path, cell):
    results, weights = [], []
    for count in (1, 2):
        ran = launch(tmp_path / str(count), count, "--cell", cell, "--set", "dropout=0")
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.count("finished: all 2 epochs are done") == 1  # one process speaks
        results.append(json.loads((tmp_path / str(count) / "result.json").read_bytes()))
        weights.append(load_file(tmp_path / str(count) / "best" / "epoch-0002" / "model.safetensors"))
    assert results[1]["test"] == pytest.approx(results[0]["test"], rel=1e-5)
    for name, weight in weights[0].items():
        assert weights[1][name].allclose(weight, atol=1e-5)


@pytest.mark.slow
def test_more_processes_than_sequences_are_refused(tmp_path):
    ran = launch(tmp_path / "run", 3, "--set", "batch_size=2")
    assert ran.returncode != 0
    assert "a batch must have a sequence for each process, got 2 for 3" in ran.stderr
