"""Exported models, in runtimes that know nothing of rru."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import rru
from rru import data, tasks
from rru.data.vocabulary import Vocabulary
from rru.generate import export, load, onnx_graph
from rru.generate.export import card
from rru.training import RunError

CASES = {
    "rru": ("bach", "rru", ()),
    "rru, two layers of words": ("ptb-words", "rru", ()),
    "rru, every variant": (
        "bach",
        "rru",
        ("relu_layers=3", "normalize=false", "rezero=scalar", "residual=unscaled", "activate_outputs=true"),
    ),
    "gru": ("bach", "gru", ()),
    "gru, reset after": ("bach", "gru", ("reset_after=true",)),
    "lstm": ("bach", "lstm", ("num_layers=2",)),
    "mogrifier": ("bach", "mogrifier", ()),
    "mogrifier of full rank": ("bach", "mogrifier", ("rank=0", "budget=100k")),
    "lstm, reviews": ("imdb", "lstm", ()),
    "rru, images": ("mnist", "rru", ()),
}


@pytest.fixture(params=CASES)
def exported(request, untrained_run, tmp_path):
    """A model with all its parameters in use, and the folder it was exported to."""
    task, cell, changes = CASES[request.param]
    tokens = Vocabulary.of([f"w{i}" for i in range(40)], "words") if task in ("ptb-words", "imdb") else None
    trained = load(untrained_run(task, cell, tokens, changes))
    torch.manual_seed(0)
    for name, parameter in trained.model.named_parameters():
        if "bias" in name or name.endswith("Z"):
            torch.nn.init.uniform_(parameter, -0.1, 0.1)
    export(trained, tmp_path / "model", "onnx")
    return trained, tmp_path / "model"


def inputs_for(trained, steps, batch):
    if trained.vocabulary is not None:
        return torch.randint(0, len(trained.vocabulary), (steps, batch))
    return torch.rand(steps, batch, trained.model.layers.input_size).round()


def state_of(state):
    return [state] if isinstance(state, torch.Tensor) else list(state)


def test_whole_sequences_are_equal_to_pytorchs(exported):
    trained, folder = exported
    session = onnxruntime.InferenceSession(folder / "sequence.onnx")
    for steps in (1, 7, 500):
        for batch in (1, 5):
            inputs = inputs_for(trained, steps, batch)
            with torch.no_grad():
                logits, last = trained.model(inputs)
            for found, expected in zip(
                session.run(None, {"input": inputs.numpy()}), [logits, *state_of(last)], strict=True
            ):
                np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-5)


def test_single_steps_are_equal_to_pytorchs(exported):
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


def test_time_is_a_loop_in_the_graph_and_not_unrolled(exported):
    trained, folder = exported
    kinds = [node.op_type for node in onnx.load(folder / "sequence.onnx").graph.node]
    assert kinds.count("Scan") == len(trained.model.layers.cells)
    assert len(kinds) < 40


def test_a_process_with_only_onnxruntime_and_numpy_runs_it(chorales, tmp_path):
    trained = load(chorales)
    export(trained, tmp_path / "model", "onnx")
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


def test_a_trained_model_on_a_real_piece(chorales, tmp_path):
    trained = load(chorales)
    export(trained, tmp_path / "model", "onnx")
    piece = torch.from_numpy(data.load("bach").test[0].astype(np.float32))[:, None]
    with torch.no_grad():
        expected = trained.model(piece)[0].numpy()
    found = onnxruntime.InferenceSession(tmp_path / "model" / "sequence.onnx").run(None, {"input": piece.numpy()})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_safetensors_give_the_model_back(chorales, tmp_path):
    trained = load(chorales)
    files = export(trained, tmp_path / "model", "safetensors")
    assert files == ["README.md", "config.toml", "model.safetensors"]
    again = rru.load(tmp_path / "model")
    assert again.config == trained.config
    x = inputs_for(trained, 9, 3)
    with torch.no_grad():
        assert again.model(x)[0].equal(trained.model(x)[0])


def test_torch_export_gives_a_program_with_free_time_and_batch(chorales, tmp_path):
    trained = load(chorales)
    export(trained, tmp_path / "model", "torch-export")
    program = torch.export.load(tmp_path / "model" / "model.pt2").module()
    for steps, batch in ((3, 2), (40, 7)):
        x = inputs_for(trained, steps, batch)
        with torch.no_grad():
            torch.testing.assert_close(program(x)[0], trained.model(x)[0], rtol=0, atol=1e-5)


def test_the_card_has_results_data_and_licence(chorales, tmp_path):
    trained = load(chorales)
    export(trained, tmp_path / "model", "onnx")
    card = (tmp_path / "model" / "README.md").read_text()
    for expected in (
        f"{trained.result['test']['nll']:.4f}",
        "Bach chorales",
        "Licence: The notes are facts",
        "step.onnx",
    ):
        assert expected in card


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"test": {"nll": None}}, "| test | not finite |"),
        ({"test": {}, "status": "diverged", "reason": "loss"}, "The run is diverged (loss): there is no test result."),
    ],
)
def test_the_card_of_a_run_that_came_to_nothing(chorales, changes, said):
    trained = load(chorales)
    assert said in card(replace(trained, result={**trained.result, **changes}), "onnx")


@pytest.mark.parametrize("result", [{"status": "finished"}, {"validation": 3}])
def test_a_result_that_is_none(chorales, result):
    trained = load(chorales)
    with pytest.raises(RunError, match=r"result\.json must hold"):
        card(replace(trained, result=result if "status" in result else {**trained.result, **result}), "onnx")


def test_what_cannot_be_exported(chorales, tmp_path):
    trained = load(chorales)
    with pytest.raises(ValueError, match="format must be safetensors, onnx or torch-export, got 'pickle'"):
        export(trained, tmp_path / "model", "pickle")
    tmp_path.joinpath("there").mkdir()
    with pytest.raises(ValueError, match="is there already; choose another name"):
        export(trained, tmp_path / "there", "onnx")


def test_the_card_of_an_export_of_an_export_claims_nothing(chorales, tmp_path):
    export(load(chorales), tmp_path / "model", "safetensors")
    export(rru.load(tmp_path / "model"), tmp_path / "again", "onnx")
    assert "This was made from another export, which has no results" in (tmp_path / "again" / "README.md").read_text()


@pytest.mark.parametrize("form", ["safetensors", "onnx", "torch-export"])
def test_the_code_on_the_card_runs(chorales, tmp_path, monkeypatch, form):
    trained = load(chorales)
    export(trained, tmp_path / "model", form)
    monkeypatch.chdir(tmp_path / "model")
    (code,) = re.findall("```python\n(.*?)```", (tmp_path / "model" / "README.md").read_text(), re.DOTALL)
    inputs = inputs_for(trained, 5, 1 if form == "onnx" else 2)
    names = {"inputs": inputs.numpy() if form == "onnx" else inputs}
    with torch.no_grad():
        exec(code, names)
        expected = trained.model(inputs)[0]
    found = torch.as_tensor(names["logits"])  # of all steps; of the last where the card ends with single ones
    torch.testing.assert_close(found, expected[-1] if form == "onnx" else expected, rtol=0, atol=1e-5)


def test_a_folder_that_cannot_be_written(chorales, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file/model: could not be written \(Not a directory\)$"):
        export(load(chorales), tmp_path / "file" / "model", "safetensors")
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ValueError, match="link is there already; choose another name"):
        export(load(chorales), tmp_path / "link", "safetensors")


def test_a_cell_of_ones_own_needs_no_more_equations(own_cell):
    model = tasks.model("bach", "janet", {"forget_bias": 0.5}, 60_000).eval()
    x = torch.rand(30, 3, 88).round()
    session = onnxruntime.InferenceSession(onnx_graph.sequence_model(model).SerializeToString())
    with torch.no_grad():
        np.testing.assert_allclose(session.run(None, {"input": x.numpy()})[0], model(x)[0].numpy(), rtol=0, atol=1e-5)


def test_a_function_that_has_no_translation_is_named(own_cell, monkeypatch):
    monkeypatch.setattr(own_cell["JANETCell"], "project", lambda self, x: torch.sin(x))
    with pytest.raises(ValueError, match=r"sin has no translation to ONNX; a cell to be exported may use add, chunk"):
        onnx_graph.sequence_model(tasks.model("bach", "janet", {}, 60_000))
