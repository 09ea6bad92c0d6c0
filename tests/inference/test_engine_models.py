"""The C engine runs models of every kind as PyTorch does."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import rru
from rru import inference
from rru.inference.engine import blob
from rru.kinds import kind_of
from rru.tasks import Forecaster, JointHead
from tests.inference.c_engine import Scaling
from tests.inference.small_models import energy

STEPPED = (
    "music", "nade", "chain", "tied", "characters", "words", "bytes", "texts", "sequences", "mnist", "reviews",
    "tokens", "letters",
)  # fmt: skip
MASK = 2**64 - 1


def steps_for(trained, count=25):
    """Return inputs (count, 1) or (count, 1, m)."""
    random = torch.Generator().manual_seed(3)
    if trained.vocabulary is not None:
        return torch.randint(0, len(trained.vocabulary), (count, 1), generator=random)
    x = torch.rand(trained.model.example(count, 1).shape, generator=random)
    return (x > 0.9).float() if trained.kind == "music" else x


def expected_for(trained, inputs):
    """Return the outputs of the model after each step, (T, outputs)."""
    with torch.no_grad():
        outputs = trained.model(inputs)[0]
        if outputs.dim() == 2:  # a classifier
            return torch.cat([trained.model(inputs[: end + 1])[0] for end in range(len(inputs))]).numpy()
    return outputs[:, 0].numpy()


def ran(model, inputs):
    step = model.step_token if inputs.dim() == 2 else model.step
    return np.stack([step(int(x)) if inputs.dim() == 2 else step(x[0].numpy()) for x in inputs])


@pytest.mark.parametrize("name", STEPPED)
def test_outputs_are_those_of_pytorch(engine_of_gcc, models, name):
    trained = models[name]
    inputs = steps_for(trained)
    found = ran(engine_of_gcc.model(blob(trained)), inputs)
    np.testing.assert_allclose(found, expected_for(trained, inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", STEPPED)
def test_int8_is_as_in_pytorch_and_a_third_of_the_size(engine_of_gcc, models, name):
    trained = models[name]
    inputs, rounded = steps_for(trained), replace(trained, model=rru.quantize(copy.deepcopy(trained.model)))
    expected = expected_for(rounded, inputs)
    small = blob(trained, int8=True)
    found = ran(engine_of_gcc.model(small), inputs)
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()  # states are rounded on the way
    assert len(small) < 0.45 * len(blob(trained))


@pytest.mark.parametrize("output", ["nade", "tied"])
@pytest.mark.parametrize("cell", ["rru", "gru", "lstm", "mogrifier"])
def test_every_cell_and_stacks_have_heads_too(engine_of_gcc, untrained_run, cell, output):
    trained = inference.load(untrained_run("bach", cell, None, [f"output={output}", "num_layers=2"]))
    with_random_weights(trained.model)
    inputs, model = steps_for(trained), engine_of_gcc.model(blob(trained))
    found = ran(model, inputs)
    with torch.no_grad():
        expected, last = trained.model(inputs)
        wanted = trained.model.head.nats(expected[-1].expand(5, -1), inputs[:5, 0])
    np.testing.assert_allclose(found, expected[:, 0], rtol=1e-5, atol=1e-5)
    parts = (last,) if isinstance(last, torch.Tensor) else last
    state = torch.stack(parts, 1)[:, :, 0].flatten()  # layer by layer, h and then c
    np.testing.assert_allclose(model.state(), state, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose([model.nats(chord) for chord in inputs[:5, 0]], wanted, rtol=1e-5)
    rounded = engine_of_gcc.model(blob(trained, int8=True))
    ran(rounded, inputs)
    np.testing.assert_allclose([rounded.nats(chord) for chord in inputs[:5, 0]], wanted, rtol=0.02)


def with_random_weights(model, deviation=0.15):
    """Give all weights of a model random values: before training, a state may have no effect."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=deviation)


def test_a_state_of_all_keys_can_be_kept_and_put_back(engine_of_gcc, models):
    trained = few_voices(models["tied"])
    model, x = engine_of_gcc.model(blob(trained)), steps_for(trained, 6)[:, 0].numpy()
    assert model.state().shape == (88 * model.hidden + 1,)  # the last is the place in a bar
    model.step(x[0])
    assert model.state()[-1] == 1
    kept = model.state()
    first = [(model.step(row), model.nats(row > 0)) for row in x[1:]]
    model.set_state(kept)
    for row, (outputs, nats) in zip(x[1:], first, strict=True):
        np.testing.assert_array_equal(model.step(row), outputs)
        assert model.nats(row > 0) == nats


