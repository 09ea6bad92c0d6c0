"""The model of series: what it forecasts before training, what it is invariant to, its gradients, and its exports."""

import io

import numpy as np
import pytest
import torch

from rru.inference.onnx import sequence_model
from rru.tasks import Architecture
from rru.tasks.forecaster import MEDIAN, QUANTILES, Forecaster, WindowShape, pinball, variability

SHAPE = WindowShape(context=8, horizon=3, patch=4, season=4, past=1, known=2)
SHAPES = [
    SHAPE,
    WindowShape(context=8, horizon=3, patch=2, season=4),
    WindowShape(context=4, horizon=9, patch=1, season=6, known=1),  # a horizon and a season beyond the context
]


def forecaster(shape=SHAPE, cell="rru", *, trained=True, budget=3000) -> Forecaster:
    """Return a model with random buffers; with `trained`, also with random weights instead of zeros."""
    torch.manual_seed(0)
    outputs = shape.horizon * len(QUANTILES)
    architecture = Architecture(Forecaster, outputs, shape.patch_features, zero_head=True, window=shape)
    model = architecture.build(cell, {}, budget)
    model.start.normal_(std=0.3)
    model.level.copy_(torch.softmax(torch.randn(shape.context), 0))
    model.effects.normal_()
    if trained:
        for name, parameter in model.named_parameters():
            if not name.startswith("layers"):
                torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def windows(shape=SHAPE, batch=5, dtype=torch.float32):
    """Return features (C + H, B, m): no values after the context, nor inputs that are not known in advance."""
    inputs = torch.randn(
        shape.context + shape.horizon, batch, shape.step_features, generator=torch.Generator().manual_seed(1)
    ).to(dtype)
    inputs[:, :, 1] = 1
    inputs[shape.context :, :, : 2 + shape.past] = 0
    return inputs


def by_hand(model, inputs):
    """Return the linear forecast (H, B), with numpy."""
    shape, start, level = model.shape, model.start.numpy(), model.level.numpy()
    known, values = inputs[..., 2 + shape.past :].numpy() @ model.effects.numpy(), inputs[..., 0].numpy()
    values, ahead = values[: shape.context] - known[: shape.context], known[shape.context :]
    mean = level @ values
    return start @ (values - mean) + mean + ahead


@pytest.mark.parametrize("shape", SHAPES)
def test_before_training_the_median_is_the_linear_forecast(shape):
    model, inputs = forecaster(shape, trained=False), windows(shape)
    with torch.no_grad():
        quantiles = model(inputs)[0]
    assert quantiles.shape == (shape.horizon, 5, 5)
    np.testing.assert_allclose(quantiles[..., MEDIAN], by_hand(model, inputs), atol=1e-5)


def test_without_trust_a_trained_model_gives_the_linear_forecast():
    model, inputs = forecaster(), windows()
    with torch.no_grad():
        trusted = model(inputs)[0][..., MEDIAN]
        model.trust.fill_(0.5)
        half = model(inputs)[0][..., MEDIAN]
        model.trust.fill_(0.0)
        none = model(inputs)[0][..., MEDIAN]
    np.testing.assert_allclose(none, by_hand(model, inputs), atol=1e-5)
    np.testing.assert_allclose(half, (trusted + none) / 2, atol=1e-5)
    assert (trusted - none).abs().max() > 0.1


def test_training_learns_the_whole_correction_and_the_intervals_as_they_are():
    model, inputs = forecaster(), windows()
    model.trust.fill_(0.0)
    model.widening.fill_(7.0)
    used, learned = model(inputs)[0], model.train()(inputs)[0]
    model.trust.fill_(1.0)
    model.widening.fill_(1.0)
    assert model(inputs)[0].equal(learned)
    assert not used.equal(learned)


@pytest.mark.parametrize("shape", SHAPES)
def test_quantiles_are_in_order_whatever_the_weights(shape):
    model = forecaster(shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10)
        for widening in ([1, 1], [5, 0.1], [0.0, 0.0], [0.1, 9]):
            model.widening.copy_(torch.tensor(widening))
            assert (model(windows(shape, 100))[0].diff(dim=-1) >= 0).all()


@pytest.mark.parametrize("added", [-50.0, 3.0, 1000.0])
def test_a_constant_added_to_the_values_is_added_to_the_forecasts(added):
    model, inputs = forecaster().double(), windows(dtype=torch.float64)
    model.level.div_(model.level.sum())  # to all its digits
    moved = inputs.clone()
    moved[: SHAPE.context, :, 0] += added
    with torch.no_grad():
        torch.testing.assert_close(model(moved)[0], model(inputs)[0] + added)


