"""What is shown in a terminal."""

import math

import pytest

from rru.cli import display
from rru.training import Evaluated, Started, Stepped
from tests.cli.terminal import Terminal, screen

STARTED = Started(0, 0, epochs=3, patience=7, parameters=1000, untrained_loss=60.0, metric="nll")


def steps(epoch, count=4):
    return [Stepped(epoch, index, count, (epoch - 1) * count + index, 9.0, 10) for index in range(1, count + 1)]


def evaluated(epoch):
    return Evaluated(epoch, 4 * epoch, 9.0, {"nll": 8.0}, 8.0, epoch)


@pytest.fixture
def shown(terminal):
    """A run's bars, with a clock that goes on by a second at each event."""
    seconds = [0.0]
    with display.RunBars() as watch:
        watch.get_time = lambda: seconds[0]
        for task in watch.tasks:
            task._get_time = watch.get_time

        def show(*events):
            for event in events:
                seconds[0] += 1
                watch(event)
            return watch

        yield show


def test_step_bar_restarts_each_epoch(shown):
    bars = shown(STARTED, *steps(1), evaluated(1), *steps(2)[:2])
    epochs, of_steps = bars.tasks
    assert (of_steps.completed, of_steps.finished, of_steps.elapsed) == (2, False, 1)
    assert epochs.completed == 1.5
    assert display.Times().render(of_steps).plain == "0:01, 0:01 left"


def test_time_left_ignores_work_before_resuming(shown):
    resumed = Started(90, 360, epochs=100, patience=7, parameters=1000, untrained_loss=60.0, metric="nll")
    bars = shown(resumed, *steps(91), evaluated(91))
    assert display.Times().render(bars.tasks[0]).plain == "0:05, ≤ 0:45 left"


def test_bars_are_removed_at_the_end(terminal):
    with display.RunBars() as watch:
        for event in (STARTED, *steps(1), evaluated(1)):
            watch(event)
        watch.refresh()
        assert any("━" in line for line in screen(terminal.file.getvalue(), 100))
    assert not any("━" in line for line in screen(terminal.file.getvalue(), 100))


def test_waiting_row_can_be_shown(terminal):
    with display.TrainingBars() as bars:
        bars.add("lstm", says="waiting")
        bars.refresh()
        assert "0/?" in terminal.file.getvalue()
        assert "waiting" in terminal.file.getvalue()


def test_ctrl_c_leaves_no_bar_and_resuming_prints_the_same_loss(tmp_path):
    """Paths are whole although they are longer than a line."""
    folder = f"runs/{'a-long-name-' * 8}"
    started = Terminal("train", "bach", "--preset", "demo", "--threads", "1", "--run-dir", folder, folder=tmp_path)
    started.read_until(r"epochs .*━")
    started.read_until(r"tokens/s")
    started.type("\x03")
    assert started.end() == 130
    assert not any("━" in line for line in started.screen)
    assert f"Next: rru train {folder}" in started.text
    (loss,) = [line for line in started.screen if "before training" in line]

    again = Terminal("train", folder, "--threads", "1", folder=tmp_path)
    again.read_until(r"epochs .*━")
    again.type("\x03")
    assert again.end() == 130
    assert loss in again.screen


@pytest.mark.parametrize(
    ("metric", "before", "train"),
    [("bpc", "bpc 2.0000", "bpc 1.0000"), ("perplexity", "perplexity 4.0000", "perplexity 2.0000")],
)
def test_losses_are_shown_in_the_unit_of_the_metric(capsys, metric, before, train):
    nats = math.log(2)
    with display.RunBars() as watch:
        watch(Started(0, 0, epochs=3, patience=7, parameters=1000, untrained_loss=2 * nats, metric=metric))
        watch(Evaluated(1, 4, nats, {metric: 1.5}, 1.5, 1))
    output = capsys.readouterr().out
    assert f"validation {before} before training" in output
    assert f"epoch 1: train {train}, validation {metric} 1.5000, best 1.5000 (epoch 1)" in output


def test_redirected_output_has_every_line(terminal, capsys):
    with display.RunBars() as watch:
        watch(STARTED)
    assert "1,000 parameters" in capsys.readouterr().out
