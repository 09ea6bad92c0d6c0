"""Exported models give the same results in other runtimes."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml

import rru
from rru import data
from rru.data.vocabulary import Vocabulary
from rru.files import FileError
from rru.inference import export, load
from rru.inference.export import card

CASES = {
    "lstm, two layers of words": ("ptb-words", "lstm", ("num_layers=2",)),
    "rru, chords": ("bach", "rru", ("output=nade",)),
    "gru, reviews": ("imdb", "gru", ()),
    "rru, images": ("mnist", "rru", ()),
}


@pytest.fixture(scope="module", params=CASES)
def exported(request, untrained_run, tmp_path_factory):
    """A model with non-zero parameters, and the folder it was exported to."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    task, cell, changes = CASES[request.param]
    tokens = Vocabulary.of([f"w{i}" for i in range(40)], "words") if task in ("ptb-words", "imdb") else None
    trained = load(untrained_run(task, cell, tokens, changes))
    torch.manual_seed(0)
    for name, parameter in trained.model.named_parameters():
        if "bias" in name or name.endswith("Z"):
            torch.nn.init.uniform_(parameter, -0.1, 0.1)
    export(trained, folder, "onnx")
    return trained, folder


@pytest.fixture(scope="module")
def chorales_in_onnx(chorales, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "model"
    files = export(load(chorales), folder, "onnx")
    assert files == ["README.md", "config.json", "initial_state.npz", "sequence.onnx", "step.onnx"]
    return folder


def inputs_for(trained, steps, batch):
    if trained.vocabulary is not None:
        return torch.randint(0, len(trained.vocabulary), (steps, batch))
    return torch.rand(steps, batch, trained.model.layers.input_size).round()


def state_of(state):
    return [state] if isinstance(state, torch.Tensor) else list(state)


def test_sequences_match_pytorch(exported):
    trained, folder = exported
    session = onnxruntime.InferenceSession(folder / "sequence.onnx")
    for steps, tolerance in ((1, 1e-5), (7, 1e-5), (500, 1e-4)):  # by then float32 is 2e-5 from float64
        for batch in (1, 5):
            inputs = inputs_for(trained, steps, batch)
            with torch.no_grad():
                logits, last = trained.model(inputs)
            found = session.run(None, {"input": inputs.numpy()})
            for value, expected in zip(found, [logits, *state_of(last)], strict=True):
                np.testing.assert_allclose(value, expected.numpy(), rtol=0, atol=tolerance)


def test_single_steps_match_pytorch(exported):
    trained, folder = exported
    session = onnxruntime.InferenceSession(folder / "step.onnx")
    first = dict(np.load(folder / "initial_state.npz", allow_pickle=False))
    for batch in (1, 5):
        state = {name: np.repeat(part, batch, axis=1) for name, part in first.items()}
        inputs = inputs_for(trained, 7, batch)
        for step in range(7):
            found, *after = session.run(None, {"input": inputs[step].numpy(), **state})
            state = dict(zip(state, after, strict=True))
            with torch.no_grad():
                logits, last = trained.model(inputs[: step + 1])
            expected = logits[-1] if trained.kind in ("music", "words") else logits
            np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-5)
            for part, wanted in zip(after, state_of(last), strict=True):
                np.testing.assert_allclose(part, wanted.numpy(), rtol=0, atol=1e-5)


def test_time_is_a_loop_in_the_graph_and_a_step_has_none(exported):
    trained, folder = exported
    sequence, step = (onnx.load(folder / name) for name in ("sequence.onnx", "step.onnx"))
    assert [node.op_type for node in sequence.graph.node].count("Scan") == len(trained.model.layers.cells)
    assert [node.op_type for node in step.graph.node].count("Scan") == 0
    assert not any(node.metadata_props or node.doc_string for node in sequence.graph.node)  # no paths of this machine


def test_a_process_with_only_onnxruntime_and_numpy_runs_it(trained, chorales_in_onnx, tmp_path):
    (tmp_path / "model").symlink_to(chorales_in_onnx)
    inputs = inputs_for(trained, 9, 3)
    np.save(tmp_path / "inputs.npy", inputs.numpy())
    code = (
        "import sys, numpy as np, onnxruntime\n"
        "logits = onnxruntime.InferenceSession('model/sequence.onnx').run(None, {'input': np.load('inputs.npy')})[0]\n"
        "np.save('logits.npy', logits)\n"
        "assert 'torch' not in sys.modules and 'rru' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        expected = trained.model(inputs)[0].numpy()
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), expected, rtol=0, atol=1e-5)


def test_a_trained_model_on_a_real_piece(trained, chorales_in_onnx):
    piece = torch.from_numpy(data.load("bach").test[0].astype(np.float32))[:, None]
    with torch.no_grad():
        expected = trained.model(piece)[0].numpy()
    found = onnxruntime.InferenceSession(chorales_in_onnx / "sequence.onnx").run(None, {"input": piece.numpy()})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_safetensors_export_loads_as_the_same_model(chorales, tmp_path):
    trained = load(chorales)
    files = export(trained, tmp_path / "model", "safetensors")
    assert files == sorted(path.name for path in (tmp_path / "model").iterdir())
    assert files == ["README.md", "config.json", "model.safetensors"]
    again = rru.load(tmp_path / "model")
    assert again.config == trained.config
    x = inputs_for(trained, 9, 3)
    with torch.no_grad():
        assert again.model(x)[0].equal(trained.model(x)[0])