def test_networks_with_other_options_have_no_engine(models):
    model = copy.deepcopy(models["tied"].model)
    deeper = type(model.layers)(model.head.layers.input_size, 4, num_layers=2)
    model.head.layers = deeper
    with pytest.raises(ValueError, match="over time and over keys must have the same cell, layers and options"):
        blob(replaced(models["tied"], model))


def test_a_model_of_tokens_takes_no_features_and_an_unknown_token_is_the_unknown_one(engine_of_gcc, models):
    model = engine_of_gcc.model(blob(models["letters"]))
    assert model.step(np.zeros(99)) is None
    first = model.step_token(2**32 - 1)
    model.reset()
    np.testing.assert_array_equal(first, model.step_token(models["letters"].vocabulary.unknown))
    assert engine_of_gcc.model(blob(models["music"])).step_token(3) is None


def test_names_are_tokens_and_then_classes(engine_of_gcc, models):
    model, trained = engine_of_gcc.model(blob(models["texts"])), models["texts"]
    tokens = [model.name(index).decode() for index in range(model.tokens)]
    assert tuple(tokens) == trained.vocabulary.tokens
    assert tuple(model.name(model.tokens + i).decode() for i in range(model.logits)) == trained.facts.classes
    assert model.name(model.names) is None
    every_byte = engine_of_gcc.model(blob(models["bytes"]))
    assert {every_byte.name(i) for i in range(2, every_byte.tokens)} <= {bytes([b]) for b in range(256)}


def test_columns_are_scaled_as_in_training(engine_of_gcc, models):
    trained, values = models["sequences"], np.array([0.3, np.nan])
    model = engine_of_gcc.model(blob(trained))
    np.testing.assert_allclose(model.scaled(values), trained.facts.scale.apply(values[None])[0], atol=1e-6)


