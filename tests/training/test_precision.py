"""Training in bfloat16: which precision a run has, that it is resumed bit for bit, and what stays in float32."""

import signal

import pytest
import torch

from rru.scan.native import library
from rru.settings import presets
from rru.tasks import MusicTask
from rru.training import Notice, Run, RunError, Stepped, train_config, with_precision
from rru.training import precision as precisions
from rru.training.precision import MIN_WEIGHTS, chosen, multiplies_bfloat16
from tests.training.toy import Toy, config, outcome, train_in
from tests.training.victim import refit

BF16 = config(precision="bf16")


@pytest.fixture
def processor(monkeypatch):
    """Call it to say whether the processor multiplies bfloat16."""
    return lambda dots: monkeypatch.setattr(precisions, "multiplies_bfloat16", lambda device: dots)


@pytest.fixture(autouse=True)
def _bfloat16(processor):
    processor(True)  # so that no run warns that it is not faster


def small(*changes):
    return presets.override(presets.load("bach", "rru", "smoke"), ["epochs=1", "task.limit=8", *changes])


class TestConfig:
    def test_float32_is_not_stored_and_leaves_the_id(self):
        before = presets.load("jsb", "rru", "paper")
        after = with_precision(before, "float32", "cpu")
        assert after.id == before.id
        assert "precision" not in after.tables()["schedule"]

    def test_bf16_is_another_run(self):
        before = presets.load("jsb", "rru", "paper")
        after = with_precision(before, "bf16", "cpu")
        assert after.tables()["schedule"]["precision"] == "bf16"
        assert after.id != before.id
        assert after == presets.override(before, ["precision=bf16"])
        assert with_precision(after, None, "cpu") == after

    def test_other_names_are_errors(self):
        with pytest.raises(ValueError, match=r"precision must be one of float32, bf16, auto; got 'fp16'"):
            with_precision(small(), "fp16", "cpu")
        with pytest.raises(ValueError, match=r"schedule\.precision must be 'float32' or 'bf16', got 'half'"):
            small("precision=half")


class TestAuto:
    @pytest.mark.parametrize(
        ("task", "cell", "preset", "dots", "expected"),
        [
            ("jsb", "rru", "paper", True, "bf16"),
            ("jsb", "lstm", "cpu", True, "bf16"),
            ("jsb", "rru", "paper", False, "float32"),
            ("mnist", "rru", "paper", True, "float32"),  # too small to gain
            ("jsb", "rru", "smoke", True, "float32"),
        ],
    )
    def test_takes_bf16_where_it_is_faster(self, task, cell, preset, dots, expected, processor):
        processor(dots)
        assert with_precision(presets.load(task, cell, preset), "auto", "cpu").schedule.precision == expected

    def test_asks_the_device(self, monkeypatch):
        monkeypatch.setattr(precisions, "multiplies_bfloat16", multiplies_bfloat16)
        monkeypatch.setattr(library, "has_bfloat16_dots", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        devices = ("cpu", "cuda:0", "meta")
        assert [chosen("auto", MIN_WEIGHTS, device) for device in devices] == ["bf16", "float32", "float32"]
        assert chosen("auto", MIN_WEIGHTS - 1, "cpu") == "float32"
        monkeypatch.setattr(library, "has_bfloat16_dots", lambda: False)
        assert chosen("auto", MIN_WEIGHTS, "cpu") == "float32"

    def test_a_run_keeps_its_precision_on_another_machine(self, tmp_path, processor):
        large = small("budget=200k")
        before = with_precision(large, "auto", "cpu")
        assert before.schedule.precision == "bf16"
        train_config(before, tmp_path / "run", stop=lambda: True)
        processor(False)
        assert with_precision(large, "auto", "cpu", tmp_path / "run") == before
        with pytest.raises(RunError, match=r"schedule\.precision is bf16, not left out"):
            train_config(with_precision(large, "float32", "cpu"), tmp_path / "run")


class TestTraining:
    def test_killed_runs_end_with_the_same_bytes(self, processes, tmp_path):
        changed = small("precision=bf16", "checkpoint_steps=1", "epochs=2")
        for steps in (1, 2):
            process = processes.Process(target=refit, args=(changed, tmp_path / "killed", steps))
            process.start()
            process.join()
            assert process.exitcode == -signal.SIGKILL
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            train_config(changed, tmp_path / "killed")
            train_config(changed, tmp_path / "undisturbed")
        finally:
            torch.set_num_threads(threads)
        assert outcome(tmp_path / "killed") == outcome(tmp_path / "undisturbed")

    def test_state_carried_from_batch_to_batch_is_resumed(self, tmp_path):
        train_in(tmp_path / "whole", config=BF16)
        stops = iter([False] * 4 + [True])
        assert train_in(tmp_path / "parts", config=BF16, stop=lambda: next(stops)).status == "stopped"
        checkpoint, _ = Run(tmp_path / "parts").checkpoints.load()
        assert checkpoint.state["carried"].dtype == torch.float32
        train_in(tmp_path / "parts")
        assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")

    def test_differs_from_float32_but_ends_near(self, tmp_path, uninterrupted):
        result = train_in(tmp_path / "run", config=BF16)
        assert result.test["error"] != uninterrupted[0]["test"]["error"]
        assert result.test["error"] == pytest.approx(uninterrupted[0]["test"]["error"], rel=0.02)

    def test_weights_gradients_and_evaluation_are_float32(self, tmp_path):
        seen = []

        class Watched(Toy):
            def _loss(self, model, batch, state):
                seen.append(torch.is_autocast_enabled("cpu"))
                return super()._loss(model, batch, state)

            def _scores(self, model, split):
                seen.append(torch.is_autocast_enabled("cpu"))
                assert {each.dtype for each in model.parameters()} == {torch.float32}
                assert {each.grad.dtype for each in model.parameters() if each.grad is not None} <= {torch.float32}
                return super()._scores(model, split)

        train_in(tmp_path / "run", Watched(), config=config(precision="bf16", epochs=1))
        assert seen == [False] + [True] * 7 + [False, False]  # untrained, seven steps, validation and test

    def test_says_where_it_is_not_faster(self, tmp_path, processor):
        processor(False)
        notices = []
        watch = lambda event: notices.append(event.message) if isinstance(event, Notice) else None  # noqa: E731
        train_in(tmp_path / "narrow", config=BF16, watch=watch, stop=lambda: True)
        train_in(tmp_path / "wide", watch=watch, stop=lambda: True)
        said = "bf16 is not faster than float32 here: this cpu cannot multiply it faster"
        assert [notice.partition(" (")[0] for notice in notices] == [said]

    def test_loss_of_music_with_a_joint_output_is_float32(self, tmp_path):
        losses = []
        watch = lambda event: losses.append(event.loss) if isinstance(event, Stepped) else None  # noqa: E731
        for precision in ("float32", "bf16"):
            changed = small("output=nade", f"precision={precision}")
            train_config(changed, tmp_path / precision, watch=watch, stop=lambda: True)
        narrow, wide = losses[1], losses[0]
        assert narrow != wide
        assert narrow == pytest.approx(wide, rel=1e-3)


def test_logits_under_autocast_are_float32():
    task_config = small("output=chain")
    architecture = MusicTask.architecture_of(task_config.task, None, None)
    model = architecture.build("rru", task_config.model.arguments, task_config.model.budget)
    with torch.autocast("cpu", torch.bfloat16):
        logits, state = model(torch.rand(5, 2, 88).round())
    assert (logits.dtype, state.dtype) == (torch.float32, torch.float32)
