import dataclasses
import json
import math
import re

import pytest
import torch

from benchmarks.robustness import __main__ as robustness
from benchmarks.robustness import contenders, plan, records, training
from benchmarks.robustness.problems import PROBLEMS, languages, memory, shapes
from benchmarks.robustness.problems.pairs import pairs
from benchmarks.robustness.summary import Results

NAMES = ("adding-100", "parity")
CHOICE = ("--problems", ",".join(NAMES), "--contenders", "nn.LSTM,RRU paper", "--rates", "0.001,0.01", "--seeds", "0,1")


@pytest.fixture(autouse=True)
def tiny_problems(monkeypatch):
    for name in NAMES:
        monkeypatch.setitem(PROBLEMS, name, dataclasses.replace(PROBLEMS[name], budget=500, steps=3, batch_size=4))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{") and line.endswith("}")]


def test_an_interrupted_suite_goes_on_and_its_results_become_a_table_and_a_page(tmp_path, capsys):
    path, page = tmp_path / "results.jsonl", tmp_path / "page.html"
    robustness.main(["run", *CHOICE, "--output", str(path)])
    whole = lines(path)
    assert len(whole) == 2 * 2 * 2 * 2
    half = path.read_text().splitlines(keepends=True)[:8]
    path.write_text("".join(half)[:-20])  # killed while it wrote the eighth line
    robustness.main(["run", *CHOICE, "--output", str(path)])
    assert "16 runs of nn.LSTM, RRU paper; 7 are finished" in capsys.readouterr().out
    resumed = lines(path)
    assert [record["score"] for record in resumed] == [record["score"] for record in whole]  # the same on one thread
    robustness.main(["page", "--output", str(path), "--html", str(page)])
    printed = capsys.readouterr().out
    assert re.search(r"^RRU paper +\d", printed, re.MULTILINE)
    assert page.read_text().count("<svg") == len(NAMES)
    for name in NAMES:
        assert f"<h3>{name}</h3>" in page.read_text()


