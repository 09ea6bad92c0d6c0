"""The tasks on real sets, where they are present."""

import math

import pytest
import torch

from rru.tasks import MusicTask


def test_jsb(real):
    task = MusicTask("jsb", real("jsb"))
    batches = list(task.epoch(torch.Generator()))
    assert [len(batch.lengths) for batch in batches] == [16] * 13 + [21]  # 229 pieces, each shorter than a window
    model = task.model("rru", {"output_size": 64, "expansion": 1.76958}, 100_000)
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    scores = task.evaluate(model, "test")
    assert scores["nll"] == pytest.approx(88 * math.log(2))
    assert scores["nll_per_frame"] == pytest.approx(88 * math.log(2))