def test_torch_export_has_dynamic_time_and_batch(chorales, tmp_path):
    trained = load(chorales)
    export(trained, tmp_path / "model", "torch-export")
    program = torch.export.load(tmp_path / "model" / "model.pt2").module()
    for steps, batch in ((3, 2), (40, 7)):
        x = inputs_for(trained, steps, batch)
        with torch.no_grad():
            torch.testing.assert_close(program(x)[0], trained.model(x)[0], rtol=0, atol=1e-5)


def test_the_card_has_results_data_and_licence(trained):
    text = card(trained, "onnx")
    for expected in (
        f"{trained.result.test['nll']:.4f}",
        "Bach chorales",
        "Licence: The notes are facts",
        "step.onnx",
    ):
        assert expected in text


def test_the_card_begins_with_what_the_hub_reads(trained):
    start, front_matter, _ = card(trained, "onnx").split("---\n", 2)
    fields = yaml.safe_load(front_matter)
    assert (start, fields["library_name"], fields["license"]) == ("", "rru", "unknown")
    assert {"rru", "onnx"} <= set(fields["tags"])
    ((found,),) = (index["results"] for index in fields["model-index"])
    assert found["dataset"]["name"] == "Bach chorales, embedded"
    assert {"type": "nll", "value": trained.result.test["nll"]} in found["metrics"]


def test_the_card_of_a_run_without_results_has_no_metrics_to_read(trained):
    text = card(replace(trained, result=None), "safetensors")
    assert "metrics" not in yaml.safe_load(text.split("---\n", 2)[1])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"test": {"nll": None}}, "| test | not finite |"),
        ({"test": {}, "status": "diverged", "reason": "loss"}, "The run is diverged (loss): there is no test result."),
    ],
)
def test_card_of_a_run_without_result(chorales, changes, said):
    trained = load(chorales)
    assert said in card(replace(trained, result=replace(trained.result, **changes)), "onnx")


def test_unknown_format_and_existing_folder_are_rejected(chorales, tmp_path):
    trained = load(chorales)
    with pytest.raises(ValueError, match="format must be safetensors, onnx, torch-export, c or web, got 'pickle'"):
        export(trained, tmp_path / "model", "pickle")
    tmp_path.joinpath("there").mkdir()
    with pytest.raises(ValueError, match="exists; choose another name"):
        export(trained, tmp_path / "there", "onnx")


def test_card_of_an_export_of_an_export_has_no_results(chorales, tmp_path):
    export(load(chorales), tmp_path / "model", "safetensors")
    export(rru.load(tmp_path / "model"), tmp_path / "again", "safetensors")
    assert "Made from another export, which stores no results" in (tmp_path / "again" / "README.md").read_text()


@pytest.fixture(scope="module", params=["chain", "nade"])
def chords(request, untrained_run):
    """A trained model with the output nade, and one with the output chain and random weights."""
    if request.param == "nade":
        return request.getfixturevalue("joint")
    trained = load(untrained_run("bach", "gru", None, ("output=chain", "key_order=outside-in")))
    torch.manual_seed(0)
    torch.nn.init.normal_(trained.model.head.between)
    torch.nn.init.constant_(trained.model.head.bias, -1)
    return trained


class TestJointOutput:
    def test_the_numpy_sampler_on_the_card_gives_chords_as_probable_as_the_model_says(
        self, chords, tmp_path, monkeypatch
    ):
        files = export(chords, tmp_path / "model", "onnx")
        assert files == ["README.md", "config.json", "head.npz", "initial_state.npz", "sequence.onnx", "step.onnx"]
        monkeypatch.chdir(tmp_path / "model")
        (code,) = re.findall("```python\n(.*?)```", (tmp_path / "model" / "README.md").read_text(), re.DOTALL)
        names = {}
        exec(code, names)
        inputs = torch.from_numpy(data.load("bach").test[0][:12].astype(np.float32))[:, None]
        with torch.no_grad():
            conditions = chords.model(inputs)[0][-1]
            made = torch.from_numpy(np.stack([names["sample"](conditions[0].numpy()) for _ in range(400)]))
            wanted = chords.model.head.sample(conditions.expand(4000, -1), torch.Generator().manual_seed(1))
            nats = [chords.model.head.nats(conditions.expand(len(some), -1), some) for some in (made, wanted)]
        spread = nats[1].std().item()
        assert nats[0].mean().item() == pytest.approx(nats[1].mean().item(), abs=5 * spread / 20)  # 400 samples
        assert (made.mean(0) - wanted.mean(0)).abs().max().item() < 0.13

    def test_a_card_of_jsb_says_that_it_is_an_octave_high(self, untrained_run):
        assert "`rru compose --octave -1`" in card(load(untrained_run("jsb")), "onnx")


def test_unwritable_folder_is_named(chorales, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"file/model: could not be written \(Not a directory\)"):
        export(load(chorales), tmp_path / "file" / "model", "safetensors")
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ValueError, match="link exists; choose another name"):
        export(load(chorales), tmp_path / "link", "safetensors")
