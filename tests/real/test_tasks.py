"""The tasks on real data sets, if present."""

import math

import pytest
import torch

from rru.tasks import LanguageTask, MusicTask, WordTask


def test_jsb(real):
    task = MusicTask.of("jsb", real("jsb"))
    batches = list(task.epoch(torch.Generator()))
    assert [len(batch.lengths) for batch in batches] == [16] * 13 + [21]  # 229 pieces, each shorter than a window
    model = task.model("rru", {"output_size": 64, "expansion": 1.76958}, 100_000)
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    scores = task.evaluate(model, "test")
    assert scores["nll"] == pytest.approx(88 * math.log(2))
    assert scores["nll_per_frame"] == pytest.approx(88 * math.log(2))


def test_penn_treebank(real):
    words = WordTask.of("ptb-words", real("ptb-words"))
    assert len(words.vocabulary) == 10_000  # with padding
    assert words.steps_per_epoch() == 216  # 27,734 windows
    assert len(words.epoch(torch.Generator())[-1].inputs.T) == 128 + 86
    characters = LanguageTask.of(
        "ptb-chars",
        real("ptb-chars"),
        evaluation_limit=5000,
    )
    assert characters.steps_per_epoch() == 151
    model = characters.model("rru", {"output_size": 8}, 20_000)
    torch.nn.init.zeros_(model.head.weight)
    assert characters.evaluate(model, "test")["bpc"] == pytest.approx(math.log2(49 + 2))
