"""A music model whose keys share one network, at work: composing, streaming, int8, evaluating, other runtimes."""

import re

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import rru
from rru import data
from rru.inference import compose, export, load
from rru.inference.line_reader import LineReader
from tests.variants import assert_same


@pytest.fixture(scope="module")
def tied(untrained_run):
    """A model with random weights, whose chords have about four keys."""
    trained = load(untrained_run("bach", "lstm", None, ("output=tied",)))
    torch.manual_seed(0)
    for parameter in trained.model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    torch.nn.init.constant_(trained.model.head.bias, -3)
    return trained


@pytest.fixture(scope="module")
def opening():
    return data.load("bach").test[0][:6]


@pytest.fixture(scope="module")
def in_onnx(tied, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "model"
    files = export(tied, folder, "onnx")
    networks = ["chord.onnx", "chord_state.npz", "initial_state.npz", "sequence.onnx", "step.onnx"]
    assert files == sorted([*networks, "README.md", "config.json"])
    return folder


def conditions_after(tied, opening):
    with torch.no_grad():
        return tied.model(torch.from_numpy(opening.astype(np.float32))[:, None])[0][-1]  # (1, 88 p)


def test_a_piece_begins_with_the_prompt_and_depends_on_the_seed(tied, opening):
    pieces = [compose(tied, opening, 5, seed=seed).roll for seed in (1, 1, 2)]
    assert pieces[0].shape == (11, 88)
    assert (pieces[0][:6] == opening).all()
    assert (pieces[0] == pieces[1]).all()
    assert (pieces[0] != pieces[2]).any()


def test_voices_and_temperature_count(tied, opening):
    piece = compose(tied, opening, 4, voices=3, temperature=0.8)
    assert piece.composed.sum(1).tolist() == [3, 3, 3, 3]


def test_streamed_steps_are_those_of_the_model(tied, opening):
    stream = rru.stream(tied.model)
    stream.open("ab")
    x = torch.from_numpy(opening.astype(np.float32))[:, None].repeat(1, 2, 1)  # (6, 2, 88)
    x[2:, 1] = 0
    with torch.no_grad():
        expected, (h, _) = tied.model(x)
    together = [stream.step("ab", step) for step in x[:3]]
    alone = [torch.cat([stream.step(name, step[column][None]) for column, name in enumerate("ab")]) for step in x[3:]]
    assert_same(torch.stack([*together, *alone]), expected, 1e-5)
    assert_same(stream.state("b")[0], h[:, 1], 1e-5)


def test_a_line_of_notes_tells_which_are_likely(tied):
    reader = LineReader(tied)
    assert re.match(r"next \d+ \d+%", reader.read("60 64 67"))


def test_int8_weights_of_both_networks_give_nearly_the_same_chords(tied, opening):
    small = rru.quantize(tied.model)
    assert sum(1 for module in small.modules() if getattr(module, "quantized", False)) == 2
    x = torch.from_numpy(opening.astype(np.float32))[:, None]
    with torch.no_grad():
        nats = [model.head.nats(model(x[:-1])[0][:, 0], x[1:, 0]).mean().item() for model in (tied.model, small)]
    assert nats[0] != nats[1]
    assert nats[1] == pytest.approx(nats[0], rel=0.02)
    assert small.head.sample(small(x)[0][-1], torch.Generator()).shape == (1, 88)


def test_new_pieces_are_evaluated(tied, opening):
    scores = tied.evaluate([opening])
    assert scores["nll"] == pytest.approx(scores["nll_per_frame"])


def test_both_networks_match_pytorch_in_onnx(tied, in_onnx):
    sequence = onnxruntime.InferenceSession(in_onnx / "sequence.onnx")
    step = onnxruntime.InferenceSession(in_onnx / "step.onnx")
    state = {name: np.repeat(part, 3, axis=1) for name, part in np.load(in_onnx / "initial_state.npz").items()}
    x = (torch.rand(4, 3, 88) < 0.05).float()
    with torch.no_grad():
        conditions, last = tied.model(x)
        logits = tied.model.head.logits(conditions[-1], x[0])
    for found, expected in zip(sequence.run(None, {"input": x.numpy()}), [conditions, *last], strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    for each in x:
        found, *after = step.run(None, {"input": each.numpy(), **state})
        state = dict(zip(state, after, strict=True))
    np.testing.assert_allclose(found, conditions[-1], rtol=0, atol=1e-5)
    chord = onnxruntime.InferenceSession(in_onnx / "chord.onnx")
    state = {name: np.repeat(part, 3, axis=1) for name, part in np.load(in_onnx / "chord_state.npz").items()}
    for key, of_key in enumerate(conditions[-1].numpy().reshape(3, 88, -1).swapaxes(0, 1)):
        inputs = {"key": np.array([key]), "conditions": of_key, "chord": x[0].numpy()}
        logit, *after = chord.run(None, inputs | state)
        state = dict(zip(state, after, strict=True))
        np.testing.assert_allclose(logit, logits[:, key], rtol=0, atol=1e-5)
    assert not any(node.op_type == "Scan" for node in onnx.load(in_onnx / "chord.onnx").graph.node)


def test_the_sampler_on_the_card_gives_chords_as_probable_as_the_model_says(tied, in_onnx, opening, monkeypatch):
    monkeypatch.chdir(in_onnx)
    (code,) = re.findall("```python\n(.*?)```", (in_onnx / "README.md").read_text(), re.DOTALL)
    names = {}
    exec(code, names)
    conditions, head = conditions_after(tied, opening), tied.model.head
    with torch.no_grad():
        made = torch.from_numpy(np.stack([names["sample"](conditions[0].numpy()) for _ in range(100)]))
        wanted = head.sample(conditions.expand(2000, -1), torch.Generator().manual_seed(1))
        nats = [head.nats(conditions.expand(len(some), -1), some) for some in (made, wanted)]
    assert nats[0].mean().item() == pytest.approx(nats[1].mean().item(), abs=0.5 * nats[1].std().item())
    assert (made.mean(0) - wanted.mean(0)).abs().max().item() < 0.25
