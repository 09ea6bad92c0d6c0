"""Language: windows, streams, carried states, evaluation with context."""

import math

import pytest
import torch
import torch.nn.functional as F

from rru.tasks import LanguageTask, WordTask
from tests.tasks import small

CONTEXT = 8


def _task(text=None, stateful=False, **options):
    defaults = {"context": CONTEXT, "batch_size": 5}
    text = text or small.text()
    task_class = WordTask if text.vocabulary.kind == "words" else LanguageTask
    return task_class.of("language", text, stateful=stateful, **{**defaults, **options})


def _uniform(model):
    torch.nn.init.zeros_(model.head.weight)
    torch.nn.init.zeros_(model.head.bias)
    return model


def test_an_epoch_of_words_has_every_whole_window_at_half_stride():
    text = small.text()
    made = []
    for batch in _task(text).epoch(small.generator()):
        assert batch.fresh
        made += zip(batch.inputs.T.tolist(), batch.targets.T.tolist(), strict=True)
    words = text.train.tolist()
    starts = range(0, len(words) - CONTEXT, CONTEXT // 2)
    assert sorted(made) == sorted((words[s : s + CONTEXT], words[s + 1 : s + CONTEXT + 1]) for s in starts)


def test_streams_are_contiguous_parts_of_the_text():
    text = small.text()
    batches = list(_task(text, stateful=True).epoch(small.generator()))
    inputs = torch.cat([batch.inputs for batch in batches])  # (steps, 5)
    targets = torch.cat([batch.targets for batch in batches])
    stream = (len(text.train) - 1) // 5
    assert len(inputs) == stream // CONTEXT * CONTEXT
    for column in range(5):
        start = column * stream
        assert inputs[:, column].tolist() == text.train[start : start + len(inputs)].tolist()
        assert targets[:, column].tolist() == text.train[start + 1 : start + 1 + len(inputs)].tolist()


def test_one_batch_in_ten_starts_anew_and_so_does_every_epoch():
    task = _task(small.text(train=20_000), stateful=True, batch_size=2)
    batches, generator = [], small.generator()
    for _ in range(3):
        epoch = list(task.epoch(generator))
        assert epoch[0].fresh
        batches += epoch[1:]
    share = sum(batch.fresh for batch in batches) / len(batches)
    assert 0.09 < share < 0.11  # of 3,747


@pytest.mark.parametrize("cell", ["rru", "lstm"])  # a state of one part, and of two
def test_a_carried_state_equals_one_long_run(cell):
    task = _task(stateful=True)
    model = small.model_for(task, cell, num_layers=2)
    batches = list(task.epoch(small.generator()))[:4]
    state, losses = None, []
    for number, batch in enumerate(batches):
        object.__setattr__(batch, "fresh", number == 0)
        loss, state = task.loss(model, batch, state)
        losses.append(loss.item())
        assert not any(part.requires_grad for part in ([state] if isinstance(state, torch.Tensor) else state))
    tokens = torch.cat([batch.inputs for batch in batches])
    logits, _ = model(tokens)
    targets = torch.cat([batch.targets for batch in batches])
    assert sum(losses) / 4 == pytest.approx(F.cross_entropy(logits.flatten(0, 1), targets.flatten()).item())


@pytest.mark.parametrize("cell", ["rru", "lstm"])  # a state of one part, and of two
def test_stateful_models_start_from_plain_zeros_others_from_the_cell_s_own_state(cell):
    task, other = _task(stateful=True), _task()
    model, batch = small.model_for(task, cell), task.epoch(small.generator())[0]
    own = small.model_for(other, cell)
    own.load_state_dict(model.state_dict())
    count, size = len(model.layers.cells), model.layers.hidden_size
    zeros = torch.zeros(count, 5, size, dtype=torch.float64)
    state = (zeros, zeros) if cell in ("lstm", "mogrifier") else zeros
    assert torch.equal(model(batch.inputs)[0], own(batch.inputs, state)[0])
    assert torch.equal(own(batch.inputs)[0], own(batch.inputs, state)[0]) == (cell != "rru")
    carried = task.loss(model, batch)[1]
    assert torch.equal(task.loss(model, batch, carried)[0], task.loss(model, batch)[0])  # a fresh batch reads no state


def _naive_nats(task, model, tokens):
    """The nats of every token but the first, each from a run of its own over the context it is due."""
    half, found = max(task.context // 2, 1), []
    for place in range(1, len(tokens)):
        beyond_first = place - 1 - task.context
        start = 0 if beyond_first < 0 else (beyond_first // half + 1) * half
        logits, _ = model(torch.tensor(tokens[start:place].astype("int64"))[:, None])
        found.append(-torch.log_softmax(logits[-1, 0], dim=-1)[int(tokens[place])].item())
    return found


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize(("context", "length"), [(8, 3), (8, 8), (8, 9), (8, 10), (8, 13), (8, 47), (7, 30), (1, 5)])
def test_evaluation_at_half_stride_equals_one_run_per_token(stateful, context, length):
    text = small.text(valid=length)
    task = _task(text, stateful=stateful, context=context)
    model = small.model_for(task, "rru").eval()
    nats = _naive_nats(task, model, text.valid)
    assert task.evaluate(model, "valid")["loss"] == pytest.approx(sum(nats) / len(nats))


def test_perplexity_of_words_and_bits_of_characters():
    words, characters = _task(), _task(small.text(kind="characters"), stateful=True)
    model = small.model_for(words)
    scores = words.evaluate(model, "test")
    assert (words.metric.key, characters.metric.key) == ("perplexity", "bpc")
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    model = small.model_for(characters)
    scores = characters.evaluate(model, "test")
    assert scores["bpc"] == pytest.approx(scores["loss"] / math.log(2))
    assert not words.metric.higher_is_better
    assert not characters.metric.higher_is_better


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary():
    words = _task()
    assert words.evaluate(_uniform(small.model_for(words)), "valid")["perplexity"] == pytest.approx(12)
    characters = _task(small.text(kind="bytes"))
    assert characters.evaluate(_uniform(small.model_for(characters)), "valid")["bpc"] == pytest.approx(math.log2(12))


def test_both_conventions_where_the_text_has_line_ends():
    text = small.text(valid=50, line_ends=True)
    task = _task(text)
    model = small.model_for(task)
    nats = _naive_nats(task, model.eval(), text.valid)
    of_words = [each for each, token in zip(nats, text.valid[1:], strict=True) if token != text.vocabulary.ids["<eos>"]]
    assert 0 < len(of_words) < len(nats)
    scores = task.evaluate(model, "valid")
    assert scores["perplexity"] == scores["perplexity_with_line_ends"]
    assert scores["perplexity_with_line_ends"] == pytest.approx(math.exp(sum(nats) / len(nats)))
    assert scores["perplexity_of_words"] == pytest.approx(math.exp(sum(of_words) / len(of_words)))
    assert "perplexity_with_line_ends" not in _task().evaluate(model, "valid")


def test_a_hopeless_model_has_infinite_perplexity_rather_than_an_error():
    task = _task()
    model = _uniform(small.model_for(task))
    with torch.no_grad():
        model.head.bias[0] = 1e6
    assert task.evaluate(model, "valid")["perplexity"] == math.inf


def test_the_size_of_evaluation_batches_changes_nothing(monkeypatch):
    task = _task()
    model = small.model_for(task)
    expected = task.evaluate(model, "valid")
    monkeypatch.setattr("rru.tasks.language.EVALUATION_LOGITS", 1)
    assert task.evaluate(model, "valid") == pytest.approx(expected)


def test_texts_too_short_are_refused():
    with pytest.raises(ValueError, match="language: train must have at least 41 tokens, got 40"):
        _task(small.text(train=40), stateful=True)
    with pytest.raises(ValueError, match="language: valid must have at least 2 tokens, got 1"):
        _task(evaluation_limit=1)
    assert _task(limit=41, stateful=True).steps_per_epoch() == 1


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_the_report_gets_a_text_that_the_model_wrote(kind):
    task = _task(small.text(kind=kind))
    model = small.model_for(task)
    before = torch.get_rng_state()
    details = task.details(model)
    assert torch.get_rng_state().equal(before)
    assert details == task.details(model)
    given, length = task.sample
    assert details["prompt"] == task.vocabulary.decode(task._texts["test"][:given])
    assert len(task.vocabulary.encode(details["written"])) == length
    assert "<unk>" not in details["written"]


def test_a_model_that_is_not_finite_writes_no_text():
    task = _task()
    model = small.model_for(task)
    torch.nn.init.constant_(model.head.bias, math.nan)
    assert task.details(model) == {}
