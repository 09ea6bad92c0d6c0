"""Plans: what the paper's tables and figures consist of, by the paper's own source where that is."""

import re
import tomllib
from pathlib import Path

import pytest

from rru.experiments import plans
from rru.settings import presets
from tests.settings.paper import number, paragraph, table
from tests.settings.test_paper import CELLS, read

ROBUSTNESS = {
    "robustness-nottingham": ("For Nottingham here we use the same configuration", "nottingham"),
    "robustness-ptb": ("For word-level Penn Treebank here we use", "ptb-words"),
}


@pytest.fixture(scope="module")
def source():
    return read("paper.tex")


def axes(plan):
    """The values of each axis, in order."""
    names = plan.runs[0].point
    return {name: list(dict.fromkeys(entry.point[name] for entry in plan.runs)) for name in names}


@pytest.mark.parametrize("name", ROBUSTNESS)
def test_robustness_has_the_papers_grid(source, name):
    start, task = ROBUSTNESS[name]
    text = paragraph(source[source.index(r"\subsection{Robustness Experiments}") :], start)
    grid = text[text.index("There are") :]
    rates = [number(found) for found in re.findall(r"\$(\d+e-\d)\$", grid.partition("(")[0])]
    budgets = [number(found) for found in re.findall(r"(\d+\.\dM)", grid.split("number of parameters")[1])[:10]]
    plan = plans.load(name)
    assert axes(plan) == {"optimiser.lr": rates, "model.budget": budgets}
    assert len(rates) == len(budgets) == 10
    assert len(plan.runs) == int(re.search(r"There are (\d+) runs", text)[1]) * len(CELLS)
    expansion, dropout = re.search(r"multiplier \$q\$ as (\d+) and dropout rate as (\d\.\d)", text).groups()
    for entry in plan.runs:
        main = presets.load(task, entry.cell)
        assert entry.config.model.dropout == float(dropout)
        if entry.cell == "rru":
            assert entry.config.model.options["expansion"] == float(expansion)
        assert entry.config.optimiser.lr == entry.point["optimiser.lr"]
        assert entry.config.model.budget == entry.point["model.budget"]
        assert entry.config.task == main.task
        assert entry.config.schedule == main.schedule


def test_nottingham_dropout_matches_the_paper(source):
    text = paragraph(source[source.index(r"\label{dropout-configuration}") :], "For Nottingham here")
    budget, rate, expansion = re.search(
        r"parameters to (\d+) million, learning rate as \$(1e-3)\$, middle layer size multiplier \$q\$ as (\d\.\d)",
        text,
    ).groups()
    first, last = map(float, re.search(r"from ([\d.]+) to ([\d.]+)\.", text).groups())
    plan = plans.load("dropout-nottingham")
    tried = axes(plan)["model.dropout"]
    assert (tried[0], tried[-1], len(tried)) == (first, last, 10)
    for entry in plan.runs:
        assert entry.config.model.budget == int(budget) * 10**6
        assert entry.config.optimiser.lr == float(rate)
        if entry.cell == "rru":
            assert entry.config.model.options["expansion"] == float(expansion)


def test_dropout_of_characters_changes_nothing_else_of_the_main_experiments():
    for entry in plans.load("dropout-ptb-chars").runs:
        main = presets.load("ptb-chars", entry.cell)
        assert entry.config == main.changed({"model.dropout": entry.point["model.dropout"]})


def test_table_1_is_every_task_and_cell_as_the_presets_have_them():
    plan = plans.load("table1")
    assert {entry.line for entry in plan.runs} == set(CELLS)
    assert [entry.config for entry in plan.runs] == [
        presets.load(task, cell) for task in presets.tasks() if task != "bach" for cell in CELLS.values()
    ]


def test_table_2_has_the_papers_versions_on_the_papers_tasks(source):
    _, *blocks = table(source, "tab:ablation")
    versions = [re.sub(r"\\textbf\{(.*)\}", r"\1", row[0]).replace("$", "").replace("o_t", "o") for row in blocks[0]]
    plan = plans.load("table2")
    lines = list(dict.fromkeys(entry.line for entry in plan.runs))
    assert lines == [re.sub(r"\s*=\s*", " = ", version) for version in versions]
    dropout = re.search(r"dropout rate which isn't tuned, but set as (\d\.\d)", source)[1]
    for entry in plan.runs:
        expected = presets.load(entry.task, "rru")
        if entry.task == "ptb-chars":
            expected = expected.changed({"model.dropout": float(dropout)})
        before = expected.tables()["model"]
        changed = {name: value for name, value in entry.config.tables()["model"].items() if before.get(name) != value}
        assert (
            changed
            == {
                "RRU": {},
                "no normalization": {"normalize": False},
                "single scalar ReZero": {"rezero": "scalar"},
                "ReLU over c and o": {"activate_outputs": True},
                "S = 1": {"residual": "unscaled"},
                "S initialized with 0.95": {"residual": 0.95},
            }[entry.line]
        )
    assert {entry.task for entry in plan.runs} == {"ptb-chars", "imdb", "mnist", "nottingham", "ptb-words"}


