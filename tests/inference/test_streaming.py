"""Many sessions, one step at a time."""

import pytest
import torch

import rru
from tests.variants import assert_same


def models():
    torch.manual_seed(0)
    yield rru.RRU(3, 8, 2, output_size=5).eval()
    yield rru.LSTM(3, 8, num_layers=2).eval()
    yield rru.MogrifierLSTM(3, 8, batch_first=True).eval()
    yield rru.GRU(3, 8).eval()


@pytest.mark.parametrize("layer", list(models()), ids=lambda layer: type(layer).__name__)
def test_a_thousand_sessions_are_a_thousand_separate_runs(layer):
    torch.manual_seed(1)
    x = torch.randn(6, 1000, 3)
    expected = layer(x.transpose(0, 1) if layer.batch_first else x)[0]
    expected = expected.transpose(0, 1) if layer.batch_first else expected
    stream = rru.stream(layer)
    stream.open(range(1000))
    found = torch.stack([stream.step(range(1000), step) for step in x])
    assert_same(found, expected, 1e-5)


def test_any_subset_in_any_order_while_others_come_and_go():
    torch.manual_seed(0)
    layer = rru.LSTM(3, 8, num_layers=2).eval()
    stream, generator = rru.stream(layer), torch.Generator().manual_seed(5)
    heard, said = {}, {}
    for turn in range(60):
        if turn % 3 == 0:
            stream.open([f"s{turn}", turn])
            heard |= {f"s{turn}": [], turn: []}
            said |= {f"s{turn}": [], turn: []}
        names = list(heard)
        chosen = [names[i] for i in torch.randperm(len(names), generator=generator)[: 1 + turn % 5]]
        x = torch.randn(len(chosen), 3, generator=generator)
        for name, row, output in zip(chosen, x, stream.step(chosen, x), strict=True):
            heard[name].append(row)
            said[name].append(output)
        if turn % 7 == 6:
            gone = names[turn % len(names)]
            stream.close([gone])
            _same_as_alone(layer, heard.pop(gone), said.pop(gone))
    assert len(stream) == len(heard)
    for name in heard:
        assert name in stream
        _same_as_alone(layer, heard[name], said[name])


def _same_as_alone(layer, heard, said):
    if heard:
        assert_same(torch.stack(said), layer(torch.stack(heard))[0], 1e-5)


def test_weights_trained_while_streaming_count():
    layer = rru.RRU(3, 8).eval()
    stream, x = rru.stream(layer), torch.randn(2, 1, 3)
    stream.open(["a"])
    stream.step(["a"], x[0])
    state = stream.state("a")
    with torch.no_grad():
        for weight in layer.parameters():
            weight.normal_()
        expected, _ = layer(x[1:], state.unsqueeze(1))
    assert_same(stream.step(["a"], x[1]), expected[0], 1e-5)


def test_a_task_model_streams_logits(trained):
    stream = rru.stream(trained.model)
    stream.open(["a"])
    x = (torch.rand(5, 1, 88) < 0.05).float()
    with torch.no_grad():
        expected = trained.model(x)[0]
    assert_same(torch.stack([stream.step(["a"], step) for step in x]), expected, 1e-4)
    assert stream.state("a").shape == (1, trained.model.layers.hidden_size)


def test_mistakes_are_named_and_change_nothing():
    stream = rru.stream(rru.GRU(3, 8).eval())
    stream.open(["a", "b"])
    before = stream.state("a")
    for wrong, message in (
        (lambda: stream.open(["c", "a"]), "session 'a' is already open"),
        (lambda: stream.open(["c", "c"]), "sessions must be distinct, got duplicates"),
        (lambda: stream.step(["a", "a"], torch.zeros(2, 3)), "sessions must be distinct, got duplicates"),
        (lambda: stream.step(["a"], torch.zeros(2, 3)), "inputs must have a row for each of 1 sessions, got 2"),
        (lambda: stream.step(["a"], torch.zeros(1, 4)), "input must have input_size=3 features, got 4"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
    for wrong in (lambda: stream.step(["z"], torch.zeros(1, 3)), lambda: stream.close(["a", "z"])):
        with pytest.raises(KeyError, match="session 'z' is not open"):
            wrong()
    assert len(stream) == 2
    assert_same(stream.state("a"), before)


def test_no_gradients_are_kept_where_the_initial_state_is_learned(monkeypatch):
    layer, first = rru.GRU(3, 8).eval(), torch.nn.Parameter(torch.ones(1, 1, 8))
    monkeypatch.setattr(layer, "initial_state", lambda batch: first.expand(1, batch, 8) * 1)
    stream = rru.stream(layer)
    stream.open(["a"])
    assert not stream.state("a").requires_grad
    assert stream.state("a").eq(1).all()


def test_closing_twice_in_one_call_is_closing():
    stream = rru.stream(rru.GRU(3, 8).eval())
    stream.open(["a", "b"])
    stream.close(["a", "a"])
    assert len(stream) == 1
    stream.open(["c", "d"])
    assert stream.step(["b", "c", "d"], torch.zeros(3, 3)).shape == (3, 8)


def test_sessions_opened_in_inference_mode_go_on_outside_it():
    layer = rru.GRU(3, 8).eval()
    with torch.inference_mode():
        stream = rru.stream(layer)
        stream.open(["a", "b"])
    x = torch.randn(2, 3)
    assert_same(stream.step(["a", "b"], x), layer(x[None])[0][0].detach())


def test_models_that_cannot_stream():
    with pytest.raises(ValueError, match="unidirectional"):
        rru.stream(rru.GRU(3, 8, bidirectional=True).eval())
    with pytest.raises(ValueError, match=r"call \.eval\(\) first"):
        rru.stream(rru.GRU(3, 8))
    with pytest.raises(TypeError, match="takes a layer of rru or the model of a task, got Linear"):
        rru.stream(torch.nn.Linear(3, 4))
