"""The learning rate warms up and decays over the planned steps, and a resumed run takes the same rates."""

import math

import pytest
import torch

from rru import report
from rru.settings import presets
from rru.settings.tables import Schedule
from rru.training import RAdam, Run, Stepped, train_config
from rru.training.from_config import optimiser_of
from rru.training.rates import rate_share, scaled_rates
from tests.training.toy import Toy, config, outcome, train_in

CHANGES = {"decay": "cosine", "warmup": 0.25}  # of 28 steps, 7 to warm up
RATE = 0.01  # the toy's


def shares(planned, **settings):
    schedule = Schedule(patience=1, epochs=1, seed=0, **settings)
    return [rate_share(step, planned, schedule) for step in range(planned)]


@pytest.mark.parametrize(
    ("planned", "settings", "expected"),
    [
        (4, {}, [1, 1, 1, 1]),
        (4, {"decay": "linear"}, [1, 0.75, 0.5, 0.25]),
        (4, {"decay": "cosine"}, [1, (2 + math.sqrt(2)) / 4, 0.5, (2 - math.sqrt(2)) / 4]),
        (5, {"warmup": 0.6}, [0.25, 0.5, 0.75, 1, 1]),
        (8, {"decay": "linear", "warmup": 0.5}, [0.2, 0.4, 0.6, 0.8, 1, 0.75, 0.5, 0.25]),
        (6, {"decay": "cosine", "warmup": 1 / 3}, [1 / 3, 2 / 3, 1, 0.8535534, 0.5, 0.1464466]),
        (100, {"warmup": 0.29}, [step / 30 for step in range(1, 31)] + [1] * 70),  # 0.29 * 100 is below 29
        (3, {"decay": "linear", "warmup": 0.99}, [1 / 3, 2 / 3, 1]),
        (1, {"decay": "cosine", "warmup": 0.9}, [1]),
    ],
)
def test_shares_of_the_rate_by_hand(planned, settings, expected):
    assert shares(planned, **settings) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("decay", ["cosine", "linear"])
def test_a_step_beyond_the_plan_has_no_rate(decay):
    schedule = Schedule(patience=1, epochs=1, seed=0, decay=decay, warmup=0.1)
    assert rate_share(50, 40, schedule) == pytest.approx(0)


class Rates:
    """Notes the rates that each step of an optimiser is made with."""

    def __init__(self, make):
        self.make, self.seen, self.optimiser = make, [], None

    def __call__(self, model):
        self.optimiser = self.make(model)
        self.optimiser.register_step_pre_hook(
            lambda optimiser, *_: self.seen.append([group["lr"] for group in optimiser.param_groups])
        )
        return self.optimiser


def groups(model):
    return [{"params": model.layer.parameters()}, {"params": model.head.parameters(), "lr": 3 * RATE}]


@pytest.mark.parametrize("kind", [RAdam, torch.optim.RAdam, torch.optim.AdamW])
def test_every_step_has_its_rate_and_groups_keep_theirs(kind, tmp_path):
    rates = Rates(lambda model: kind(groups(model), RATE))
    train_in(tmp_path / "run", config=config(**CHANGES), build=rates)
    expected = [(RATE * share, 3 * RATE * share) for share in shares(28, **CHANGES)]
    assert len(rates.seen) == 28
    torch.testing.assert_close(torch.tensor(rates.seen), torch.tensor(expected))
    assert [group["lr"] for group in rates.optimiser.param_groups] == [RATE, 3 * RATE]


def test_a_rate_is_its_own_again_after_an_error():
    optimiser = RAdam([torch.zeros(1, requires_grad=True)], RATE)
    with pytest.raises(ZeroDivisionError), scaled_rates(optimiser, 0.5):
        optimiser.step(lambda: 1 / 0)
    assert optimiser.param_groups[0]["lr"] == RATE


@pytest.mark.parametrize("name", ["radam", "torch-radam", "adamw"])
@pytest.mark.parametrize("changes", [CHANGES, {"decay": "linear"}])
def test_stopped_after_each_step_it_ends_as_if_never_stopped(name, changes, tmp_path):
    clipping = {"optimiser.name": name, "optimiser.clipping": "norm"}
    scheduled = config(epochs=2, **changes).changed(clipping)
    options = {"config": scheduled, "build": lambda model: optimiser_of(model, scheduled.optimiser)}
    train_in(tmp_path / "whole", **options)
    while train_in(tmp_path / "parts", **options, stop=lambda: True).status == "stopped":
        pass
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    train_in(tmp_path / "constant", **{**options, "config": config(epochs=2).changed(clipping)})
    assert outcome(tmp_path / "constant")[2] != outcome(tmp_path / "whole")[2]