def test_an_effect_is_taken_off_the_context_and_added_to_the_forecast():
    """A promotion throughout is as if values were that much higher; one only ahead adds its effect."""
    model = forecaster(trained=False)
    plain = windows()
    plain[..., -2:] = 0
    ahead, throughout = plain.clone(), plain.clone()
    ahead[SHAPE.context :, :, -1] = 1
    throughout[..., -1] = 1
    throughout[: SHAPE.context, :, 0] += model.effects[-1]
    with torch.no_grad():
        (plain, ahead, throughout) = (model(each)[0][..., MEDIAN] for each in (plain, ahead, throughout))
    torch.testing.assert_close(ahead, plain + model.effects[-1])
    torch.testing.assert_close(throughout, ahead)


def test_what_is_not_known_in_advance_is_not_read_ahead():
    model, inputs = forecaster(), windows()
    other = inputs.clone()
    other[SHAPE.context :, :, : 2 + SHAPE.past] = 99
    with torch.no_grad():
        assert model(inputs)[0].equal(model(other)[0])


@pytest.mark.parametrize("feature", [1, 2, 3])
def test_missing_values_and_inputs_of_the_context_are_seen_by_the_layers(feature):
    model, inputs = forecaster(), windows()
    other = inputs.clone()
    other[SHAPE.context - 3, :, feature] -= 1
    with torch.no_grad():
        assert (model(inputs)[0] != model(other)[0]).any(-1).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients(shape):
    """Against finite differences, of every weight and of the inputs."""
    model = forecaster(shape, budget=900).double().train()
    inputs = windows(shape, 2, torch.float64).requires_grad_()
    names = [name for name, _ in model.named_parameters()]

    def run(inputs, *weights):
        return torch.func.functional_call(model, dict(zip(names, weights, strict=True)), (inputs,))[0]

    assert torch.autograd.gradcheck(run, (inputs, *model.parameters()), fast_mode=True)


def test_variability_is_the_mean_seasonal_difference_of_known_values():
    values = torch.tensor([[0.0], [5], [2], [9], [100], [13]])
    known = torch.tensor([[1.0], [1], [1], [1], [0], [1]])
    assert variability(values, known, 2).item() == pytest.approx((2 + 4 + 4) / 3 + 0.01)
    assert variability(values, known, 6).item() == pytest.approx((5 + 3 + 7) / 3 + 0.01)  # a season beyond the window
    assert variability(values, 0 * known, 2).item() == pytest.approx(0.01)
    assert variability(values[:1], known[:1], 1).item() == 1


def test_the_pinball_loss_is_least_at_the_quantiles():
    values = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    right = torch.quantile(values, torch.tensor(QUANTILES))
    least = pinball(right.expand(len(values), -1), values).mean(0)
    for shift in (-0.2, 0.2):
        assert (pinball((right + shift).expand(len(values), -1), values).mean(0) > least).all()


@pytest.mark.parametrize(("shape", "cell"), [(SHAPES[0], "rru"), (SHAPES[1], "lstm"), (SHAPES[2], "rru")])
def test_exported_programs_give_the_same_quantiles(shape, cell):
    model, inputs = forecaster(shape, cell), windows(shape, 7)
    model.trust.fill_(0.75)
    model.widening.copy_(torch.tensor([1.5, 2.0]))
    with torch.no_grad():
        expected = model(inputs)[0]
    example = (model.example(model.window_steps, 4),)
    program = torch.export.export(model, example, dynamic_shapes=({1: torch.export.Dim("B", min=2)},))
    content = io.BytesIO()
    torch.export.save(program, content)
    content.seek(0)
    torch.testing.assert_close(torch.export.load(content).module()(inputs)[0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_onnx_model_gives_the_same_quantiles(shape):
    runtime = pytest.importorskip("onnxruntime")
    model = forecaster(shape)
    model.trust.fill_(0.75)
    session = runtime.InferenceSession(sequence_model(model), providers=["CPUExecutionProvider"])
    for batch in (1, 7):
        inputs = windows(shape, batch)
        with torch.no_grad():
            expected = model(inputs)[0].numpy()
        (found, *_) = session.run(None, {"input": inputs.numpy()})
        np.testing.assert_allclose(found, expected, atol=1e-5)
