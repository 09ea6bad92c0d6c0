"""The output `tied`: exact probabilities of chords, causality, gradients, sampling, sizes."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import rru
from rru.data import KEYS
from rru.settings import presets
from rru.tasks import ChordNetwork, MusicTask, TiedModel
from rru.tasks.keys import BELOW, SIDE, beneath
from tests.tasks import small

FEW = 6
CHORDS = torch.tensor([*itertools.product([0.0, 1.0], repeat=FEW)], dtype=torch.float64)  # all 64


@pytest.fixture
def head():
    """A network over few keys with random weights."""
    torch.manual_seed(3)
    conditions = 4
    made = ChordNetwork(rru.GRU(conditions + beneath(FEW).size, 5), FEW).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return made


def conditions_of(head, count=1):
    return torch.randn(count, FEW * 4, dtype=torch.float64)


def task_of(**options):
    return MusicTask.of("music", small.music(), **{"context": 10, "batch_size": 4, "output": "tied", **options})


def model_of(cell="rru", double=True, **options):
    return small.model_for(task_of(**options), cell, 9_000, double=double).eval()


def piece(steps, seed=0):
    return torch.from_numpy(small.piece(steps, seed)).double()


def chances(head, conditions):
    """The probability of each of all chords."""
    return head.nats(conditions.expand(len(CHORDS), -1), CHORDS).neg().exp()


def test_probabilities_of_all_chords_add_up_to_one(head):
    assert chances(head, conditions_of(head)).sum().item() == pytest.approx(1)


def test_no_key_depends_on_itself_or_a_higher_one(head):
    conditions = conditions_of(head, len(CHORDS))
    for key in range(FEW):
        others = CHORDS.clone()
        others[:, key:] = 1 - others[:, key:]
        logits = head.logits(conditions, CHORDS)
        torch.testing.assert_close(head.logits(conditions, others)[:, : key + 1], logits[:, : key + 1])
        if key:
            others[:, key - 1] = 1 - others[:, key - 1]
            assert (head.logits(conditions, others)[:, key] - logits[:, key]).abs().min() > 1e-6


def test_samples_are_as_frequent_as_probable(head):
    conditions, count = conditions_of(head), 10_000
    expected = chances(head, conditions).detach()
    for sample in (head.sample, super(ChordNetwork, head).sample):  # by single steps; key after key that is on
        samples = sample(conditions.expand(count, -1), small.generator())
        numbers = (samples @ 2.0 ** torch.arange(FEW - 1, -1, -1, dtype=torch.float64)).long()
        found = torch.bincount(numbers, minlength=len(CHORDS)) / count
        assert ((found - expected).abs() < 5 * (expected * (1 - expected) / count).sqrt() + 1e-4).all()


def test_a_cold_sample_takes_the_likeliest_next_key(head):
    conditions = conditions_of(head).expand(500, -1)
    cold, warm = (
        len(head.sample(conditions, small.generator(), temperature).unique(dim=0)) for temperature in (0.001, 1)
    )
    assert cold <= FEW + 1 < warm
    temperatures = torch.tensor([0.001, 1.0]).repeat_interleave(250)[:, None]
    cold_ones, others = head.sample(conditions, small.generator(), temperatures).split(250)
    assert len(cold_ones.unique(dim=0)) <= FEW + 1 < len(others.unique(dim=0))


def test_gradients(head):
    conditions, chords = conditions_of(head, 2).requires_grad_(), CHORDS[21:63:40]
    assert torch.autograd.gradcheck(lambda x, *_: head.nats(x, chords), (conditions, *head.parameters()))


def slow_features(chord, key, offsets, below):
    """What a key sees, by the definition: keys around it, interval classes, count; pitch class, height."""
    keys = len(chord)
    on = [other for other in range(keys) if chord[other] and (other < key or not below)]
    near = [float(key + offset in on) for offset in offsets]
    intervals = [sum((other - key) % 12 == interval for other in on) for interval in range(12)]
    height = 2 * key / (keys - 1) - 1
    return [*near, *intervals, 0.1 * len(on), *(float(key % 12 == pitch) for pitch in range(12)), height, height**2]


def slow_nats(model, roll):
    """The nats of each step of a roll (T + 1, 88) after the first, key by key and step by step."""
    time, keys = model.layers, model.head.layers
    states, nats = [None] * KEYS, []
    for last, chord in itertools.pairwise(roll.tolist()):
        outputs, total, state = [], 0.0, None
        for key in range(KEYS):
            x = torch.tensor(slow_features(last, key, range(-SIDE, SIDE + 1), False), dtype=torch.float64)
            output, states[key] = time(x[None], states[key])
            outputs.append(output[0])
        for key in range(KEYS):
            below = torch.tensor(slow_features(chord, key, range(-BELOW, 0), True), dtype=torch.float64)
            output, state = keys(torch.cat([outputs[key], below])[None], state)
            logit = F.linear(output[0], model.head.weight, model.head.bias)[0]
            total += F.binary_cross_entropy_with_logits(logit, torch.tensor(chord[key], dtype=torch.float64)).item()
        nats.append(total)
    return nats


@pytest.mark.parametrize("cell", ["rru", "gru"])
def test_a_piece_costs_what_its_keys_cost_one_after_another(cell):
    model, roll = model_of(cell), piece(3)
    with torch.no_grad():
        conditions, _ = model(roll[:-1, None])
        nats = model.head.nats(conditions[:, 0], roll[1:])
        assert nats.tolist() == pytest.approx(slow_nats(model, roll))


def test_no_step_depends_on_a_later_one():
    model, roll = model_of(), piece(8)
    changed = roll.clone()
    changed[4:] = piece(4, seed=1)
    with torch.no_grad():
        before, after = model(roll[:, None])[0], model(changed[:, None])[0]
    torch.testing.assert_close(before[:4], after[:4])
    assert not torch.allclose(before[4], after[4])


def test_a_key_is_a_key_wherever_it_lies():
    """But for what it knows about its place, a transposed piece is the same to transposed keys."""
    model, roll = model_of(), torch.zeros(6, 1, KEYS, dtype=torch.float64)
    roll[range(6), 0, [40, 43, 47, 40, 38, 45]] = 1
    model.around.bias.zero_()
    with torch.no_grad():
        here, there = (model(each)[0].unflatten(-1, (KEYS, -1)) for each in (roll, roll.roll(5, -1)))
    torch.testing.assert_close(here[:, :, :-5], there[:, :, 5:])


def test_a_window_costs_the_sum_of_its_steps():
    task, model = task_of(), model_of()
    small.check_costs_of_windows(task, model)


def test_the_loss_has_a_gradient_for_every_weight():
    task, model = task_of(), model_of()
    loss, _ = task.loss(model, task.epoch(small.generator())[0])
    for grad in small.gradients(model, loss):
        assert grad.abs().max() > 0


def test_pieces_give_the_same_scores(monkeypatch):
    task, model = task_of(), model_of()
    scores = task.evaluate(model, "valid")
    monkeypatch.setattr("rru.tasks.tied.PIECE", 7)
    monkeypatch.setattr("rru.tasks.music.TIED_EVALUATION_BATCH", 2)
    assert task.evaluate(model, "valid") == pytest.approx(scores)


def test_a_piece_can_be_read_in_parts():
    model, roll = model_of("lstm"), piece(7)[:, None]
    whole, last = model(roll)
    first, state = model(roll[:3])
    rest, end = model(roll[3:], state)
    torch.testing.assert_close(torch.cat([first, rest]), whole)
    torch.testing.assert_close(end, last)
    assert [part.shape for part in last] == [part.shape for part in model.initial_state(1)]


@pytest.mark.parametrize("cell", presets.cells())
def test_both_networks_are_within_the_budget(cell):
    options = presets.load("bach", cell, "smoke").model.arguments
    architecture = MusicTask.architecture_of(MusicTask.settings_of("bach", output="tied"), None, None)
    model = architecture.build(cell, options, 100_000)
    assert isinstance(model, TiedModel)
    assert 95_000 < rru.count_parameters(model) <= 100_000
    over_time, over_keys = model.layers, model.head.layers
    assert over_keys.hidden_size == math.ceil(over_time.hidden_size / 2)
    assert over_keys.output_size == math.ceil(over_time.output_size / 2)


def test_training_in_bfloat16_is_close_to_float32():
    task, model = task_of(), model_of(double=False)
    batch, found = task.epoch(small.generator())[0], []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss, _ = task.loss(model, batch)
        found.append([loss, *torch.autograd.grad(loss, [*model.parameters()])])
    for exact, rounded in zip(*found, strict=True):
        assert (rounded - exact).norm() < 0.1 * exact.norm()  # 0.002 to 0.06
    assert not torch.equal(found[0][0], found[1][0])


def test_settings_of_other_outputs_are_refused():
    config = presets.load("bach", "rru", "smoke")
    for setting in ("output_units=64", "key_order=high-low"):
        with pytest.raises(ValueError, match=f"task.{setting.split('=')[0]} is only for task.output = .*, got 'tied'"):
            presets.override(config, ["output=tied", setting])


class TestBar:
    """Models that know the place of each step in a bar."""

    def test_a_step_depends_on_its_place_and_a_bar_later_on_the_same(self):
        model = model_of(bar=5).double()
        chord = piece(1).expand(11, -1)[:, None]
        read = [
            model.run(chord[:1], (model.initial_state(1)[0], torch.full((1, 1, 1), place)), None)[0]
            for place in range(5)
        ]
        assert all((one - other).abs().max() > 1e-6 for one, other in itertools.combinations(read, 2))
        conditions, (_, place) = model.run(chord, None, None)
        assert place.item() == 11 % 5
        torch.testing.assert_close(conditions[0], read[0][0])

    @pytest.mark.parametrize("cell", ["rru", "lstm"])
    def test_a_piece_can_be_read_in_parts_and_step_by_step(self, cell):
        model, steps = model_of(cell, bar=5), piece(13)[:, None]
        with torch.no_grad():
            whole, last = model(steps)
            first, state = model(steps[:7])
            second, after = model(steps[7:], state)
        torch.testing.assert_close(torch.cat([first, second]), whole)
        torch.testing.assert_close(after, last)
        stream = rru.stream(model)
        stream.open(["one", "two"])
        rows = [stream.step(["one", "two"], steps[t].expand(2, -1))[:1] for t in range(7)]
        rows += [stream.step(["one"], steps[t]) for t in range(7, 13)]
        torch.testing.assert_close(torch.stack(rows), whole)
        assert stream.state("one")[-1].flatten().tolist() == [13 % 5]
        stream.step(["one"], steps[0], resets=torch.tensor([True]))
        assert stream.state("one")[-1].flatten().tolist() == [1]

    def test_sequences_of_other_lengths_have_places_of_their_own(self):
        model, steps = model_of(bar=5), torch.stack([piece(8, seed) for seed in (1, 2)], 1)
        _, (state, place) = model(steps, lengths=torch.tensor([8, 4]))
        alone = model(steps[:4, 1:])[1]
        assert place.flatten().tolist() == [3, 4]
        torch.testing.assert_close((state[:, 1:], place[:, 1:]), alone)

    def test_windows_begin_with_a_bar(self):
        task = task_of(bar=5, context=15)
        assert {start % 5 for _, start, _ in task._training._places} == {0}
        assert {start for _, start, _ in task._training._places} >= {0, 5, 10}
        with pytest.raises(ValueError, match=r"task.context must be a multiple of task.bar, 5; got 12"):
            task_of(bar=5, context=12)

    def test_another_output_does_not_know_bars(self):
        config = presets.override(presets.load("bach", "rru", "smoke"), ["output=tied", "bar=5"])
        assert presets.override(config, ["output=nade"]).task.bar is None
        with pytest.raises(ValueError, match=r"task.bar is only for task.output = 'tied', got 'nade'"):
            presets.override(config, ["output=nade", "bar=5"])