def test_killed_within_an_epoch_it_repeats_the_rates_since_its_checkpoint(tmp_path):
    scheduled = config(**CHANGES)
    train_in(tmp_path / "whole", config=scheduled)
    first, second = (Rates(lambda model: RAdam(model.parameters(), RATE, clip=1.5)) for _ in range(2))

    def die(event):
        if isinstance(event, Stepped) and event.step == 11:  # the last checkpoint was after 9
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_in(tmp_path / "killed", config=scheduled, build=first, watch=die)
    train_in(tmp_path / "killed", build=second)
    assert first.seen[9:11] == second.seen[:2]
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")


def test_a_checkpoint_has_nothing_of_the_schedule(tmp_path):
    steps = iter(range(10))
    train_in(tmp_path / "run", config=config(**CHANGES), stop=lambda: next(steps) == 4)
    state = Run(tmp_path / "run").checkpoints.load()[0].state
    assert state["progress"]["step"] == 5
    assert state["optimiser"]["param_groups"][0]["lr"] == RATE


@pytest.mark.parametrize("changes", [CHANGES, {"warmup": 0.5}])
def test_lines_of_steps_have_the_rate_if_it_changes(changes, tmp_path):
    train_in(tmp_path / "run", config=config(**changes))
    found = {line["step"]: line["lr"] for line in Run(tmp_path / "run").metrics() if line["kind"] == "steps"}
    assert found == pytest.approx({step: RATE * shares(28, **changes)[step - 1] for step in range(4, 29, 4)})
    train_in(tmp_path / "constant")
    assert not any("lr" in line for line in Run(tmp_path / "constant").metrics())


def test_the_report_reads_runs_with_rates(tmp_path):
    changed = presets.override(presets.load("bach", "rru", "smoke"), ["decay=cosine", "epochs=1", "log_steps=1"])
    folder = tmp_path / "runs" / "bach" / "rru" / changed.id
    train_config(changed, folder)
    assert any("lr" in line for line in Run(folder).metrics())
    summary = report.write([tmp_path / "runs"], tmp_path / "report.html")
    assert (summary.statuses, summary.problems) == ({"finished": 1}, ())


def test_patience_ends_a_run_before_its_decay_does(tmp_path):
    class Worse(Toy):
        def _scores(self, model, split):
            self.evaluated.append(split)
            return {"error": float(len(self.evaluated)), "loss": 100.0}

    rates = Rates(lambda model: RAdam(model.parameters(), RATE))
    result = train_in(tmp_path / "run", Worse(), config=config(epochs=10, patience=2, decay="linear"), build=rates)
    assert result.reason == "no better validation for 2 epochs"
    assert rates.seen[-1] == pytest.approx([RATE * (1 - 20 / 70)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("decay=cosin", r"schedule\.decay must be 'none' or 'cosine' or 'linear', got 'cosin'; did you mean 'cosine'"),
        ("decay=0.5", r"schedule\.decay must be 'none' or 'cosine' or 'linear', got '0.5'"),
        ("warmup=1", r"schedule\.warmup must be a number at least 0 and below 1, got 1"),
        ("warmup=-0.1", r"schedule\.warmup must be a number at least 0 and below 1, got -0.1"),
        ("warmup=nan", r"schedule\.warmup must be a number at least 0 and below 1, got nan"),
        ("warmup=long", r"schedule\.warmup must be a number at least 0 and below 1, got 'long'"),
    ],
)
def test_wrong_values_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        presets.override(presets.load("jsb"), [change])


def test_only_a_schedule_changes_the_id():
    plain = presets.load("jsb", "rru", "paper")
    assert presets.override(plain, ["decay=none", "warmup=0"]).id == plain.id
    assert presets.override(plain, ["warmup=none"]).id == plain.id
    assert "decay" not in plain.tables()["schedule"]
    changed = [presets.override(plain, [change]).id for change in ("decay=cosine", "decay=linear", "warmup=0.1")]
    assert len({plain.id, *changed}) == 4


def test_no_preset_but_best_has_a_schedule():
    for task in presets.tasks():
        for size in presets.names(task):
            schedule = presets.load(task, "rru", size).schedule
            assert (schedule.decay, schedule.warmup) == (("cosine", 0.05) if size == "best" else ("none", 0.0))
