"""A config becomes a run: where it is, what it goes on with, and what is refused."""

import json
import subprocess
import sys

import pytest

from rru.data import Vocabulary
from rru.experiments import execute, presets
from rru.training import Run, RunError


def tiny(*changes, task="bach"):
    few = ["task.limit=2", "task.evaluation_limit=2", "epochs=1"]
    return presets.override(presets.load(task, "lstm", "smoke"), [*few, *changes])


class TestAFolderThatHasARun:
    def test_goes_on_however_often_it_was_to_log(self, tmp_path):
        first = execute.start(tiny(), tmp_path / "run")
        assert execute.start(tiny("log_steps=1", "checkpoint_seconds=5"), tmp_path / "run") == first

    def test_goes_on_with_numbers_written_another_way(self, tmp_path):
        assert execute.start(tiny("dropout=0"), tmp_path / "run", stop=lambda: True).status == "stopped"
        file = tmp_path / "run" / "config.toml"
        file.write_text(file.read_text().replace("dropout = 0.0", "dropout = 0"))
        assert execute.start(presets.checked(Run(tmp_path / "run").config), tmp_path / "run").status == "finished"

    def test_of_other_settings_is_refused_and_they_are_named(self, tmp_path):
        execute.start(tiny(), tmp_path / "run")
        with pytest.raises(RunError, match=r"run: .*\(optimiser\.lr is 0\.005, not 0\.1\); choose another folder"):
            execute.start(tiny("lr=0.1"), tmp_path / "run")


@pytest.mark.parametrize("device", ["cuda:99", "nowhere", "meta", ""])
def test_a_device_that_is_not_there_is_refused_before_anything_is_written(device, tmp_path):
    with pytest.raises(ValueError, match=rf"device must be one .*, such as cpu; got '{device}'"):
        execute.start(tiny(), tmp_path / "run", device=device)
    assert list(tmp_path.iterdir()) == []


def test_all_threads_flush_numbers_too_small_to_matter(tmp_path):
    program = """
import sys, torch
from pathlib import Path
from rru.experiments import execute, presets
from rru.training import Stepped
torch.set_num_threads(2)

def watch(event):
    if isinstance(event, Stepped):
        print(int((torch.full((1_000_000,), 1e-30) * 1e-10).count_nonzero()))

execute.start(presets.load("bach", "rru", "smoke"), Path(sys.argv[1]), watch=watch, stop=lambda: True)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


class TestRunsBelowAFolder:
    def test_what_is_no_run_is_told_of_and_left_out(self, tmp_path):
        Run.create(tmp_path / "good", tiny())
        for name, content in {"cut": "x = [", "other": "task = 3", "odd": '[task]\nname = ["bach"]'}.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "config.toml").write_text(content)
        problems = {}
        assert [run.path.name for run in execute.find_runs(tmp_path, problems.__setitem__)] == ["good"]
        assert list(problems) == [tmp_path / name for name in ("cut", "odd", "other")]
        assert all(str(problem).startswith(f"{folder / 'config.toml'}: ") for folder, problem in problems.items())
        with pytest.raises(RunError, match=r"cut/config\.toml: cannot be read"):
            execute.find_runs(tmp_path)


def test_best_weights_are_found_among_other_things(tmp_path):
    result = execute.start(tiny(), tmp_path / "run")
    (tmp_path / "run" / "best" / "epoch-x").mkdir()
    assert execute.evaluate(tmp_path / "run", "test") == result.test


def test_a_run_on_text_keeps_its_vocabulary(tmp_path, monkeypatch):
    text = Vocabulary(("<pad>", "<unk>", "ä"), "characters", 0, 1)
    assembled = execute.assemble(tiny())
    assembled.task.vocabulary = text
    monkeypatch.setattr(execute, "assemble", lambda *_: assembled)
    execute.start(tiny(), tmp_path / "run")
    assert Vocabulary.load(tmp_path / "run" / execute.VOCABULARY) == text
    assert json.loads((tmp_path / "run" / execute.VOCABULARY).read_bytes())["tokens"][2] == "ä"
