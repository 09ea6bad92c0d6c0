"""Kill -9 at any moment, resume, and the result is the same bit for bit."""

import random
import signal

import pytest

from rru.training.folder import Run
from tests.training.toy import Toy, outcome, train_in
from tests.training.victim import hold, suffer


@pytest.fixture(scope="module")
def moments(processes, tmp_path_factory):
    """How many moments there are at which a whole run may be killed."""
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=suffer, args=(tmp_path_factory.mktemp("counted") / "run", 0, sender))
    process.start()
    count = receiver.recv()
    process.join()
    return count


def _kill(processes, folder, moment):
    process = processes.Process(target=suffer, args=(folder, moment))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def _killed_often(processes, folder, chosen):
    for moment in chosen:
        _kill(processes, folder, moment)
        if (folder / "config.toml").exists():
            assert Run(folder).status in ("stopped", "finished")  # finished: while its checkpoints were removed
    assert train_in(folder).status == "finished"


def test_at_random_moments_of_one_run(processes, moments, uninterrupted, tmp_path):
    choice = random.Random(0)
    chosen = [choice.randrange(1, moments // 4) for _ in range(7)]
    _killed_often(processes, tmp_path / "run", chosen)
    assert outcome(tmp_path / "run") == uninterrupted
    assert not list((tmp_path / "run").rglob(".unfinished*"))


def test_near_the_end(processes, moments, uninterrupted, tmp_path):
    _killed_often(processes, tmp_path / "run", [moments - 60, 150])
    assert outcome(tmp_path / "run") == uninterrupted


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_ten_times(seed, processes, moments, uninterrupted, tmp_path):
    choice = random.Random(seed)
    _killed_often(processes, tmp_path / "run", [choice.randrange(1, moments // 10) for _ in range(10)])
    assert outcome(tmp_path / "run") == uninterrupted


@pytest.mark.slow
def test_at_each_of_two_hundred_moments(processes, moments, uninterrupted, tmp_path):
    for number, moment in enumerate(range(1, moments, moments // 200)):
        _killed_often(processes, tmp_path / str(number), [moment])
        assert outcome(tmp_path / str(number)) == uninterrupted


def test_a_second_process_is_refused_and_told_which_has_the_run(processes, tmp_path):
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=hold, args=(tmp_path / "run", sender))
    process.start()
    receiver.recv()  # it trains, and waits in the midst of it
    try:
        assert Run(tmp_path / "run").status == "running"
        with pytest.raises(Exception, match=rf"process {process.pid} is training this run"):
            train_in(tmp_path / "run", Toy())
    finally:
        process.kill()
        process.join()
    assert Run(tmp_path / "run").status == "stopped"
    assert train_in(tmp_path / "run").status == "finished"