@pytest.mark.parametrize("preset", plans.PRESETS)
@pytest.mark.parametrize("name", plans.names())
def test_no_plan_asks_for_the_same_run_twice(name, preset):
    ids = [entry.id for entry in plans.load(name, preset, seeds=(0, 1)).runs]
    assert len(set(ids)) == len(ids) > 0


def test_plans_share_runs():
    ids = {name: {entry.id for entry in plans.load(name).runs} for name in plans.names()}
    assert ids["convergence"] < ids["table1"]
    assert len(ids["table2"] & ids["table1"]) == 4  # the RRU itself, but on characters, whose dropout differs
    assert len(ids["robustness-normalization"] & ids["robustness-nottingham"]) == 100
    assert len(ids["robustness-normalization"] & ids["robustness-ptb"]) == 100


def test_filters_keep_the_plans_order():
    plan = plans.load("table1", "smoke", cells=["gru", "rru"], tasks=["bach", "jsb"], seeds=[4, 2])
    found = [(entry.task, entry.line, entry.seed) for entry in plan.runs]
    assert found == [(task, line, seed) for task in ("jsb", "bach") for line in ("RRU", "GRU") for seed in (4, 2)]
    assert all(entry.config.schedule.seed == entry.seed for entry in plan.runs)


def test_a_smaller_preset_is_smaller():
    for name in plans.names():
        budgets = {size: max(e.config.model.budget for e in plans.load(name, size).runs) for size in plans.PRESETS}
        assert budgets["paper"] >= budgets["cpu"] > budgets["smoke"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tabel1",), "plan must be one of table1, .*; got 'tabel1'; did you mean 'table1'"),
        (("table1", "demo"), "preset must be one of paper, cpu, smoke; got 'demo'"),
    ],
)
def test_wrong_name_lists_the_valid_ones(arguments, said):
    with pytest.raises(ValueError, match=said):
        plans.load(*arguments)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cells": ["gruu"]}, "cell must be one of .*; did you mean 'gru'"),
        ({"cells": ["janet"]}, "cell must be one of .*; got 'janet'; @rru.register_cell adds your own"),
        ({"tasks": ["ptb-word"]}, "task must be one of .*; did you mean 'ptb-words'"),
        ({"seeds": [-1]}, "schedule.seed must be a whole number at least 0.*, got -1"),
    ],
)
def test_wrong_filter_lists_the_valid_ones(options, said):
    with pytest.raises(ValueError, match=said):
        plans.load("table1", **options)


def test_a_cell_that_a_plan_does_not_compare_is_refused():
    with pytest.raises(ValueError, match="cell must be one of rru; got 'gru'"):
        plans.load("table2", cells=["gru"])


@pytest.mark.parametrize(
    ("text", "seeds"), [("0", (0,)), ("0,1,2", (0, 1, 2)), ("0-4", (0, 1, 2, 3, 4)), ("7, 1-2,7", (7, 1, 2))]
)
def test_seeds_are_written_as_numbers_and_ranges(text, seeds):
    assert plans.seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["x", "", "1,", "-1", "3-1", "1.5", "0-1000", "1-2-3", "0-99999999999999999999"])
def test_malformed_seeds_are_refused(text):
    with pytest.raises(ValueError, match=r"seeds must be whole numbers .* such as 0,1,2 or 0-4; got"):
        plans.seeds_of(text)


def test_documented_plan_can_be_added(monkeypatch):
    document = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    added = tomllib.loads(re.search(r"```toml\n(.*?)```", document, re.DOTALL)[1])
    tables = presets.merged(plans._read(), added)
    monkeypatch.setattr(plans, "_read", lambda: tables)
    (name,) = added["plans"]
    assert len(plans.load(name).runs) == 6
    assert plans.load(name, "smoke", tasks=["bach"]).runs[0].config.model.budget == 40_000


def test_a_run_is_named_by_its_place_in_the_plan():
    entry = plans.load("robustness-nottingham").runs[0]
    assert entry.name == "nottingham, RRU, lr 0.0001, budget 1,000,000, seed 0"
