"""Models: sizes, initial values, options."""

import pytest
import torch

import rru
from rru import tasks
from rru.tasks import ImageTask, MusicTask, ReviewTask, WordTask
from rru.tasks.models import Architecture
from tests.tasks import small

TASKS = {
    "music": lambda: MusicTask.of("music", small.music()),
    "words": lambda: WordTask.of("words", small.text(), context=8, batch_size=5, stateful=False),
    "reviews": lambda: ReviewTask.of("reviews", small.reviews()),
    "images": lambda: ImageTask.of("images", small.images()),
}


def _one_larger(model):
    """The same model with a hidden size larger by one."""
    cell, layers = model.layers.cells[0], model.layers
    options = {name: getattr(cell, name) for name in small.CELLS[cell.name]}
    larger = type(layers)(layers.input_size, layers.hidden_size + 1, num_layers=layers.num_layers, **options)
    count = None if model.embedding is None else model.embedding.num_embeddings
    return type(model)(larger, Architecture(type(model), model.head.out_features, tokens=count))


@pytest.mark.parametrize(("name", "cell"), list(zip(TASKS, small.CELLS, strict=True)))
def test_the_budget_is_met_by_the_largest_model_that_fits(name, cell):
    model = TASKS[name]().model(cell, {**small.CELLS[cell], "num_layers": 2}, 50_000)
    assert model.layers.cells[0].name == cell
    assert len(model.layers.cells) == 2
    assert rru.count_parameters(model) <= 50_000 < rru.count_parameters(_one_larger(model))


def test_embeddings_are_uniform_from_minus_one_to_one():
    weight = TASKS["reviews"]().model("gru", {"embedding_size": 500}, 2_000_000).embedding.weight
    assert weight.shape == (12, 500)
    assert -1 <= weight.min() < -0.99
    assert 0.99 < weight.max() <= 1
    assert abs(weight.mean()) < 0.03


def test_the_same_seed_gives_the_same_model():
    made = []
    for _ in range(2):
        torch.manual_seed(4)
        made.append(TASKS["words"]().model("rru", small.CELLS["rru"], 5_000).state_dict())
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])


def test_options_reach_the_cells():
    model = TASKS["music"]().model(
        "rru", {"output_size": 7, "expansion": 0.7, "relu_layers": 2, "dropout": 0.6}, 50_000
    )
    cell = model.layers.cells[0]
    assert (cell.output_size, cell.expansion, cell.relu_layers, cell.dropout) == (7, 0.7, 2, 0.6)
    assert model.head.in_features == 7


def test_an_option_that_a_cell_has_not_is_named():
    with pytest.raises(ValueError, match=r"options of cell 'gru' must be among num_layers, .*; got 'expansion'"):
        TASKS["music"]().model("gru", {"expansion": 2.0}, 50_000)
    with pytest.raises(ValueError, match="got 'embedding_size'"):
        TASKS["music"]().model("gru", {"embedding_size": 2}, 50_000)


def test_a_task_by_name():
    task = tasks.load("bach", batch_size=8, limit=20, evaluation_limit=2)
    assert (task.name, task.metric.key, task.metric.higher_is_better) == ("bach", "nll", False)
    assert sum(len(batch.lengths) for batch in task.epoch(small.generator())) >= 20
    assert {"bach", "jsb", "ptb-words", "imdb", "pmnist"} <= set(tasks.task_names())
    with pytest.raises(ValueError, match=r"options of task 'bach' must be among .*; got 'line_ends'"):
        tasks.load("bach", line_ends=True)


def test_bach_is_learned():
    task = tasks.load("bach", limit=48, evaluation_limit=5)
    torch.manual_seed(0)
    model = task.model("gru", {}, 20_000)
    before = task.evaluate(model, "valid")["nll"]
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = small.generator()
    for _ in range(6):
        for batch in task.epoch(generator):
            optimiser.zero_grad()
            task.loss(model, batch)[0].backward()
            optimiser.step()
    assert before > 55
    assert task.evaluate(model, "valid")["nll"] < 14
