"""The GPU benchmark checks and measures, here on the CPU with tiny shapes."""

import json

import pytest
import torch

from benchmarks import gpu
from benchmarks.shapes import SHAPES


def test_it_checks_and_measures_every_shape(tmp_path, capsys):
    gpu.main(["--device", "cpu", "--quick", "--repeats", "1", "--json", str(tmp_path / "results.json")])
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["differences"].keys() == results["training"].keys() == results["inference"].keys() == SHAPES.keys()
    assert all(
        difference <= gpu.TOLERANCE for found in results["differences"].values() for difference in found.values()
    )
    assert "| shape | RRU fused | RRU reference | rru.LSTM | nn.LSTM |" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_exits_with_a_message():
    with pytest.raises(SystemExit, match="needs a GPU"):
        gpu.main([])
