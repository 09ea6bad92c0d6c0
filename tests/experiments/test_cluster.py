"""Runs on a Ray cluster: nodes die, attempts overlap, and results are those of this machine alone."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from rru.experiments import plans, running
from rru.experiments.running import Outcome, RunLost, RunReported, RunStarted, transfer
from rru.experiments.running.attempt import attempt
from rru.extras import MissingExtraError
from rru.settings import presets, user_cells
from rru.training import Evaluated, Run, RunError, Started
from tests.experiments.chorales import folder, outcomes, planned, trained


@pytest.fixture
def keeper(tmp_path):
    """One that keeps a single run, and the run's entry."""
    pytest.importorskip("ray", reason="Ray is not installed")
    from rru.experiments.running.cluster import Keeper

    (entry,) = planned("rru")
    one = Keeper({entry.id: folder(entry, tmp_path)})
    yield one, entry
    for lock in one.locks.values():
        lock.close()


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "rru.experiments.running.cluster", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'rru\[ray\]'"):
        importlib.import_module("rru.experiments.running.cluster")


def test_restarted_run_gets_sent_files_and_the_first_attempt_is_rejected(keeper):
    keeper, entry = keeper
    first, given = keeper.begin(entry, "node 1")
    assert (first, given) == (1, {})
    sent = transfer.Changes({"checkpoint/000001/state.json": b"1"}, frozenset(["checkpoint/000001/state.json"]))
    assert keeper.take(entry, first, None, sent) is False
    second, given = keeper.begin(entry, "node 2")
    assert given["checkpoint/000001/state.json"] == b"1"
    late = transfer.Changes({"checkpoint/000009/state.json": b"9"}, frozenset(["checkpoint/000009/state.json"]))
    assert keeper.take(entry, first, None, late) is True  # it is to stop
    keeper.finish(entry, first, late)
    assert not (keeper.folders[entry.id] / "checkpoint" / "000009").exists()
    assert Run(keeper.folders[entry.id]).status == "running"
    event = Started(0, 0, 2, 1, 10, 1.0, "nll")
    keeper.take(entry, second, event, None)
    assert [type(event) for event in keeper.news()] == [RunStarted, RunLost, RunStarted, RunReported]
    assert keeper.news() == []


def test_a_run_is_locked_from_its_beginning_to_its_end(keeper):
    keeper, entry = keeper
    number, _ = keeper.begin(entry, "node")
    run = Run(keeper.folders[entry.id])
    assert attempt(entry, run.path).status == "running"
    keeper.finish(entry, number, transfer.Changes({}, frozenset(transfer.names_in(run.path))))
    assert run.status == "stopped"
    with run.locked():
        assert keeper.begin(entry, "node").status == "running"


def test_nothing_starts_after_a_stop(keeper):
    keeper, entry = keeper
    number, _ = keeper.begin(entry, "node")
    keeper.stop()
    assert keeper.take(entry, number, None, None) is True
    assert isinstance(keeper.begin(entry, "node"), Outcome)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://127.0.0.1:10001", "address must be HOST:PORT"),
        ("nonsense", "address must be HOST:PORT"),
        ("127.0.0.1:1", "no Ray cluster can be reached at 127.0.0.1:1"),
        ("127.0.0.1:99999", "no Ray cluster can be reached at"),
    ],
)
def test_wrong_address_fails_at_once(tmp_path, address, said):
    pytest.importorskip("ray", reason="Ray is not installed")
    from rru.experiments.running import cluster

    with pytest.raises((ValueError, RunError), match=said):
        cluster.run(planned(), tmp_path, address=address)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray's own
def test_killed_process_loses_only_the_current_epoch(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from rru.experiments.running import cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    (entry,) = planned("rru")
    entry = replace(entry, config=presets.override(entry.config, ["epochs=60", "patience=60"]))
    process, seen = 0, []

    def watch(event):
        nonlocal process
        seen.append(getattr(event, "event", event))
        if isinstance(event, RunStarted):
            process = int(event.place.rpartition(" ")[2])
        if isinstance(seen[-1], Evaluated) and not any(isinstance(event, Evaluated) for event in seen[:-1]):
            os.kill(process, signal.SIGKILL)

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        (outcome,) = cluster.run([entry], tmp_path, watch=watch)
    finally:
        ray.shutdown()
    assert outcome.status == "finished"
    first, again = [event.epoch for event in seen if isinstance(event, Started)]
    assert first == 0 < again
    assert outcomes([entry], tmp_path) == trained([entry], tmp_path / "here")


@contextlib.contextmanager
def three_nodes():
    """A cluster of three nodes of one CPU, on this machine."""
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
    node = {"num_cpus": 1, "object_store_memory": 100_000_000}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    try:
        cluster.add_node(**node)
        yield cluster, cluster.add_node(**node)
    finally:
        cluster.shutdown()


def run_on(cluster, tmp_path, *arguments):
    """`rru run table1` on a cluster, begun."""
    always = ["--preset", "smoke", "--tasks", "bach", "--threads", "1", "--runs", str(tmp_path), "--on", "ray"]
    return subprocess.Popen(
        [sys.executable, "-m", "rru", *arguments, *always, "--address", cluster.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray's own
def test_results_match_a_local_run_when_a_node_dies(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for the nodes' processes
    those = planned("rru,gru,lstm,mogrifier", "0-2")
    begun, said = 0, []
    with (
        three_nodes() as (cluster, victim),
        run_on(cluster, tmp_path, "run", "table1", "--seeds", "0-2") as coordinator,
    ):
        for line in coordinator.stdout:
            said.append(line)
            begun += ": begins on" in line
            if begun == 3:  # each node has one
                begun += 1
                cluster.remove_node(victim, allow_graceful=False)
    assert coordinator.returncode == 0, "".join(said)
    assert any("another goes on with it" in line for line in said)
    assert running.to_do(those, tmp_path) == []
    assert outcomes(those, tmp_path) == trained(those, tmp_path / "here")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray's own
def test_user_cell_needs_no_file_on_the_nodes(tmp_path, monkeypatch, janet):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with (
        three_nodes() as (cluster, _),  # begun without any word of the file
        run_on(cluster, tmp_path, "--code", str(janet), "run", "table1", "--cells", "janet") as coordinator,
    ):
        said, _ = coordinator.communicate()
    assert coordinator.returncode == 0, said
    user_cells.load(janet)
    (entry,) = plans.load("table1", "smoke", tasks=["bach"], cells=["janet"]).runs
    assert outcomes([entry], tmp_path) == trained([entry], tmp_path / "here")
