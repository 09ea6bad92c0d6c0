"""Checkpoints: exact, without pickle, two of them, and the one before takes the place of a damaged one."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn

from rru.files import Damaged
from rru.training import RunError
from rru.training.checkpoint import Checkpoint, Checkpoints, flatten, pack, restore, unpack
from rru.training.events import Notice
from rru.training.folder import Run
from tests.timeouts import TIMEOUT
from tests.training.toy import outcome, train_in


def _stopped(folder, step=11):
    asked = iter([False] * (step - 1) + [True])
    train_in(folder, stop=lambda: next(asked))
    return sorted((folder / "checkpoint").iterdir())


def _hurt(path, damage):
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
    path.write_bytes({"cut": content[:middle], "flipped": flipped}.get(damage, b""))
    if damage == "missing":
        path.unlink()


class TestContent:
    def test_checkpoint_round_trip(self, tmp_path):
        state = {
            "numbers": {0: 1, 1: 1e-300, "two": float("inf"), "three": True, "none": None},
            "betas": (0.9, 0.999),
            "nested": [(), [], {}, ({"a": [torch.tensor(3)]},)],
            "tensors": (torch.randn(3, 2).double(), torch.tensor([], dtype=torch.uint8), torch.tensor(True)),
        }
        Checkpoints(tmp_path).save(Checkpoint({"weight": torch.randn(2, 3).t()}, state))
        loaded, damages = Checkpoints(tmp_path).load()
        assert damages == []
        assert repr(loaded.state) == repr(state)
        assert all(
            one.dtype == other.dtype for one, other in zip(loaded.state["tensors"], state["tensors"], strict=True)
        )

    def test_shared_weights_are_saved_separately(self):
        weight = torch.arange(6.0).reshape(2, 3)
        loaded = unpack(pack({"one": weight, "same": weight, "part": weight[1:], "other way": weight.t()}), "file")
        assert loaded["same"].equal(weight)
        assert loaded["part"].equal(weight[1:])
        assert loaded["other way"].equal(weight.t())

    def test_values_that_need_pickle_are_refused(self):
        with pytest.raises(TypeError, match=r"got Linear at state\.model"):
            flatten({"model": nn.Linear(1, 1)})

    @pytest.mark.parametrize("tree", [{"pickle": "x"}, {"a": 1, "b": 2}, {}, {"tensor": "none"}, {"dict": [1]}])
    def test_malformed_tree_is_refused(self, tree):
        with pytest.raises((ValueError, KeyError, TypeError)):
            restore(tree, {})

    def test_nothing_in_a_run_is_a_pickle(self, tmp_path):
        train_in(tmp_path / "run")
        suffixes = {path.suffix for path in (tmp_path / "run").rglob("*") if path.is_file()}
        assert suffixes == {".toml", ".json", ".jsonl", ".safetensors", ""}  # without one: the lock

    def test_weights_can_be_read_by_anyone(self, tmp_path):
        from safetensors.torch import load_file

        result = train_in(tmp_path / "run")
        weights = load_file(tmp_path / "run" / "best" / f"epoch-{result.best_epoch:04}" / "model.safetensors")
        assert weights["head.weight"].shape == (3, 6)


class TestDamage:
    @pytest.mark.parametrize("name", ["model.safetensors", "state.safetensors", "state.json", "manifest.json"])
    @pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "missing"])
    def test_damaged_newest_falls_back_with_a_notice(self, name, damage, tmp_path):
        for step in range(2):
            Checkpoints(tmp_path).save(Checkpoint({"weight": torch.zeros(2)}, {"step": step, "moment": torch.ones(2)}))
        _hurt(tmp_path / "000002" / name, damage)
        checkpoint, (message,) = Checkpoints(tmp_path).load()
        assert checkpoint.state["step"] == 0
        assert f"000002/{name}" in message or damage == "flipped"  # a flipped bit in the manifest blames another file

    @pytest.mark.parametrize(("name", "damage"), [("model.safetensors", "cut"), ("state.json", "flipped")])
    def test_fallback_does_not_change_the_result(self, name, damage, uninterrupted, tmp_path):
        newest = _stopped(tmp_path / "run")[-1]
        _hurt(newest / name, damage)
        events = []
        train_in(tmp_path / "run", watch=events.append)
        (notice,) = [event.message for event in events if isinstance(event, Notice)]
        assert "skipped a damaged checkpoint" in notice
        assert f"{newest.name}/{name}" in notice
        assert outcome(tmp_path / "run") == uninterrupted

    def test_fallback_warns_without_a_watcher(self, tmp_path):
        (_stopped(tmp_path / "run")[-1] / "state.json").write_bytes(b"")
        with pytest.warns(RuntimeWarning, match=r"state\.json: has 0 bytes, but \d+ were written"):
            train_in(tmp_path / "run")

    def test_all_damaged_is_an_error_with_advice(self, uninterrupted, tmp_path):
        for checkpoint in _stopped(tmp_path / "run"):
            (checkpoint / "model.safetensors").write_bytes(b"")
        with pytest.raises(RunError, match=r"no readable checkpoint: .*Remove this folder"):
            train_in(tmp_path / "run")
        shutil.rmtree(tmp_path / "run" / "checkpoint")
        train_in(tmp_path / "run")
        assert outcome(tmp_path / "run") == uninterrupted

    def test_damaged_best_weights_fail_on_resume(self, tmp_path):
        _stopped(tmp_path / "run")
        (tmp_path / "run" / "best" / "epoch-0001" / "model.safetensors").write_bytes(b"")
        with pytest.raises(Damaged, match=r"epoch-0001/model\.safetensors: has 0 bytes"):
            train_in(tmp_path / "run", watch=lambda event: pytest.fail("it trained"))

    def test_damaged_one_does_not_count_as_kept(self, tmp_path):
        checkpoints = Checkpoints(tmp_path)
        for number in range(3):
            checkpoints.save(Checkpoint({}, {"number": number}))
        (tmp_path / "000003" / "state.json").unlink()
        again = Checkpoints(tmp_path)
        assert again.load()[0].state == {"number": 1}
        again.save(Checkpoint({}, {"number": 3}))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["000002", "000004"]


class TestKeeping:
    def test_the_last_two_stay(self, tmp_path):
        assert len(_stopped(tmp_path / "run", step=20)) == 2

    def test_best_weights_stay_while_a_checkpoint_needs_them(self, tmp_path):
        folder = tmp_path / "run"
        checkpoints = _stopped(folder, step=20)
        spoken_of = set()
        for path in checkpoints:
            state = restore(json.loads((path / "state.json").read_bytes())["dict"][0][1], {})
            spoken_of.add(state["best_epoch"])
        assert spoken_of <= set(Run(folder).best_epochs)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    _stopped(tmp_path / "run")

    def build(model):
        model.head = nn.Linear(6, 4)
        return torch.optim.SGD(model.parameters())

    with pytest.raises(RunError, match=r"does not fit this model and optimiser: .*head\.weight"):
        train_in(tmp_path / "run", build=build)


LITTLE_MEMORY = """
import resource, torch
from rru.training.checkpoint import pack
tensors = {str(i): torch.zeros(1_000_000) for i in range(10)}  # 40 MB
pack(tensors)  # allocates what the first call needs
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for megabytes in (4, 20, 35, 45, 60, 75, 85, 110, 300):
    resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 10**6, resource.RLIM_INFINITY))
    try:
        print(len(pack(tensors)) > 40_000_000)
    except MemoryError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be told to run out of memory")
def test_out_of_memory_is_an_error():
    ran = subprocess.run([sys.executable, "-c", LITTLE_MEMORY], capture_output=True, text=True, timeout=TIMEOUT)
    assert ran.returncode == 0, ran.stderr
    *errors, last = ran.stdout.splitlines()
    assert len(errors) == 8
    assert set(errors) <= {"not enough memory to save 40000000 bytes", "True"}
    assert errors[0] != last == "True"


class PanicException(BaseException):
    pass


def test_a_panic_for_lack_of_memory_is_a_memory_error(monkeypatch):
    def panic(tensors):
        raise PanicException("memory allocation failed")

    monkeypatch.setattr("safetensors.torch.save", panic)
    with pytest.raises(MemoryError, match="not enough memory to save 12 bytes"):
        pack({"weight": torch.zeros(3)})
