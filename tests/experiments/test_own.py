"""A cell of one's own, in a file: trained and compared like the paper's."""

import json
import os
import subprocess
import sys

import pytest

from rru.experiments import execute, own, plans, presets
from rru.nn import registry
from rru.scan import operator
from rru.training import RunError


def test_its_settings_are_the_rrus_where_it_knows_them(janet):
    own.load(janet)
    for size in presets.sizes("ptb-words"):
        mine, rrus = presets.load("ptb-words", "janet", size), presets.load("ptb-words", "rru", size)
        unknown = {"output_size", "expansion", "relu_layers"}
        expected = {key: value for key, value in rrus["model"].items() if key not in unknown} | {"cell": "janet"}
        assert mine["model"] == expected
        assert {**mine, "model": {}} == {**rrus, "model": {}}


def test_a_file_sent_by_another_machine_is_known_while_the_process_lasts(janet):
    own.load(janet)
    name, content = own.file()
    assert (name, content) == ("janet.py", janet.read_bytes())
    del sys.modules["rru_own_janet"]
    registry._layers.pop("janet")
    operator.registered.pop("janet")
    folder = own.load_sent(name, content)
    assert own.source("janet") == content
    assert own.load_sent(name, content) is folder  # not twice
    own.load_sent.cache_clear()
    folder.cleanup()


def test_its_own_options_can_be_set(janet):
    own.load(janet)
    config = presets.override(presets.load("bach", "janet", "smoke"), ["forget_bias=0.5"])
    assert config["model"]["forget_bias"] == 0.5
    assert presets.config_id(config) != presets.config_id(presets.load("bach", "janet", "smoke"))
    with pytest.raises(ValueError, match=r"model\.expansion is only for rru; the config is of bach and janet"):
        presets.override(config, ["model.expansion=2"])


def test_plans_compare_it_where_it_is_asked_for(janet):
    own.load(janet)
    lines = [entry.line for entry in plans.load("table1", "smoke", tasks=["bach"], cells=["rru", "janet"]).entries]
    assert lines == ["RRU", "janet"]
    assert "janet" not in [entry.line for entry in plans.load("table1", "smoke").entries]


def test_the_command_trains_it_and_processes_below_know_the_file(janet, tmp_path):
    command = [sys.executable, "-c", "from rru.cli import main; main()"]
    arguments = ["--cells", "janet.py", "train", "bach", "--cell", "janet", "--preset", "smoke", "--run-dir", "run"]
    arguments += ["--set", "task.limit=2", "--set", "task.evaluation_limit=2"]
    done = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "result.json").read_bytes())["status"] == "finished"
    own.load(janet)
    assert os.environ[own.VARIABLE] == str(janet)


def test_a_file_that_is_of_no_use(janet, tmp_path):
    with pytest.raises(ValueError, match=r"cells must come from a Python file, got .*missing\.py"):
        own.load(tmp_path / "missing.py")
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(ValueError, match=r"empty\.py: registers no cell"):
        own.load(tmp_path / "empty.py")
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(ValueError, match=r"broken\.py: could not be run \(ZeroDivisionError: division by zero\)"):
        own.load(tmp_path / "broken.py")


def test_without_its_file_it_is_unknown(janet):
    with pytest.raises(ValueError, match=r"cell must be one of rru, gru, lstm, mogrifier; got 'janet'"):
        presets.load("bach", "janet", "smoke")


def test_a_run_of_it_asks_for_its_file(janet):
    own.load(janet)
    config = presets.load("bach", "janet", "smoke")
    registry._layers.pop("janet")
    with pytest.raises(ValueError, match=r"or one of a file named by `rru --cells FILE \.\.\.`; got 'janet'"):
        presets.checked(config)


def test_an_option_of_it_that_nothing_would_set_is_named(janet):
    janet.write_text(janet.read_text().replace("forget_bias: float = 1.0", "forget_bias: float"))
    own.load(janet)
    with pytest.raises(ValueError, match=r"cell 'janet': its option forget_bias must have a default"):
        presets.load("bach", "janet", "smoke")


def test_a_run_of_it_ends_with_its_file_as_it_was(janet, tmp_path):
    own.load(janet)
    config = presets.override(presets.load("bach", "janet", "smoke"), ["task.limit=1", "task.evaluation_limit=1"])
    assert execute.start(config, tmp_path / "run", stop=lambda: True).status == "stopped"
    before = janet.read_text()
    janet.write_text(before + "# another cell now\n")
    with pytest.raises(RunError, match=r"the cell's file was changed since this run began"):
        execute.start(config, tmp_path / "run")
    janet.write_text(before)
    result = execute.start(config, tmp_path / "run")
    assert execute.evaluate(tmp_path / "run", "test") == result.test
    janet.write_text(before + "# another cell now\n")
    with pytest.raises(RunError, match=r"as it was then: .*run/cell\.py"):
        execute.evaluate(tmp_path / "run", "test")