class TestDrawing:
    def test_numbers_are_those_of_splitmix(self, engine_of_gcc, models):
        model, state = engine_of_gcc.model(blob(models["music"])), 7
        model.seed(7)
        for _ in range(5):
            state = (state + 0x9E3779B97F4A7C15) & MASK
            z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
            z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
            assert model.random() == ((z ^ (z >> 31)) >> 11) / 2**53

    @pytest.mark.parametrize("name", ["nade", "chain", "tied", "music"])
    def test_nats_are_those_of_pytorch_and_do_not_change_what_is_drawn(self, engine_of_gcc, models, name):
        trained = few_voices(models[name])
        model, twin = (engine_of_gcc.model(blob(trained)) for _ in range(2))
        inputs = steps_for(trained, 8)
        for x, chord in zip(inputs[:-1], inputs[1:, 0], strict=True):
            outputs = torch.from_numpy(model.step(x[0].numpy()))[None]
            twin.step(x[0].numpy())
            with torch.no_grad():
                if isinstance(trained.model.head, JointHead):
                    expected = trained.model.head.nats(outputs, chord[None]).item()
                else:
                    expected = torch.nn.functional.binary_cross_entropy_with_logits(
                        outputs[0], chord, reduction="sum"
                    ).item()
            assert model.nats(chord) == pytest.approx(expected, rel=1e-5)
            np.testing.assert_array_equal(model.chord(0.9), twin.chord(0.9))

    @pytest.mark.parametrize("name", ["nade", "chain", "tied", "music"])
    def test_chords_are_as_probable_as_the_model_says(self, engine_of_gcc, models, name):
        with_few_voices = few_voices(models[name])
        trained, model = with_few_voices.model, engine_of_gcc.model(blob(with_few_voices))
        logits = torch.from_numpy(model.step(np.zeros(88)))[None]
        made = torch.from_numpy(np.stack([model.chord() for _ in range(3000)])).float()
        if isinstance(trained.head, JointHead):
            with torch.no_grad():
                wanted = trained.head.sample(logits.expand(3000, -1), torch.Generator().manual_seed(1))
                nats = [trained.head.nats(logits.expand(3000, -1), some) for some in (made, wanted)]
            error = nats[1].std().item() / math.sqrt(1500)
            assert nats[0].mean().item() == pytest.approx(nats[1].mean().item(), abs=5 * error)
            chances = wanted.mean(0)
        else:
            chances = logits[0].sigmoid()
        assert (made.mean(0) - chances).abs().max().item() < 0.06

    def test_chords_of_another_temperature_are_those_of_rru(self, engine_of_gcc, models):
        trained = few_voices(models["tied"])
        with_random_weights(trained.model, 0.4)  # some keys are more probable than others, so a temperature matters
        torch.nn.init.constant_(trained.model.head.bias, -4.0)
        model, head = engine_of_gcc.model(blob(trained)), trained.model.head
        outputs = torch.from_numpy(model.step(np.zeros(88)))[None]
        wanted = head.sample(outputs.expand(600, -1), torch.Generator().manual_seed(1), 0.5)
        voices = int(wanted.sum(1)[wanted.sum(1) > 0].mode().values)  # 0 would mean any number
        wanted = wanted[wanted.sum(1) == voices]
        made, usual = (
            torch.from_numpy(np.stack([model.chord(temperature, voices) for _ in range(200)])).float()
            for temperature in (0.5, 1.0)
        )
        assert (made.sum(1) == voices).all()
        with torch.no_grad():
            nats = [head.nats(outputs.expand(len(some), -1), some) for some in (made, wanted, usual)]
        error = nats[1].std().item() * math.sqrt(1 / len(made) + 1 / len(wanted))
        assert nats[0].mean().item() == pytest.approx(nats[1].mean().item(), abs=4 * error)
        assert nats[0].mean().item() < nats[2].mean().item() - 3 * error

    @pytest.mark.parametrize("name", ["nade", "tied"])
    def test_a_temperature_changes_which_keys_sound_and_not_how_many(self, engine_of_gcc, models, name):
        model = engine_of_gcc.model(blob(few_voices(models[name])))
        model.step(np.zeros(88))
        hot, cold, usual = ([model.chord(t) for _ in range(1000)] for t in (2.0, 0.3, 1.0))
        counts = [np.sum(chords, axis=1).mean() for chords in (hot, cold, usual)]
        assert counts == pytest.approx([counts[2]] * 3, rel=0.15)
        entropy = [len({chord.tobytes() for chord in chords}) for chords in (hot, cold)]
        assert entropy[0] > entropy[1]

    def test_chances_are_those_of_keys_without_others_below(self, engine_of_gcc, models):
        trained = few_voices(models["tied"])
        model = engine_of_gcc.model(blob(trained))
        outputs = torch.from_numpy(model.step(np.zeros(88)))[None]
        with torch.no_grad():
            expected = trained.model.head.logits(outputs, torch.zeros(1, 88)).sigmoid()[0]
        np.testing.assert_allclose(model.chances()[:88], expected, atol=1e-6)

    @pytest.mark.parametrize("name", ["nade", "tied", "music"])
    def test_voices_are_as_asked(self, engine_of_gcc, models, name):
        model = engine_of_gcc.model(blob(few_voices(models[name])))
        model.step(np.zeros(88))
        usual = round(float(np.mean([model.chord().sum() for _ in range(50)])))
        assert all(model.chord(1.0, usual).sum() == usual for _ in range(20))
        assert model.chord(1.0, 88).sum() <= 88

    def test_tokens_are_as_probable_as_the_model_says(self, engine_of_gcc, models):
        trained = models["letters"]
        model, vocabulary = engine_of_gcc.model(blob(trained)), trained.vocabulary
        logits = torch.from_numpy(model.step_token(5)) / 0.7
        logits[[vocabulary.padding, vocabulary.unknown]] = -torch.inf
        drawn = np.bincount([model.token(0.7) for _ in range(5000)], minlength=len(logits)) / 5000
        assert np.abs(drawn - logits.softmax(0).numpy()).max() < 0.03
        np.testing.assert_allclose(model.chances().sum(), 1, rtol=1e-5)
        likely = set(logits.topk(3).indices.tolist())
        assert {model.token(0.7, 3) for _ in range(300)} == likely

    @pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, 1e-30])
    def test_a_temperature_that_is_too_low_draws_the_likeliest(self, engine_of_gcc, models, temperature):
        model = engine_of_gcc.model(blob(models["words"]))
        model.step_token(3)
        least = [model.seed(1), *(model.token(0.01) for _ in range(20))][1:]
        assert [model.seed(1), *(model.token(temperature) for _ in range(20))][1:] == least
        music = engine_of_gcc.model(blob(few_voices(models["nade"])))
        music.step(np.zeros(88, np.float32))
        least = [music.seed(1), *(music.chord(0.01, 3).tolist() for _ in range(5))][1:]
        assert [music.seed(1), *(music.chord(temperature, 3).tolist() for _ in range(5))][1:] == least
        assert {sum(chord) for chord in least} == {3}

    def test_the_same_seed_gives_the_same_text(self, engine_of_gcc, models):
        texts = []
        for seed in (1, 1, 2):
            model, token = engine_of_gcc.model(blob(models["letters"])), 5
            model.seed(seed)
            texts.append([token := (model.step_token(token), model.token())[1] for _ in range(30)])
        assert texts[0] == texts[1] != texts[2]


