"""The code on every model card runs as it stands, with the packages that the card names, and does what rru does."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rru import inference
from rru.inference.card import NEEDS, card
from rru.kinds import kind_of
from rru.tasks import SeriesPart, Windows
from tests.test_packaging import BLOCKER, extra_packages

RUN_CARDS = """
import contextlib, io, json, os, re
from pathlib import Path
import numpy as np
printed, places = {}, json.loads(Path("places.json").read_text())
for place in places:
    os.chdir(place)
    (code,) = re.findall("```python\\n(.*?)```", Path("README.md").read_text(), re.DOTALL)
    names, said = {"__name__": "__main__"}, io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(code, names)
    arrays = {name: value for name, value in names.items() if isinstance(value, np.ndarray)}
    np.savez(place + ".npz", **arrays)
    printed[place] = said.getvalue()
print(json.dumps(printed))
"""


COMPILED = (
    "music",
    "nade",
    "tied",
    "characters",
    "words",
    "texts",
    "mnist",
    "sequences",
    "series",
    "inputs",
)  # takes seconds for each


def run_cards(folder, blocked):
    """Run the code on the cards of all exports in a folder in one Python, which lacks these packages."""
    places = [str(path) for path in sorted(folder.iterdir()) if path.is_dir()]
    (folder / "places.json").write_text(json.dumps(places))
    code = f"BLOCKED = {sorted(blocked)!r}{BLOCKER}{RUN_CARDS}"
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return {Path(place).name: text for place, text in json.loads(ran.stdout).items()}


@pytest.fixture(scope="session")
def native(models, tmp_path_factory):
    """The folder of all exports for rru, and what the code on their cards prints."""
    folder = tmp_path_factory.mktemp("native")
    for name, trained in models.items():
        inference.export(trained, folder / name, "safetensors")
    return folder, run_cards(folder, extra_packages())


@pytest.fixture(scope="session", params=["onnx", "torch-export"])
def compiled(request, models, tmp_path_factory):
    """The folder of exports for another runtime, and what the code on their cards prints."""
    folder = tmp_path_factory.mktemp(request.param)
    for name in COMPILED:
        inference.export(models[name], folder / name, request.param)
    blocked = {"rru", "torch"} if request.param == "onnx" else set()
    return folder, run_cards(folder, blocked | extra_packages())


def arrays(folder, name):
    return np.load(folder / f"{name}.npz")


def test_every_card_names_what_it_needs(models):
    for trained in models.values():
        for form, packages in NEEDS.items():
            assert f"The code needs {packages}. Run it in this folder." in card(trained, form)
            (code,) = re.findall("```python\n(.*?)```", card(trained, form), re.DOTALL)
            assert all(len(line) <= 120 for line in code.splitlines())


def test_other_runtimes_print_what_rru_prints(native, compiled):
    printed = compiled[1]
    assert set(printed) == set(COMPILED)
    for name in set(COMPILED) - {"nade", "tied"}:
        said, wanted = (re.split(r"(\d+\.\d+)", text) for text in (printed[name], native[1][name]))
        assert said[::2] == wanted[::2]
        assert [float(one) for one in said[1::2]] == pytest.approx([float(one) for one in wanted[1::2]], rel=1e-3)
        assert printed[name].count("\n") >= 2
    for name in ("nade", "tied"):
        assert re.fullmatch(r"notes( \d+)*\n", printed[name])


@pytest.mark.parametrize("name", ["music", "nade", "chain", "tied"])
def test_models_of_music_read_the_chord_on_the_card(native, models, name):
    found, trained = arrays(native[0], name), models[name]
    with torch.no_grad():
        expected = trained.model(torch.from_numpy(found["inputs"]))[0].numpy()
    np.testing.assert_array_equal(found["logits" if name == "music" else "conditions"], expected)
    assert np.flatnonzero(found["inputs"][0, 0]).tolist() == [39, 43, 46, 51]


@pytest.mark.parametrize("name", ["characters", "words", "bytes", "tokens", "letters", "texts", "reviews"])
def test_text_is_divided_into_the_tokens_of_the_model(native, models, name, tmp_path):
    inputs, trained = arrays(native[0], name)["inputs"], models[name]
    if name in ("texts", "reviews"):
        (tmp_path / "text.txt").write_text("It was great, really great.")
        ((_, expected),) = kind_of(trained.kind).items(trained.trained_on, tmp_path / "text.txt")
        np.testing.assert_array_equal(inputs, expected.numpy())
    else:
        np.testing.assert_array_equal(inputs[:, 0], trained.vocabulary.encode("it was the best of"))
    assert len(set(inputs[:, 0].tolist())) > 2


@pytest.mark.parametrize("name", ["mnist", "pmnist"])
def test_pixels_are_in_the_order_of_the_task(native, models, name, tmp_path):
    found = arrays(native[0], name)
    Image.fromarray((found["image"] * 255).astype(np.uint8)).save(tmp_path / "digit.png")
    ((_, expected),) = kind_of("images").items(models[name].trained_on, tmp_path / "digit.png")
    np.testing.assert_array_equal(found["inputs"], expected.numpy())


def test_columns_of_sequences_are_scaled_as_in_training(native, models):
    found = arrays(native[0], "sequences")
    np.testing.assert_allclose(found["inputs"][:, 0], models["sequences"].facts.scale.apply(found["values"]), atol=1e-6)


@pytest.mark.parametrize("name", ["series", "inputs"])
@pytest.mark.parametrize("steps", [5, 20, 100])
def test_series_are_forecast_as_by_the_command(models, name, steps, tmp_path, monkeypatch):
    """With all columns beside the target at their mean, as on the card."""
    trained = models[name]
    about = kind_of("series").card(trained.trained_on, trained.model)
    (tmp_path / "data.json").write_text(json.dumps(trained.facts.fields()))
    monkeypatch.chdir(tmp_path)
    history = np.abs(np.random.default_rng(0).normal(10, 3, steps))
    prepare = about.prepare.replace("# Put the values", "history = given\n# Put the values")
    names = {"np": np, "given": history}
    exec(prepare, names)
    with torch.no_grad():
        names["logits"] = trained.model(torch.from_numpy(names["inputs"]))[0].numpy()
    exec(about.interpret, names)
    np.testing.assert_allclose(names["quantiles"], forecast_of(trained, history), rtol=1e-4)


def forecast_of(trained, history):
    """Return the forecast that rru makes of a series, (horizon, 5)."""
    facts, context = trained.facts, trained.config.task.context
    inputs = np.zeros((len(history) + facts.horizon, facts.layout.size), np.float32)
    (scaling, *_) = facts.series.values()
    part = SeriesPart(history, np.ones(len(history), bool), inputs, scaling)
    windows = Windows([part], facts, context)
    place = np.array([0]), np.array([len(history) - 1])
    with torch.no_grad():
        outputs = trained.model(torch.from_numpy(windows.features(*place)))[0]
    return windows.forecasts(*place, outputs.double().numpy())[:, 0]
