"""One run over several processes comes to what one process comes to."""

import json
import shutil
import signal

import pytest
import torch

from rru.tasks import Batch
from rru.training import Processes, Run, RunError
from tests.training.rank import TASKS, train_task, work
from tests.training.toy import outcome


@pytest.fixture(scope="module")
def together(processes, tmp_path_factory):
    """Has processes train together; gives their exit codes."""

    def together(count, names, root, **options):
        meeting = tmp_path_factory.mktemp("meeting") / "file"
        ranks = [
            processes.Process(target=work, args=(rank, count, meeting, names, root), kwargs=options)
            for rank in range(count)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        return [rank.exitcode for rank in ranks]

    return together


@pytest.fixture(scope="module")
def whole(together, tmp_path_factory):
    """The toy, with dropout and a state that is carried on, by two processes that nothing happens to."""
    root = tmp_path_factory.mktemp("whole")
    assert together(2, ["toy"], root) == [0, 0]
    return outcome(root / "toy")


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_weights_match_a_single_process(together, count, tmp_path):
    assert together(count, list(TASKS), tmp_path / "many") == [0] * count
    for name in TASKS:
        alone = train_task(name, tmp_path / "one" / name)
        one, many = Run(tmp_path / "one" / name), Run(tmp_path / "many" / name)
        assert alone.steps >= 4
        result = many.result()
        assert result.status == "finished"
        assert (result.steps, result.tokens, result.best_epoch) == (alone.steps, alone.tokens, alone.best_epoch)
        for split in ("validation", "test"):
            assert getattr(result, split) == pytest.approx(getattr(alone, split), rel=1e-9)
        before, after = (run.best(alone.best_epoch) for run in (one, many))
        for key, weight in before.items():
            torch.testing.assert_close(after[key], weight, rtol=1e-9, atol=1e-9)
        assert {path.name for path in one.path.iterdir()} == {path.name for path in many.path.iterdir()}
        assert json.loads((many.path / "env.json").read_bytes())["processes"] == count


class TestInterrupted:
    def test_stop_in_one_process_stops_all_and_any_number_resumes(self, together, whole, tmp_path):
        assert together(2, ["toy"], tmp_path, stop_at=10) == [0, 0]
        shutil.copytree(tmp_path / "toy", tmp_path / "alone")
        assert Run(tmp_path / "toy").status == "stopped"
        assert Run(tmp_path / "toy").checkpoints.load()[0].state["progress"]["step"] == 10
        assert together(2, ["toy"], tmp_path) == [0, 0]
        assert outcome(tmp_path / "toy") == whole
        events = []
        assert train_task("toy", tmp_path / "alone", watch=events.append).status == "finished"
        assert "resuming with 1 processes instead of 2" in events[0].message

    def test_killed_process_ends_all_and_the_run_resumes(self, together, whole, tmp_path):
        codes = together(2, ["toy"], tmp_path, die_at=11)
        assert codes[1] == -signal.SIGKILL
        assert codes[0] not in (0, None)
        assert together(2, ["toy"], tmp_path) == [0, 0]
        assert outcome(tmp_path / "toy") == whole


def test_dropout_differs_per_process_and_generators_agree_afterwards():
    drawn, after = [], []
    for rank in range(3):
        torch.manual_seed(5)
        with Processes(rank, 3).own_randomness():
            drawn.append(torch.rand(()).item())
        after.append(torch.rand(()).item())
    assert len(set(drawn)) == 3
    assert len(set(after)) == 1


def test_parts_of_a_batch_cover_it():
    inputs, lengths = torch.randn(4, 7, 2), torch.tensor([4, 1, 2, 3, 4, 2, 1])
    batch = Batch(inputs, torch.arange(7), lengths, fresh=False, tokens=17)
    parts = [Processes(rank, 3).part(batch) for rank in range(3)]
    assert torch.cat([part.inputs for part, _ in parts], dim=1).equal(inputs)
    assert torch.cat([part.targets for part, _ in parts]).equal(batch.targets)
    assert torch.cat([part.lengths for part, _ in parts]).equal(lengths)
    assert sum(part.tokens for part, _ in parts) == 17
    assert sum(share for _, share in parts) == pytest.approx(1)
    assert not any(part.fresh for part, _ in parts)
    assert Processes().part(batch) == (batch, 1.0)


def test_a_batch_smaller_than_the_number_of_processes_is_refused():
    batch = Batch(torch.zeros(3, 2, 1), torch.zeros(2), None, fresh=True, tokens=6)
    with pytest.raises(RunError, match="a batch must have a sequence for each process, got 2 for 3: start fewer"):
        Processes(0, 3).part(batch)
