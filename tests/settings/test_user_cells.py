"""A cell of one's own, in a file: trained and compared like the paper's."""

import json
import os
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from rru.cli.commands import app
from rru.experiments import plans
from rru.nn import registry
from rru.scan import operator
from rru.settings import Config, presets, user_cells
from rru.settings.ranges import Range, ranges
from rru.training import RunError, evaluate, find_runs, train_config


def test_its_settings_are_the_rrus_where_it_knows_them(janet):
    user_cells.load(janet)
    for size in presets.names("ptb-words"):
        mine, rrus = presets.load("ptb-words", "janet", size), presets.load("ptb-words", "rru", size)
        assert mine.model == replace(rrus.model, cell="janet", cell_options=())
        assert replace(mine, model=rrus.model) == rrus


def test_a_file_sent_by_another_machine_is_known_while_the_process_lasts(janet):
    user_cells.load(janet)
    name, content = user_cells.file()
    assert (name, content) == ("janet.py", janet.read_bytes())
    del sys.modules["rru_own_janet"]
    registry._layers.pop("janet")
    operator.registered.pop("janet")
    folder = user_cells.load_sent(name, content)
    assert user_cells.source("janet") == content
    assert user_cells.load_sent(name, content) is folder  # not twice
    user_cells.load_sent.cache_clear()
    folder.cleanup()


def test_its_own_options_can_be_set(janet):
    user_cells.load(janet)
    config = presets.override(presets.load("bach", "janet", "smoke"), ["forget_bias=0.5"])
    assert config.model.options["forget_bias"] == 0.5
    assert config.id != presets.load("bach", "janet", "smoke").id
    with pytest.raises(ValueError, match=r"model\.expansion is only for rru; this config is for bach and janet"):
        presets.override(config, ["model.expansion=2"])


def test_plans_compare_it_where_it_is_asked_for(janet):
    user_cells.load(janet)
    lines = [entry.line for entry in plans.load("table1", "smoke", tasks=["bach"], cells=["rru", "janet"]).runs]
    assert lines == ["RRU", "janet"]
    assert "janet" not in [entry.line for entry in plans.load("table1", "smoke").runs]


def command(janet, *arguments):
    few = [
        "--cell",
        "janet",
        "--preset",
        "smoke",
        "--set",
        "task.limit=2",
        "--set",
        "task.evaluation_limit=2",
        "--set",
        "context=8",
    ]
    done = CliRunner().invoke(app, ["--code", str(janet), *arguments, *few])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_trains_it_and_processes_below_know_the_file(janet, tmp_path):
    command(janet, "train", "bach", "--run-dir", str(tmp_path / "run"))
    assert json.loads((tmp_path / "run" / "result.json").read_bytes())["status"] == "finished"
    assert os.environ[user_cells.VARIABLE] == str(janet)


def test_the_command_searches_its_settings(janet, tmp_path):
    said = command(janet, "tune", "bach", "--trials", "1", "--runs", str(tmp_path))
    assert "1 of 1 trials: 1 finished" in said
    assert [run.config.model.cell for run in find_runs(tmp_path)] == ["janet"]


def test_the_search_range_of_its_option_is_declared_with_it(janet):
    janet.write_text(
        janet.read_text()
        .replace(
            "forget_bias: float = 1.0",
            'forget_bias: Annotated[float, Option("bias", below=5, search=(0.5, 2.0))] = 1.0',
        )
        .replace(
            "import torch\n", "from typing import Annotated\n\nimport torch\n\nfrom rru.nn.options import Option\n", 1
        )
    )
    user_cells.load(janet)
    config = presets.load("bach", "janet", "smoke")
    assert list(ranges(config, "smoke")) == ["optimiser.lr", "model.dropout", "model.forget_bias", "model.budget"]
    assert ranges(config, "smoke")["model.forget_bias"] == Range(0.5, 2.0)
    with pytest.raises(ValueError, match=r"model\.forget_bias must be a number below 5, got 5\.0"):
        presets.override(config, ["forget_bias=5"])


def test_a_file_that_is_of_no_use(janet, tmp_path):
    with pytest.raises(ValueError, match=r"missing\.py: does not exist; it should be a Python"):
        user_cells.load(tmp_path / "missing.py")
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(ValueError, match=r"empty\.py: registers no cell"):
        user_cells.load(tmp_path / "empty.py")
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(ValueError, match=r"broken\.py: raised an error \(ZeroDivisionError: division by zero\)"):
        user_cells.load(tmp_path / "broken.py")


def test_without_its_file_it_is_unknown(janet):
    with pytest.raises(ValueError, match=r"cell must be one of rru, gru, lstm, mogrifier; got 'janet'"):
        presets.load("bach", "janet", "smoke")


def test_a_run_of_it_asks_for_its_file(janet):
    user_cells.load(janet)
    tables = presets.load("bach", "janet", "smoke").tables()
    registry._layers.pop("janet")
    with pytest.raises(ValueError, match=r"or a cell from `rru --code FILE \.\.\.`; got 'janet'"):
        Config.of(tables)


def test_an_option_of_it_that_nothing_would_set_is_named(janet):
    janet.write_text(janet.read_text().replace("forget_bias: float = 1.0", "forget_bias: float"))
    user_cells.load(janet)
    with pytest.raises(ValueError, match=r"cell 'janet': option forget_bias must have a default"):
        presets.load("bach", "janet", "smoke")


def test_a_run_of_it_ends_with_its_file_as_it_was(janet, tmp_path):
    user_cells.load(janet)
    config = presets.override(presets.load("bach", "janet", "smoke"), ["task.limit=1", "task.evaluation_limit=1"])
    assert train_config(config, tmp_path / "run", stop=lambda: True).status == "stopped"
    before = janet.read_text()
    janet.write_text(before + "# another cell now\n")
    with pytest.raises(RunError, match=r"the cell's file has changed since this run started"):
        train_config(config, tmp_path / "run")
    janet.write_text(before)
    result = train_config(config, tmp_path / "run")
    assert evaluate(tmp_path / "run", "test") == result.test
    janet.write_text(before + "# another cell now\n")
    with pytest.raises(RunError, match=r"the original is .*run/cell\.py"):
        evaluate(tmp_path / "run", "test")
