"""Runs and exports with a cell or kind of data of one's own, where its file is not loaded."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rru
from rru.cli.commands import app
from rru.data.own.formats import FORMATS
from rru.inference import export
from rru.kinds import KINDS
from rru.nn import registry
from rru.report.gather import gather
from rru.scan import operator
from rru.settings import presets, user_cells
from rru.tasks import TASKS
from rru.training import RunError, train_config
from tests.kinds import test_new_kind

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
FEW = ["task.limit=2", "task.evaluation_limit=2", "task.context=8"]


def forget(cell="janet", kind="waveforms"):
    """Forget what the user's file registered, as in another process."""
    for known in (registry._layers, operator.registered):
        known.pop(cell, None)
    for known in (KINDS, FORMATS, TASKS):
        known.pop(kind, None)
    for name in [name for name in sys.modules if name.startswith("rru_own_")]:
        del sys.modules[name]


@pytest.fixture
def run(janet, tmp_path):
    """A run of the cell that CONTRIBUTING.md shows, which is unknown again."""
    user_cells.load(janet)
    train_config(presets.override(presets.load("bach", "janet", "smoke"), FEW), tmp_path / "runs" / "bach")
    forget()
    return tmp_path / "runs" / "bach"


@pytest.fixture
def heart(tmp_path, monkeypatch):
    """A run of the kind of data that CONTRIBUTING.md shows, which is unknown again."""
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(user_cells.VARIABLE, "")
    (tmp_path / "waves.py").write_text(re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)[1])
    user_cells.load(tmp_path / "waves.py")
    own = rru.data.from_path(test_new_kind.write(tmp_path / "heart.wave"))
    rru.fit(own, preset="smoke", folder=tmp_path / "runs" / "heart")
    forget()
    yield tmp_path / "runs" / "heart"
    forget()


def listed(folder):
    """Return the rows of `rru runs`, without the head; it prints nothing else."""
    ran = CliRunner().invoke(app, ["runs", "--runs", str(folder)])
    assert ran.exit_code == 0
    assert all(line.startswith("Next: ") for line in ran.stderr.splitlines())
    return [line.split() for line in ran.stdout.splitlines()[1:]]


def test_a_run_of_an_own_cell_is_listed_with_its_scores_and_its_code_is_not_run(run, tmp_path):
    (run / "cell.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    ((task, cell, _, seed, status, _, metric, validation, test, *_),) = listed(run.parent)
    assert (task, cell, seed, status, metric) == ("bach", "janet", "0", "finished", "nll")
    assert float(validation) > 0
    assert float(test) > 0
    assert not (tmp_path / "ran").exists()


def test_a_run_of_an_own_kind_is_listed_with_its_scores(heart):
    ((task, cell, _, seed, status, _, metric, validation, sign, test, *_),) = listed(heart.parent)
    assert (task, cell, seed, status, metric) == ("heart", "rru", "0", "finished", "accuracy")
    assert sign == "%"
    assert 0 <= float(validation) <= 100
    assert 0 <= float(test) <= 100


def test_an_unfinished_run_of_an_own_cell_shows_its_validation(run):
    (run / "result.json").unlink()
    (record,) = gather([run])
    assert record.problems == ()
    assert record.validation is not None


def test_using_such_a_run_names_the_file_to_load(run, heart):
    for folder, name, what in ((run, "cell.py", "cell 'janet'"), (heart, "kind.py", "kind of data 'waveforms'")):
        with pytest.raises(RunError, match=rf"own {what}, in {folder / name}.*`rru --code {folder / name} \.\.\.`"):
            rru.load(folder)
    ran = CliRunner().invoke(app, ["stream", str(run)], input="60\n")
    assert ran.exit_code == 1
    assert f"rru --code {run / 'cell.py'}" in ran.stderr
    ran = CliRunner().invoke(app, ["--code", str(run / "cell.py"), "evaluate", str(run)])
    assert (ran.exit_code, ran.stdout.split()[0]) == (0, "test:")


def test_a_run_of_an_own_cell_is_listed_without_a_copy_of_its_file(run):
    (run / "cell.py").unlink()
    (record,) = gather([run])
    assert not record.problems
    assert record.test is not None


@pytest.mark.parametrize("form", ["safetensors", "torch-export"])
def test_an_export_has_the_file_and_its_card_loads_it(run, tmp_path, form):
    user_cells.load(run / "cell.py")
    model = tmp_path / "model"
    files = export(rru.load(run), model, form)
    assert "cell.py" in files
    assert "needs its own code, in `cell.py`" in (model / "README.md").read_text()
    (code,) = re.findall("```python\n(.*?)```", (model / "README.md").read_text(), re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", code], cwd=model, capture_output=True, text=True)
    assert ran.stdout.count("note ") == 4, ran.stderr
    if form == "safetensors":
        forget()
        with pytest.raises(RunError, match=rf"`rru --code {model / 'cell.py'} \.\.\.`"):
            rru.load(model)


def test_a_graph_for_onnx_needs_no_code(run, tmp_path):
    user_cells.load(run / "cell.py")
    assert "cell.py" not in export(rru.load(run), tmp_path / "model", "onnx")


def test_an_export_of_an_own_kind_is_used_with_its_file(heart, tmp_path):
    user_cells.load(heart / "kind.py")
    assert "kind.py" in export(rru.load(heart), tmp_path / "model", "safetensors")
    forget()
    new = test_new_kind.write(tmp_path / "new.wave", 2)
    model = tmp_path / "model"
    ran = CliRunner().invoke(app, ["--code", str(model / "kind.py"), "classify", str(model), str(new)])
    assert (ran.exit_code, len(ran.stdout.splitlines())) == (0, 2), ran.output
    assert "`rru --code kind.py classify`" in (model / "README.md").read_text()
