"""Windows, batches and their order."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rru.tasks import ImageTask, LanguageTask, MusicTask, ReviewTask, WordTask
from rru.tasks.batches import groups, windows
from tests.tasks import small

TASKS = {
    "music": lambda: MusicTask.of("music", small.music(), context=10, batch_size=4),
    "words": lambda: WordTask.of("words", small.text(), context=8, batch_size=5, stateful=False),
    "streams": lambda: LanguageTask.of("chars", small.text(), context=8, batch_size=3, stateful=True),
    "reviews": lambda: ReviewTask.of("reviews", small.reviews(), batch_size=4),
    "images": lambda: ImageTask.of("pmnist", small.images(), batch_size=3),
}


def _obvious_windows(steps, context, stride):
    found, start = [], 0
    while steps > 0:
        found.append((start, min(context, steps - start)))
        if start + context >= steps:
            break
        start += stride
    return found


@given(st.integers(0, 60), st.integers(1, 12), st.data())
def test_windows_are_those_of_a_slow_loop(steps, context, draw):
    stride = draw.draw(st.integers(1, context))
    assert windows(steps, context, stride) == _obvious_windows(steps, context, stride)


def test_the_rest_of_a_piece_is_one_shorter_window():
    assert windows(450, 200, 200) == [(0, 200), (200, 200), (400, 50)]
    assert windows(450, 200, 100) == [(0, 200), (100, 200), (200, 200), (300, 150)]
    assert windows(400, 200, 100) == [(0, 200), (100, 200), (200, 200)]
    assert windows(30, 200, 100) == [(0, 30)]


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, []), (3, [3]), (4, [4]), (7, [7]), (8, [4, 4]), (11, [4, 7]), (12, [4, 4, 4])]
)
def test_an_incomplete_last_batch_is_merged_into_the_one_before(count, sizes):
    made = [list(range(count))[group] for group in groups(count, 4)]
    assert [len(group) for group in made] == sizes
    assert [number for group in made for number in group] == list(range(count))


@pytest.mark.parametrize("name", TASKS)
def test_the_order_depends_only_on_the_generator(name):
    task = TASKS[name]()
    first = list(task.epoch(small.generator(3)))
    torch.manual_seed(99)
    again = list(TASKS[name]().epoch(small.generator(3)))
    assert len(first) == len(again) == task.steps_per_epoch()
    assert all(map(small.same, first, again))


@pytest.mark.parametrize("name", ["music", "words", "reviews", "images"])
def test_every_epoch_has_another_order(name):
    task, generator = TASKS[name](), small.generator()
    assert not all(map(small.same, task.epoch(generator), task.epoch(generator)))


@pytest.mark.parametrize("name", TASKS)
def test_batches_can_be_had_in_any_order(name):
    task = TASKS[name]()
    in_order, other = list(task.epoch(small.generator())), task.epoch(small.generator())
    for index in reversed(range(len(other))):
        assert small.same(other[index], in_order[index])
    assert small.same(other[-1], in_order[-1])
    with pytest.raises(IndexError):
        other[len(other)]


@pytest.mark.parametrize("name", TASKS)
def test_tokens_are_the_steps_that_count(name):
    for batch in TASKS[name]().epoch(small.generator()):
        steps, sequences = batch.inputs.shape[:2]
        assert batch.tokens == (steps * sequences if batch.lengths is None else batch.lengths.sum())
        assert batch.lengths is None or batch.lengths.max() == steps


@pytest.mark.parametrize("name", TASKS)
def test_evaluation_leaves_mode_gradients_and_generator_as_they_were(name):
    task = TASKS[name]()
    model = small.model_for(task, dropout=0.5)
    model.head.eval()
    before = torch.get_rng_state()
    scores = task.evaluate(model, "valid")
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert model.layers.training
    assert not model.head.training
    assert all(weight.grad is None for weight in model.parameters())
    assert task.metric.key in scores
    assert scores == task.evaluate(model, "valid")
    with pytest.raises(ValueError, match="split must be 'train' or 'valid' or 'test', got 'dev'"):
        task.evaluate(model, "dev")
