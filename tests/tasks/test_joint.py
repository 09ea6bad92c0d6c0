"""Joint outputs: exact probabilities of chords, gradients, sampling, and their settings."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from rru.nn import count_parameters
from rru.settings import presets
from rru.tasks import ChainHead, MusicTask, NadeHead, joint
from tests.tasks import small

KEYS = 6
CHORDS = torch.tensor([*itertools.product([0.0, 1.0], repeat=KEYS)], dtype=torch.float64)  # all 64


@pytest.fixture(params=[(kind, order) for kind in ("chain", "nade") for order in joint.ORDERS], ids="-".join)
def head(request):
    """A head of few keys with random parameters."""
    kind, order = request.param
    torch.manual_seed(3)
    made = joint.head_of(kind, 5, order)(4, KEYS).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return made


def conditions_of(head, count=1):
    return head(torch.randn(count, 4, dtype=torch.float64))


def chances(head, conditions):
    """The probability of each of all chords."""
    return head.nats(conditions.expand(len(CHORDS), -1), CHORDS).neg().exp()


def test_probabilities_of_all_chords_add_up_to_one(head):
    assert chances(head, conditions_of(head)).sum().item() == pytest.approx(1)


def test_a_chord_costs_what_its_keys_cost_one_after_another(head):
    conditions, chord = conditions_of(head), CHORDS[45][None]
    nats, known = 0.0, torch.zeros_like(chord)
    for key in head.order:
        logit = head.following(conditions, known)[0, key]
        nats += F.binary_cross_entropy_with_logits(logit, chord[0, key]).item()
        known[0, key] = chord[0, key]
    assert head.nats(conditions, chord).item() == pytest.approx(nats)


def test_no_key_depends_on_itself_or_a_later_one(head):
    conditions, chords = conditions_of(head, 64), CHORDS
    for place, key in enumerate(head.order):
        others = chords.clone()
        others[:, head.order[place:]] = 1 - others[:, head.order[place:]]
        torch.testing.assert_close(head.logits(conditions, others)[:, key], head.logits(conditions, chords)[:, key])


def test_gradients(head):
    features, chords = torch.randn(3, 4, dtype=torch.float64, requires_grad=True), CHORDS[21:63:20]
    assert torch.autograd.gradcheck(lambda x, *_: head.nats(head(x), chords), (features, *head.parameters()))


def test_pieces_give_the_same_nats_and_gradients(head, monkeypatch):
    features, chords = torch.randn(64, 4, dtype=torch.float64), CHORDS
    found = []
    for size in (64, 5):
        monkeypatch.setattr(joint, "PIECE", size)
        nats = head.nats(head(features), chords)
        found.append([nats, *torch.autograd.grad(nats.square().sum(), [*head.parameters()])])
        with torch.no_grad():
            torch.testing.assert_close(head.nats(head(features), chords), nats)
    torch.testing.assert_close(*found)


def test_samples_are_as_frequent_as_probable(head):
    conditions, count = conditions_of(head), 20_000
    samples = head.sample(conditions.expand(count, -1), small.generator())
    numbers = (samples @ 2.0 ** torch.arange(KEYS - 1, -1, -1, dtype=torch.float64)).long()
    expected = chances(head, conditions).detach()
    found = torch.bincount(numbers, minlength=len(CHORDS)) / count
    assert ((found - expected).abs() < 5 * (expected * (1 - expected) / count).sqrt() + 1e-4).all()


def test_low_temperature_takes_the_likeliest_next_key_and_high_temperature_any(head):
    conditions = conditions_of(head).expand(2000, -1)
    cold, warm, hot = (
        len(head.sample(conditions, small.generator(), temperature).unique(dim=0)) for temperature in (0.01, 1, 100)
    )
    assert cold <= KEYS + 1  # the likeliest, cut off anywhere
    assert cold < warm <= hot


def test_each_chord_can_have_its_own_temperature(head):
    count = 20_000
    conditions = conditions_of(head)
    temperatures = torch.tensor([0.01, 1.0]).repeat_interleave(count)[:, None]
    cold, usual = head.sample(conditions.expand(2 * count, -1), small.generator(), temperatures).split(count)
    assert len(cold.unique(dim=0)) <= KEYS + 1
    numbers = (usual @ 2.0 ** torch.arange(KEYS - 1, -1, -1, dtype=torch.float64)).long()
    expected = chances(head, conditions).detach()
    found = torch.bincount(numbers, minlength=len(CHORDS)) / count
    assert ((found - expected).abs() < 5 * (expected * (1 - expected) / count).sqrt() + 1e-4).all()


def test_heads_that_ignore_the_other_keys_are_independent():
    logits, chords = torch.randn(10, 8), torch.randint(2, (10, 8)).float()
    nade = NadeHead(3, 8, units=2)
    torch.nn.init.zeros_(nade.from_hidden)
    wanted = F.binary_cross_entropy_with_logits(logits, chords, reduction="none").sum(1)
    torch.testing.assert_close(ChainHead(3, 8).nats(logits, chords), wanted)
    torch.testing.assert_close(nade.nats(torch.cat([logits, torch.randn(10, 2)], 1), chords), wanted)


@pytest.mark.parametrize("cell", presets.cells())
@pytest.mark.parametrize("output", ["chain", "nade"])
def test_the_head_is_within_the_budget(cell, output):
    options = presets.load("bach", cell, "smoke").model.arguments
    architecture = MusicTask.architecture_of(MusicTask.settings_of("bach", output=output, output_units=32), None, None)
    model = architecture.build(cell, options, 60_000)
    assert 55_000 < count_parameters(model) <= 60_000


@pytest.mark.parametrize("output", ["chain", "nade"])
def test_a_window_costs_the_sum_of_its_steps(output):
    task = MusicTask.of("music", small.music(), context=10, batch_size=4, output=output, output_units=4)
    model = small.model_for(task)
    small.check_costs_of_windows(task, model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("output", ["chain", "nade"])
def test_autocast_trains_and_evaluates(output, dtype):
    task = MusicTask.of("music", small.music(), context=10, batch_size=4, output=output, output_units=4)
    model, batch = small.model_for(task, double=False), task.epoch(small.generator())[0]
    found = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype, enabled=enabled):
            loss, _ = task.loss(model, batch)
            scores = task.evaluate(model, "valid")
        found.append([loss, torch.tensor(scores["nll"]), *torch.autograd.grad(loss, [*model.parameters()])])
    for exact, rounded in zip(*found, strict=True):
        torch.testing.assert_close(rounded, exact, rtol=0.03, atol=0.03)
    assert torch.equal(found[0][0], found[1][0]) == (dtype is torch.float16)  # which CPUs compute in float32


def test_settings_of_an_output_are_checked():
    config = presets.load("bach", "rru", "smoke")
    assert presets.override(config, ["output=independent"]).id == config.id
    assert presets.override(config, ["output=nade", "key_order=outside-in"]).task.output_units == joint.UNITS
    for changes, message in (
        (["output=joint"], "task.output must be 'independent' or 'chain' or 'nade' or 'tied', got 'joint'"),
        (["output=chain", "output_units=64"], "task.output_units is only for task.output = 'nade', got 'chain'"),
        (["key_order=high-low"], "task.key_order is only for task.output = 'chain' or 'nade', got 'independent'"),
    ):
        with pytest.raises(ValueError, match=message):
            presets.override(config, changes)
    nade = presets.load("jsb", "rru", "nade")
    assert presets.override(nade, ["output=chain"]).tables()["task"].keys() == nade.tables()["task"].keys() - {
        "output_units"
    }
    with pytest.raises(ValueError, match="output is only for music; this config is for mnist"):
        presets.override(presets.load("mnist", "rru", "smoke"), ["output=nade"])


def test_orders_of_keys():
    assert joint.key_order("outside-in", 5).tolist() == [0, 4, 1, 3, 2]
    assert joint.key_order("high-low", 3).tolist() == [2, 1, 0]
    with pytest.raises(ValueError, match="order must be low-high, high-low or outside-in, got 'up'"):
        joint.key_order("up", 3)


def test_a_key_costs_one_bit_without_knowledge():
    head = NadeHead(3, 88)
    for parameter in head.parameters():
        torch.nn.init.zeros_(parameter)
    assert head.nats(head(torch.randn(1, 3)), torch.ones(1, 88)).item() == pytest.approx(88 * math.log(2))
