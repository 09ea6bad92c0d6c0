"""The benchmark measures every contender, and its summaries match its measurements. Speeds are not tested."""

import json
import math
import re
import statistics

import pytest

from benchmarks import layers
from benchmarks.contenders import NAMES, TrainingStep, available, build
from benchmarks.shapes import SHAPES
from benchmarks.timing import Task, interleave

TINY = ["--quick", "--threads", "1"]


def run(path, *arguments):
    layers.main([*TINY, "--json", str(path), *arguments])
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmark") / "results.json"
    return run(
        path, "--sections", "training", "inference", "streaming", "small", "bfloat16", "growth", "--repeats", "4"
    )


def ratio(row, base):
    pairs = zip(row["seconds"], base["seconds"], strict=True)
    return statistics.median(ours / theirs for ours, theirs in pairs if ours is not None and theirs is not None)


@pytest.mark.parametrize("kind", ["training", "inference"])
def test_every_contender_that_can_run_is_measured_on_every_shape(results, kind):
    assert set(results[kind]["shapes"]) == set(SHAPES)
    for result in results[kind]["shapes"].values():
        assert {row["name"] for row in result["contenders"]} == set(available())
        for row in result["contenders"]:
            assert 0 < row["median_seconds"] < math.inf
            assert row["parameters"] <= result["shape"]["parameters"]


def test_the_rru_is_measured_at_every_dropout(results):
    for result in results["training"]["shapes"].values():
        assert [row["dropout"] for row in result["contenders"] if row["name"] == "RRU reference"] == [0.5, 0.75]


@pytest.mark.parametrize("kind", ["training", "inference"])
def test_medians_rates_and_ratios_follow_from_the_times(results, kind):
    passes = {"training": 6, "inference": 2}[kind]
    for result in results[kind]["shapes"].values():
        sequence_steps = result["shape"]["batch"] * result["shape"]["steps"]
        rows = result["contenders"]
        for row in rows:
            times = [seconds for seconds in row["seconds"] if seconds is not None]
            assert row["median_seconds"] == statistics.median(times)
            flops = passes * row["matrix_parameters"] * sequence_steps
            assert row["gflops"] == pytest.approx(flops / row["median_seconds"] / 1e9)
            assert row["gemm_fraction"] == pytest.approx(row["gflops"] / result["gemm_gflops"])
            assert set(row["ratios"]) == {"nn.LSTM", "nn.GRU", "RRU reference"}
            for name in ("nn.LSTM", "nn.GRU"):
                base = next(other for other in rows if other["name"] == name)
                assert row["ratios"][name] == pytest.approx(ratio(row, base))


@pytest.mark.parametrize("kind", ["training", "inference"])
def test_geometric_means_follow_from_the_ratios(results, kind):
    for comparison in results[kind]["comparisons"]:
        ratios = [
            row["ratios"][comparison["base"]]
            for result in results[kind]["shapes"].values()
            for row in result["contenders"]
            if (row["name"], row["dropout"]) == (comparison["name"], comparison["dropout"])
        ]
        assert comparison["shapes"] == len(ratios) == len(SHAPES)
        assert comparison["geometric_mean"] == pytest.approx(math.exp(statistics.fmean(map(math.log, ratios))))
        assert comparison["worst"] == max(ratios)
        if comparison["mean_target"] is not None:
            assert comparison["mean_met"] == (comparison["geometric_mean"] <= comparison["mean_target"])


def test_streaming_and_growth_are_measured(results):
    assert set(results["streaming"]) == set(SHAPES)
    for result in results["streaming"].values():
        assert set(result["median_seconds"]) >= {"rru.RRUCell", "rru.stream", "nn.LSTMCell"}
        assert set(result["int8_ratios"]) == set(result["median_seconds"]) - {
            "rru.RRUCell",
            "rru.stream",
            "nn.LSTMCell",
        }
    assert [row["steps"] for row in results["growth"]["rows"]] == [2, 4, 8]


def test_autocast_is_measured_relative_to_float32(results):
    assert set(results["bfloat16"]) == set(SHAPES)
    for result in results["bfloat16"].values():
        for kind in ("training", "inference"):
            assert set(result[kind]["median_seconds"]) == {"nn.LSTM", *(set(available()) & {"RRU native"})}
            assert result[kind]["bfloat16 / nn.LSTM bfloat16"]["nn.LSTM"] == 1


def test_small_layers_are_measured_relative_to_nn_lstm(results):
    (row,) = results["small"]
    for kind in ("training", "inference"):
        assert set(row["ratios"][kind]) == set(row["us"][kind]) - {"nn.LSTM"} != set()
        assert all(0 < ratio < math.inf for ratio in row["ratios"][kind].values())


def test_threads_and_memory_are_measured(tmp_path):
    contenders = ["--contenders", "RRU reference,nn.LSTM"]
    path = tmp_path / "results.json"
    results = run(path, "--sections", "threads", "memory", "--shapes", "jsb", "--repeats", "1", *contenders)
    assert [row["name"] for row in results["threads"]["jsb"]["rows"]] == ["RRU reference", "nn.LSTM", "GEMM"]
    assert set(results["memory"]["jsb"]["bytes"]) == {"RRU reference", "nn.LSTM"}
    assert results["environment"]["threads"] == 1


@pytest.mark.parametrize("name", available(NAMES))
def test_training_step_computes_every_gradient(name):
    shape = SHAPES["char-ptb"].tiny()
    step = TrainingStep(build(name, shape, 0.5), shape)
    step()
    for tensor in (step.input, *step.layer.parameters()):
        assert tensor.grad.isfinite().all()
        assert tensor.grad.any()


def test_every_contender_runs_in_every_round_unless_excluded():
    runs = []
    often, seldom = Task(lambda: runs.append("often")), Task(lambda: runs.append("seldom"), every=3)
    often_seconds, seldom_seconds = interleave([often, seldom], rounds=5)
    assert runs.count("often") == 1 + 5
    assert runs.count("seldom") == 1 + 2
    assert None not in often_seconds
    assert [seconds is not None for seconds in seldom_seconds] == [True, False, False, True, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shapes", "jsb,nowhere"], "got 'nowhere'"),
        (["--repeats", "0"], "--repeats must be positive, got 0"),
        (["--dropout", "1"], r"--dropout must be in \[0, 1\), got 1.0"),
    ],
)
def test_errors_name_the_value(arguments, message, capsys):
    with pytest.raises(SystemExit):
        layers.main(arguments)
    assert re.search(message, capsys.readouterr().err)


def test_the_phases_of_a_training_step_are_shown_for_the_named_shapes(tmp_path, capsys):
    found = run(tmp_path / "phases.json", "--phases", "--shapes", "jsb,hidden-32", "--dropout", "0.5")
    assert [row["shape"]["name"] for row in found["phases"]["rows"]] == ["jsb", "hidden-32"]
    for row in found["phases"]["rows"]:
        seconds = row["median_seconds"]
        assert min(seconds["forward first"], seconds["backward last"]) > 0
        assert all(duration >= 0 for duration in seconds.values())
    assert "pointwise" in capsys.readouterr().out
