"""Choosing a model's size and epochs by the time there is, `--minutes`; speeds are given, not measured."""

import pytest

from rru import data
from rru.settings import presets
from rru.training import run_folder, time_budget, train_config
from rru.training.time_budget import Places, Speed, measure, within

TOKENS = 40_000


@pytest.fixture
def own(tmp_path):
    (tmp_path / "novel.txt").write_text("It was the best of times, it was the worst of times.\n" * (TOKENS // 53))
    return data.from_path(tmp_path / "novel.txt")


@pytest.fixture
def build(own):
    return lambda scale: presets.load(own, "rru", "auto", scale)


@pytest.fixture
def speed(monkeypatch):
    """Call it to say how many seconds an epoch takes for each million parameters."""

    def epochs_take(seconds):
        def measure(config, parts):
            each = seconds * config.model.budget / 1e6
            return Speed(training=0.9 * each, evaluation=0.1 * each)

        monkeypatch.setattr(time_budget, "measure", measure)

    return epochs_take


def chosen(minutes, build, tmp_path, fixed=()):
    return within(minutes, build, fixed, Places(tmp_path / "runs"))


def test_a_longer_time_gives_a_larger_model(build, speed, tmp_path):
    speed(30.0)
    budgets = [chosen(minutes, build, tmp_path).model.budget for minutes in (1, 10, 100)]
    assert budgets == sorted(set(budgets))


@pytest.mark.parametrize("minutes", [0.5, 1, 5, 60])
def test_training_takes_the_time_or_less(build, speed, tmp_path, minutes):
    speed(30.0)
    config = chosen(minutes, build, tmp_path)
    taken = config.schedule.epochs * 30.0 * config.model.budget / 1e6
    assert taken <= 60 * minutes
    assert config.schedule.patience <= config.schedule.epochs


def test_time_that_no_size_needs_is_not_used(build, speed, tmp_path):
    speed(1e-6)
    config = chosen(60, build, tmp_path)
    assert config.schedule.epochs == time_budget.MAX_MORE * build(16.0).schedule.epochs
    assert config.model.budget == build(16.0).model.budget


def test_less_time_than_an_epoch_needs_is_for_a_part_of_the_text(build, speed, tmp_path):
    speed(1e6)
    config = chosen(1, build, tmp_path)
    assert config.schedule.epochs == 1
    assert config.model.budget == build(1 / 8).model.budget
    assert 0 < config.task.limit < TOKENS * 0.8


def test_a_size_that_the_user_chose_stays(own, speed, tmp_path):
    speed(30.0)

    def build(scale):
        return presets.override(presets.load(own, "rru", "auto", scale), ["budget=50k"])

    config = chosen(3, build, tmp_path, {"model.budget"})
    assert config.model.budget == 50_000
    assert 100 < config.schedule.epochs <= 0.9 * 180 / 1.5


def test_the_same_command_finds_its_run_on_a_machine_that_got_slower(own, build, speed, tmp_path):
    speed(30.0)
    config = chosen(1, build, tmp_path)
    folder = run_folder(config, tmp_path / "runs")
    train_config(config, folder, stop=lambda: True)
    speed(90.0)
    assert chosen(1, build, tmp_path).id == config.id
    assert within(1, build, (), Places(tmp_path, folder)).id == config.id
    assert chosen(2, build, tmp_path).id != config.id
    other_seed = chosen(1, lambda scale: build(scale).changed({"schedule.seed": 1}), tmp_path)
    assert other_seed.schedule.seed == 1


def test_the_time_of_an_epoch_is_measured(own, build):
    parts = time_budget.assemble(build(1.0))
    small, large = (min(measure(build(scale), parts).training for _ in range(3)) for scale in (1 / 8, 16.0))
    assert 0 < small < large


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf")])
def test_a_time_must_be_positive(build, tmp_path, minutes):
    with pytest.raises(ValueError, match=r"^minutes must be positive, got "):
        chosen(minutes, build, tmp_path)


def test_what_has_other_rules_says_so(build, tmp_path):
    with pytest.raises(ValueError, match="give either minutes or epochs"):
        chosen(1, build, tmp_path, {"schedule.epochs"})
    with pytest.raises(ValueError, match="minutes is for your own data; the presets of jsb say how long to train"):
        chosen(1, lambda scale: presets.load("jsb"), tmp_path)


def test_several_processes_would_measure_several_speeds(build, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="not for several processes"):
        chosen(1, build, tmp_path)