def test_the_first_seed_comes_first_and_every_problem_is_in_it():
    runs = list(plan.runs(list(PROBLEMS.values()), contenders.NAMES, plan.RATES, plan.SEEDS, full=False))
    assert len(runs) == len(PROBLEMS) * len(contenders.NAMES) * len(plan.RATES) * 3
    first = runs[: len(runs) // 3]
    assert {run.seed for run in first} == {0}
    assert {run.problem for run in first} == set(PROBLEMS)
    assert {(run.layers, run.clip) for run in runs} == {(1, True), (2, True), (1, False), (2, False)}


def test_a_choice_of_problems_has_the_same_runs_as_all():
    whole = set(plan.runs(list(PROBLEMS.values()), ["nn.LSTM"], [0.01], plan.SEEDS, full=False))
    for problem in PROBLEMS.values():
        assert set(plan.runs([problem], ["nn.LSTM"], [0.01], plan.SEEDS, full=False)) < whole


def test_the_full_grid_has_all_layers_and_clippings_for_each_seed():
    runs = list(plan.runs([PROBLEMS["parity"]], ["nn.LSTM"], [0.01], plan.SEEDS, full=True))
    assert len(set(runs)) == len(runs) == 2 * 2 * 3


def test_a_run_that_diverges_scores_as_chance():
    run = plan.Run("adding-100", "nn.LSTM", 1e30, 1, True, 0)
    record = training.train(PROBLEMS["adding-100"], run)
    assert record["score"] == record["chance"] == pytest.approx(1 / 6, rel=0.1)
    assert record["loss"] is None or record["loss"] > record["chance"]


@pytest.mark.parametrize("name", ["adding-100", "parity", "pairs", "bach"])
def test_contenders_have_about_as_many_parameters(name):
    counts = []
    for contender in ("nn.LSTM", "nn.GRU", "RRU paper"):
        model, _ = training.build(PROBLEMS[name], contender, 2)
        counts.append(sum(parameter.numel() for parameter in model.parameters()))
    assert max(counts) <= PROBLEMS[name].budget
    assert name in NAMES or min(counts) > 0.9 * PROBLEMS[name].budget  # the tiny ones have steps of a tenth


def scores(**by_contender):
    """Records of one problem at two rates."""
    return {
        plan.Run("parity", name, rate, 1, True, 0): {"score": score, "chance": 1.0}
        for name, pair in by_contender.items()
        for rate, score in zip((0.001, 0.01), pair, strict=True)
    }


def test_ranks_good_cells_and_stuck_problems_follow_from_the_scores():
    found = scores(**{"nn.LSTM": (0.5, 0.01), "nn.GRU": (1.0, 0.05), "RRU paper": (1.0, 0.99)})
    results = Results.of(found, PROBLEMS)
    assert [results.mean_rank(name) for name in results.contenders] == [1.0, (2.5 + 2) / 2, (2.5 + 3) / 2]
    assert [results.good_share(name) for name in results.contenders] == [0.5, 0.5, 0.0]
    assert [results.good_rates("parity", name) for name in results.contenders] == [1, 1, 0]
    assert results.stuck_problems("RRU paper") == ["parity"]
    assert results.stuck_problems("nn.GRU") == []
    assert [results.stuck_cells(name) for name in results.contenders] == [0, 1, 2]


def test_records_of_another_number_of_steps_are_not_mixed_in(tmp_path):
    path = tmp_path / "results.jsonl"
    run = plan.Run("parity", "nn.LSTM", 0.01, 1, True, 0)
    records.append(path, training.train(PROBLEMS["parity"], run, steps=2))
    assert records.read(path, PROBLEMS) == {}
    records.append(path, training.train(PROBLEMS["parity"], run))
    assert list(records.read(path, PROBLEMS)) == [run]


def test_targets_are_what_the_problems_say():
    generator = torch.Generator().manual_seed(0)
    inputs, sums = memory.adding(20, 5, generator)
    assert torch.equal((inputs[..., 0] * inputs[..., 1]).sum(0)[:, None], sums)
    inputs, symbols = memory.copying(7, 5, generator)
    assert torch.equal(inputs[:10].argmax(-1), symbols)
    assert inputs.argmax(-1)[16].tolist() == [memory.GO] * 5
    inputs, innermost = languages.dyck(50, generator)
    for column in range(50):
        stack = []
        for bracket, label in zip(inputs[:, column].argmax(-1).tolist(), innermost[:, column].tolist(), strict=True):
            if bracket < 2:
                stack.append(bracket)
            else:
                assert stack.pop() == bracket - 2
            assert label == (stack[-1] + 1 if stack else 0)
    (first, second), relation = pairs(60, generator)[0].unbind(-1), pairs(60, torch.Generator().manual_seed(0))[1]
    assert first.shape == second.shape == (12, 60)
    assert set(relation.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(("draw", "classes"), [(shapes.cylinder_bell_funnel, 3), (shapes.control_charts, 6)])
def test_shapes_are_standardized_and_of_all_classes(draw, classes):
    series, labels = draw(200, torch.Generator().manual_seed(0))
    assert series.mean(0).abs().max() < 1e-5
    assert series.std(0).sub(1).abs().max() < 1e-5
    assert set(labels.tolist()) == set(range(classes))


def test_chance_is_the_loss_of_the_best_constant():
    assert PROBLEMS["pairs"].chance == pytest.approx(math.log(3), rel=0.01)
    assert PROBLEMS["parity"].chance == pytest.approx(math.log(2), rel=0.01)
    assert 5 < PROBLEMS["bach"].chance < 15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--problems", "parity,nothing"], "got 'nothing'"),
        (["run", "--contenders", "nn.RNN"], "got 'nn.RNN'"),
    ],
)
def test_errors_name_the_value(arguments, message, capsys):
    with pytest.raises(SystemExit):
        robustness.main(arguments)
    assert message in capsys.readouterr().err


def test_a_file_without_results_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match="has no results"):
        robustness.main(["table", "--output", str(tmp_path / "none.jsonl")])


@pytest.mark.parametrize(("num_layers", "bidirectional"), [(1, False), (2, True)])
def test_the_fast_gru_trains_as_nn_gru_does(num_layers, bidirectional):
    inputs, states, weights = torch.randn(7, 3, 4), [], []
    for layer_class in (torch.nn.GRU, contenders.FastGRU):
        torch.manual_seed(0)
        layer = layer_class(4, 5, num_layers=num_layers, bidirectional=bidirectional)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
        for _ in range(3):
            outputs, state = layer(inputs)
            optimizer.zero_grad()
            (outputs.square().mean() + state.mean()).backward()
            optimizer.step()
        states.append(state)
        weights.append(list(layer.parameters()))
    torch.testing.assert_close(states[1], states[0])
    torch.testing.assert_close(weights[1], weights[0])
