"""Models back from folders, and folders that are not what they seem."""

import re
import shutil

import numpy as np
import pytest
import torch

import rru
from rru.data.vocabulary import Vocabulary
from rru.experiments import presets
from rru.generate import export, load
from rru.training import Run, RunError
from rru.training.checkpoint import pack, unpack
from rru.training.files import write_folder


def test_an_exported_folder_that_was_changed(chorales, tmp_path):
    export(load(chorales), tmp_path / "model", "safetensors")
    (tmp_path / "model" / "config.toml").write_text("")
    with pytest.raises(RunError, match=r"config\.toml: has 0 bytes where"):
        rru.load(tmp_path / "model")


@pytest.fixture
def forged(chorales, tmp_path):
    """Loads an export whose settings or weights were changed, its manifest with them."""
    export(load(chorales), tmp_path / "model", "safetensors")
    files = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir() if path.name != "manifest.json"}

    def loaded(settings=None, weights=None):
        changed = dict(files)
        for name, value in (settings or {}).items():
            text, found = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", changed["config.toml"].decode())
            assert found == 1
            changed["config.toml"] = text.encode()
        if weights is not None:
            before = unpack(files["model.safetensors"], tmp_path)
            changed["model.safetensors"] = pack({name: weights(tensor) for name, tensor in before.items()})
        shutil.rmtree(tmp_path / "model")
        write_folder(tmp_path / "model", changed)
        return rru.load(tmp_path / "model")

    return loaded


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 10**15}, r"weight_x is \(\d+, 88\) of float32, \(\d+, 88\) of float32 would be right"),
        ({"budget": 10**400}, r"model\.budget must be a whole number at least 1, below 2\*\*63"),
        ({"num_layers": 10**9}, "num_layers is 1000000000, of 11 tensors"),
        ({"relu_layers": 10**9}, "relu_layers is 1000000000, of 11 tensors"),
        ({"output_size": 10**12}, "budget must be at least"),
        ({"expansion": "1e300"}, "Overflow"),
    ],
)
def test_settings_that_ask_for_more_than_there_are_weights_take_no_memory(forged, settings, message):
    with pytest.raises(RunError, match=message) as caught:
        forged(settings)
    assert "\n" not in str(caught.value)


def test_weights_of_another_shape_or_type(forged):
    with pytest.raises(RunError, match=r"weight_x is \(3,\) of float32, .* would be right$"):
        forged(weights=lambda tensor: torch.zeros(3))
    with pytest.raises(RunError, match=r"of int8, .* of float32 would be right$"):
        forged(weights=lambda tensor: tensor.to(torch.int8))


@pytest.mark.parametrize("value", [float("nan"), 3e38])
def test_weights_that_give_no_numbers(forged, value):
    trained = forged(weights=lambda tensor: torch.full_like(tensor, value))
    with pytest.raises(RunError, match="its weights are of no use: what the model gives is not finite"):
        rru.generate.compose(trained, np.ones((1, 88), np.uint8), 4)


def test_a_vocabulary_of_another_kind(untrained_run):
    folder = untrained_run("ptb-words", vocabulary=Vocabulary.of([f"w{i}" for i in range(40)], "words"))
    Vocabulary.of([f"w{i}" for i in range(40)], "characters").save(folder / "vocabulary.json")
    with pytest.raises(RunError, match=r"vocabulary\.json: must be of words for ptb-words, is of characters"):
        load(folder)
    (folder / "vocabulary.json").unlink()
    with pytest.raises(RunError, match=r"vocabulary\.json: must be of words for ptb-words, is not there"):
        load(folder)


def test_an_export_for_another_runtime_is_named_as_one(chorales, tmp_path):
    export(load(chorales), tmp_path / "model", "onnx")
    with pytest.raises(RunError, match="was exported for other runtimes; rru reads a run, or an export as safetensors"):
        rru.load(tmp_path / "model")


def test_a_run_without_weights(tmp_path):
    Run.create(tmp_path / "run", presets.load("bach", "rru", "smoke"))
    with pytest.raises(RunError, match="has no weights to use yet, as no epoch of it was completed"):
        rru.load(tmp_path / "run")