def few_voices(trained):
    """Return a model of music of whose keys few sound at a time."""
    model = copy.deepcopy(trained.model)
    torch.nn.init.constant_(model.head.bias, -4.0)
    return replaced(trained, model)


def replaced(trained, model):
    return replace(trained, model=model)


class TestForecasts:
    @pytest.mark.parametrize("name", ["series", "inputs"])
    @pytest.mark.parametrize("steps", [5, 12, 100])
    def test_forecasts_are_those_of_rru(self, engine_of_gcc, models, name, steps, tmp_path):
        trained = models[name]
        table, count = shortened(tmp_path, name == "inputs", steps)
        (expected,) = trained.forecast(table)
        model = engine_of_gcc.model(blob(trained))
        inputs = window_inputs(trained, table, model) if name == "inputs" else None
        found = model.forecast(expected.history, inputs=inputs)
        assert len(expected.history) == count
        np.testing.assert_allclose(found, expected.quantiles, rtol=2e-5)

    def test_missing_values_are_filled_as_by_rru(self, engine_of_gcc, models, tmp_path):
        table, _ = shortened(tmp_path, False, 60)
        lines = table.read_text().splitlines()
        for row in (20, 21, 40, 55, 56, 57, 58):
            day, _, price = lines[row].split(",")
            lines[row] = f"{day},,{price}"
        table.write_text("\n".join(lines))
        (expected,) = models["series"].forecast(table)
        values = np.array([float(line.split(",")[1] or "nan") for line in lines[1:]])
        found = engine_of_gcc.model(blob(models["series"])).forecast(values)
        np.testing.assert_allclose(found, expected.quantiles, rtol=2e-5)

    def test_an_ensemble_is_averaged(self, engine_of_gcc, models, tmp_path):
        from rru.tasks.forecaster import Ensemble

        single = models["series"]
        architecture = kind_of("series").task.architecture_of(single.config.task, single.facts, None)
        torch.manual_seed(1)
        ensemble = Ensemble(copy.deepcopy(single.model.layers), replace(architecture, members=3, model_class=Ensemble))
        for parameter in ensemble.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        trained = replaced(single, ensemble.eval())
        table, _ = shortened(tmp_path, False, 60)
        (expected,) = trained.forecast(table)
        found = engine_of_gcc.model(blob(trained)).forecast(expected.history)
        np.testing.assert_allclose(found, expected.quantiles, rtol=2e-5)

    def test_trust_widening_and_widths_count(self, engine_of_gcc, models, tmp_path):
        model = copy.deepcopy(models["series"].model)
        assert isinstance(model, Forecaster)
        model.trust.fill_(0.4)
        model.widening.copy_(torch.tensor([1.7, 1.2]))
        model.widths.fill_(1.5)
        trained = replaced(models["series"], model)
        table, _ = shortened(tmp_path, False, 60)
        (expected,) = trained.forecast(table)
        found = engine_of_gcc.model(blob(trained)).forecast(expected.history)
        np.testing.assert_allclose(found, expected.quantiles, rtol=2e-5)

    def test_a_series_without_a_value_has_no_forecast(self, engine_of_gcc, models):
        model = engine_of_gcc.model(blob(models["series"]))
        assert model.forecast([]) is None
        assert model.forecast([np.nan] * 3) is None
        assert np.isfinite(model.forecast([np.nan, 4.0])).all()
        assert engine_of_gcc.model(blob(models["music"])).engine.forecast is not None

    def test_a_scaling_of_ones_own(self, engine_of_gcc, models):
        model = engine_of_gcc.model(blob(models["series"]))
        values = 5 + np.arange(40) % 7
        first = model.forecast(values, scaling=Scaling(0, 8, 2, -math.inf, 1))
        second = model.forecast(10.0 * values, scaling=Scaling(0, 80, 20, -math.inf, 1))
        np.testing.assert_allclose(10 * first, second, rtol=1e-5)


def shortened(folder, grows, steps):
    """Write the first rows of the series that a model was trained on; return the table and how many values it has."""
    lines = energy(folder / "short.csv", grows).read_text().splitlines()[: steps + 1]
    (folder / "short.csv").write_text("\n".join(lines))
    return folder / "short.csv", steps


def window_inputs(trained, table, model):
    """Return the inputs (context + horizon, k) of the last window of a table, in the units of the file."""
    from rru.data.own.frames import table_from
    from rru.data.own.resampling import read_series

    facts = trained.facts
    (series,) = read_series(table_from(table), facts.layout, facts.filling_season).values()
    inputs = series.with_future(facts.horizon, table).inputs
    rows = np.clip(np.arange(model.context + model.horizon) + len(series.values) - model.context, 0, len(inputs) - 1)
    return inputs[rows]
