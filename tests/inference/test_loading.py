"""Loading trained models, and damaged or malicious folders."""

import json

import numpy as np
import pytest
import torch

import rru
from rru.data.vocabulary import Vocabulary
from rru.files import Damaged, write_folder
from rru.inference import export, load
from rru.settings import presets, toml
from rru.training import Run, RunError
from rru.training.checkpoint import pack, unpack


@pytest.mark.parametrize(
    ("content", "reason"),
    [("", "Expecting value"), ("[]", "must hold an object"), ("[" * 10**5, "recursion"), ('{"model": 1}', "must be a")],
)
def test_an_export_with_another_config(chorales, tmp_path, content, reason):
    export(load(chorales), tmp_path / "model", "safetensors")
    (tmp_path / "model" / "config.json").write_text(content)
    with pytest.raises(RunError, match=rf"config\.json: .*{reason}"):
        rru.load(tmp_path / "model")


def test_an_export_as_the_hub_gives_it_back(chorales, tmp_path):
    """Its files are links into a cache, its card was edited, and there are other files beside them."""
    export(load(chorales), tmp_path / "model", "safetensors")
    (tmp_path / "hub").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "hub" / name).symlink_to(tmp_path / "model" / name)
    (tmp_path / "hub" / "README.md").write_text("mine")
    (tmp_path / "hub" / ".gitattributes").write_text("*.safetensors filter=lfs")
    assert rru.load(tmp_path / "hub").config == load(chorales).config


def test_an_export_of_version_0_1(chorales, tmp_path):
    """It has config.toml in place of config.json, and a manifest, which is checked."""
    trained = load(chorales)
    files = {
        "model.safetensors": pack(trained.model.state_dict()),
        "config.toml": toml.dumps(trained.config.tables()).encode(),
    }
    write_folder(tmp_path / "model", files)
    again = rru.load(tmp_path / "model")
    x = torch.rand(5, 2, 88).round()
    with torch.no_grad():
        assert again.config == trained.config
        assert again.model(x)[0].equal(trained.model(x)[0])
    with (tmp_path / "model" / "config.toml").open("a") as file:
        file.write("#")
    with pytest.raises(Damaged, match=r"config\.toml: has \d+ bytes, but"):
        rru.load(tmp_path / "model")


@pytest.fixture
def forged(chorales, tmp_path):
    """Loads an export whose settings or weights were changed."""
    folder = tmp_path / "model"
    export(load(chorales), folder, "safetensors")

    def loaded(settings=None, weights=None):
        config = json.loads((folder / "config.json").read_bytes())
        for name, value in (settings or {}).items():
            (table,) = [table for table in config.values() if name in table]
            table[name] = value
        (folder / "config.json").write_text(json.dumps(config))
        if weights is not None:
            before = unpack((folder / "model.safetensors").read_bytes(), folder)
            (folder / "model.safetensors").write_bytes(pack({name: weights(t) for name, t in before.items()}))
        return rru.load(folder)

    return loaded


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 10**15}, r"weight_x is \(\d+, 88\) of float32, should be \(\d+, 88\) of float32"),
        ({"budget": 10**400}, r"model\.budget must be a whole number at least 1, below 2\*\*63"),
        ({"num_layers": 10**9}, "num_layers must be a whole number at least 1 and at most 1000, got 1000000000"),
        ({"relu_layers": 10**9}, "relu_layers must be a whole number at least 1 and at most 1000, got 1000000000"),
        ({"relu_layers": 900}, "relu_layers is 900, of 11 tensors"),
        ({"output_size": 10**12}, "budget must be at least"),
        ({"expansion": 1e300}, "expansion must be a number above 0 and at most 10000"),
    ],
)
def test_settings_larger_than_the_weights_are_rejected_before_allocating(forged, settings, message):
    with pytest.raises(RunError, match=message) as caught:
        forged(settings)
    assert "\n" not in str(caught.value)


def test_weights_of_another_shape_or_type_are_rejected(forged):
    with pytest.raises(RunError, match=r"weight_x is \(3,\) of float32, should be .*"):
        forged(weights=lambda tensor: torch.zeros(3))
    with pytest.raises(RunError, match=r"of int8, should be .* of float32$"):
        forged(weights=lambda tensor: tensor.to(torch.int8))


@pytest.mark.parametrize("value", [float("nan"), 3e38])
def test_weights_with_non_finite_outputs_are_rejected(forged, value):
    trained = forged(weights=lambda tensor: torch.full_like(tensor, value))
    with pytest.raises(RunError, match="the model's outputs are not finite; its weights cannot be used"):
        rru.inference.compose(trained, np.ones((1, 88), np.uint8), 4)


def test_vocabulary_of_another_kind_is_rejected(untrained_run):
    folder = untrained_run("ptb-words", vocabulary=Vocabulary.of([f"w{i}" for i in range(40)], "words"))
    Vocabulary.of([f"w{i}" for i in range(40)], "characters").save(folder / "vocabulary.json")
    with pytest.raises(RunError, match=r"vocabulary\.json: must be of words for ptb-words, is of characters"):
        load(folder)
    (folder / "vocabulary.json").unlink()
    with pytest.raises(RunError, match=r"vocabulary\.json: must be of words for ptb-words, is not there"):
        load(folder)


def test_an_export_for_another_runtime_is_named_as_one(chorales, tmp_path):
    export(load(chorales), tmp_path / "model", "torch-export")
    with pytest.raises(RunError, match="was exported for other runtimes; rru reads a run, or an export as safetensors"):
        rru.load(tmp_path / "model")


def test_run_without_weights(tmp_path):
    Run.create(tmp_path / "run", presets.load("bach", "rru", "smoke"))
    with pytest.raises(RunError, match="has no weights yet: no epoch has finished"):
        rru.load(tmp_path / "run")
