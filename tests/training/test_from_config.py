"""A config becomes a run: where it is, what it goes on with, and what is refused."""

import json

import pytest
import torch

from rru.data import Vocabulary
from rru.settings import presets
from rru.training import Run, RunError, evaluate, find_runs, from_config, train_config
from rru.training.denormals import denormals_flushed
from rru.training.run_files import VOCABULARY
from tests.training.victim import flush


def tiny(*changes, task="bach"):
    few = ["task.limit=2", "task.evaluation_limit=2", "epochs=1"]
    return presets.override(presets.load(task, "lstm", "smoke"), [*few, *changes])


class TestAFolderThatHasARun:
    def test_resumes_with_other_log_steps(self, tmp_path):
        first = train_config(tiny(), tmp_path / "run")
        assert train_config(tiny("log_steps=1", "checkpoint_seconds=5"), tmp_path / "run") == first

    def test_resumes_with_reformatted_numbers(self, tmp_path):
        assert train_config(tiny("dropout=0"), tmp_path / "run", stop=lambda: True).status == "stopped"
        file = tmp_path / "run" / "config.toml"
        file.write_text(file.read_text().replace("dropout = 0.0", "dropout = 0"))
        assert train_config(Run(tmp_path / "run").config, tmp_path / "run").status == "finished"

    def test_other_settings_are_refused_by_name(self, tmp_path):
        train_config(tiny(), tmp_path / "run")
        with pytest.raises(RunError, match=r"run: .*\(optimiser\.lr is 0\.005, not 0\.1\); choose another folder"):
            train_config(tiny("lr=0.1"), tmp_path / "run")


@pytest.mark.parametrize("device", ["cuda:99", "nowhere", "meta", ""])
def test_missing_device_is_refused_before_writing(device, tmp_path):
    with pytest.raises(ValueError, match=rf"device must be one .*, such as cpu; got '{device}'"):
        train_config(tiny(), tmp_path / "run", device=device)
    assert list(tmp_path.iterdir()) == []


def test_all_threads_flush_denormals(processes, tmp_path):
    """In a process that has started none yet: they copy the setting from the thread that starts them."""
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=flush, args=(tmp_path / "run", sender))
    process.start()
    assert receiver.recv() == 0
    process.join()


@pytest.mark.parametrize("flushed", [False, True])
def test_flushing_is_restored_afterwards(flushed):
    tiny_number = torch.tensor(1e-30) * 1e-10
    torch.set_flush_denormal(flushed)
    try:
        with denormals_flushed():
            assert torch.tensor(1e-30) * 1e-10 == 0
        assert (torch.tensor(1e-30) * 1e-10 == 0) == flushed
    finally:
        torch.set_flush_denormal(False)
    assert tiny_number > 0


class TestRunsBelowAFolder:
    def test_non_run_is_reported_and_skipped(self, tmp_path):
        Run.create(tmp_path / "good", tiny())
        for name, content in {"cut": "x = [", "other": "task = 3", "odd": '[task]\nname = ["bach"]'}.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "config.toml").write_text(content)
        problems = {}
        assert [run.path.name for run in find_runs(tmp_path, problems.__setitem__)] == ["good"]
        assert list(problems) == [tmp_path / name for name in ("cut", "odd", "other")]
        assert all(str(problem).startswith(f"{folder / 'config.toml'}: ") for folder, problem in problems.items())
        with pytest.raises(RunError, match=r"cut/config\.toml: cannot be read"):
            find_runs(tmp_path)


def test_best_weights_are_found_among_other_files(tmp_path):
    result = train_config(tiny(), tmp_path / "run")
    (tmp_path / "run" / "best" / "epoch-x").mkdir()
    assert evaluate(tmp_path / "run", "test") == result.test


def test_a_run_on_text_keeps_its_vocabulary(tmp_path, monkeypatch):
    text = Vocabulary(("<pad>", "<unk>", "ä"), "characters", 0, 1)
    assembled = from_config.assemble(tiny())
    assembled.task.vocabulary = text
    monkeypatch.setattr(from_config, "assemble", lambda *_: assembled)
    train_config(tiny(), tmp_path / "run")
    assert Vocabulary.load(tmp_path / "run" / VOCABULARY) == text
    assert json.loads((tmp_path / "run" / VOCABULARY).read_bytes())["tokens"][2] == "ä"
