import copy
import io

import numpy as np
import pytest
import torch

from rru.training import RAdam
from tests.training.radam_oracle import Oracle

SHAPES = ((3, 4), (5,), (1,), ())


def tensors(dtype=torch.float64, shapes=SHAPES):
    return [torch.nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes]


def gradients(steps, shapes=SHAPES):
    """Gradients of all sizes: some steps a hundred times those before, so that clipping has work."""
    generator = np.random.default_rng(0)
    sizes = 10.0 ** generator.uniform(-2, 1, size=steps)
    return [[generator.normal(size=shape) * size for shape in shapes] for size in sizes]


def give(params, arrays):
    for param, array in zip(params, arrays, strict=True):
        param.grad = None if array is None else torch.as_tensor(array, dtype=param.dtype)


def run(optimiser, params, all_gradients):
    for arrays in all_gradients:
        give(params, arrays)
        optimiser.step()


@pytest.mark.parametrize("clip", [None, 1.5, 10.0])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_matches_reference(clip, dtype, tolerance):
    params = tensors(dtype)
    oracle = Oracle([param.detach().numpy() for param in params], lr=0.01, clip=clip)
    optimiser = RAdam(params, lr=0.01, clip=clip)
    for arrays in gradients(80):
        give(params, arrays)
        oracle.step([param.grad.numpy() for param in params])
        optimiser.step()
        for param, expected in zip(params, oracle.values, strict=True):
            np.testing.assert_allclose(param.detach().numpy(), expected, rtol=tolerance, atol=tolerance)
    assert oracle.untractable > 0  # the first steps, too, were among those compared
    assert (oracle.clipped > 20) == (clip == 1.5)
    for param, momentum, second in zip(params, oracle.m, oracle.v, strict=True):
        np.testing.assert_allclose(optimiser.state[param]["momentum"], momentum, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(optimiser.state[param]["second_moment"], second, rtol=tolerance, atol=tolerance)


def test_tensor_without_gradient_is_skipped():
    given = gradients(30)
    for number, arrays in enumerate(given):
        arrays[number % 3] = None
    params = tensors()
    oracle = Oracle([param.detach().numpy() for param in params], lr=0.01, clip=1.5)
    optimiser = RAdam(params, lr=0.01, clip=1.5)
    for arrays in given:
        before = [param.detach().clone() for param in params]
        give(params, arrays)
        optimiser.step()
        oracle.step(arrays)
        for param, old, array in zip(params, before, arrays, strict=True):
            assert torch.equal(param, old) == (array is None)
    for param, expected in zip(params, oracle.values, strict=True):
        np.testing.assert_allclose(param.detach().numpy(), expected, rtol=1e-12)


def test_single_and_double_precision_train_side_by_side():
    shapes = ((4, 3), (4, 3))
    alone, mixed = tensors(torch.float64, shapes), []
    for index, param in enumerate(alone):
        mixed.append(torch.nn.Parameter(param.detach().to(torch.float32 if index else torch.float64)))
    for params in (alone, mixed):
        run(RAdam(params, lr=0.01, clip=1.5), params, gradients(10, shapes))
    assert torch.equal(alone[0], mixed[0])
    torch.testing.assert_close(alone[1].float(), mixed[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("at", [1, 3, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_resumed_steps_are_the_same_bit_for_bit(at, dtype):
    params = tensors(dtype)
    given = gradients(60)
    optimiser = RAdam(params, lr=0.01, clip=1.5)
    run(optimiser, params, given[:at])

    file = io.BytesIO()
    torch.save(optimiser.state_dict(), file)
    file.seek(0)
    others = copy.deepcopy(params)
    resumed = RAdam(others, lr=1.0)  # what was saved decides, options too
    resumed.load_state_dict(torch.load(file, weights_only=True))

    run(optimiser, params, given[at:])
    run(resumed, others, given[at:])
    assert all(torch.equal(one, other) for one, other in zip(params, others, strict=True))
    saved, again = optimiser.state_dict(), resumed.state_dict()
    assert saved["param_groups"] == again["param_groups"]
    for key, state in saved["state"].items():
        assert all(torch.equal(value, again["state"][key][name]) for name, value in state.items())


def test_clipping_leaves_the_gradient_itself_alone():
    params = tensors()
    give(params, gradients(1)[0])
    before = [param.grad.clone() for param in params]
    RAdam(params, lr=0.01, clip=1.5).step()
    assert all(torch.equal(param.grad, old) for param, old in zip(params, before, strict=True))


def test_a_gradient_a_million_times_too_large_moves_weights_no_more_than_usual():
    params = tensors(shapes=((20,),))
    optimiser = RAdam(params, lr=0.01, clip=1.5)
    run(optimiser, params, [[np.ones(20)]] * 200)
    before = params[0].detach().clone()
    second = optimiser.state[params[0]]["second_moment"].clone()
    run(optimiser, params, [[np.full(20, 1e6)]])
    assert (params[0] - before).abs().max() < 0.011
    assert (optimiser.state[params[0]]["second_moment"] / second).max() < 1.02


def test_groups_have_options_of_their_own():
    fast, slow = tensors(shapes=((3,), (3,)))
    optimiser = RAdam([{"params": [fast]}, {"params": [slow], "lr": 0.0}], lr=0.1)
    before = fast.detach().clone(), slow.detach().clone()
    run(optimiser, [fast, slow], gradients(3, ((3,), (3,))))
    assert not torch.equal(fast, before[0])
    assert torch.equal(slow, before[1])


def test_nan_gradient_reaches_the_weights():
    (param,) = tensors(shapes=((3,),))
    run(RAdam([param], clip=1.5), [param], [[np.array([1.0, np.nan, 1.0])]])
    assert param.isnan().any()


def test_finds_the_minimum_of_a_narrow_valley():
    point = torch.nn.Parameter(torch.tensor([-1.0, 1.5]))
    optimiser = RAdam([point], lr=0.1, clip=10.0)

    def valley():
        optimiser.zero_grad()
        loss = (1 - point[0]) ** 2 + 20 * (point[1] - point[0] ** 2) ** 2
        loss.backward()
        return loss.item()

    first = optimiser.step(valley)
    for _ in range(600):
        last = optimiser.step(valley)
    assert last < 1e-3 < first


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lr": -1.0}, ValueError, "lr must be 0 or more and finite, got -1.0"),
        ({"lr": float("nan")}, ValueError, "lr must be 0 or more and finite, got nan"),
        ({"lr": "0.1"}, TypeError, "lr must be a number, got '0.1' of type str"),
        ({"clip": -2}, ValueError, "clip must be 0 or more and finite, got -2"),
        ({"betas": (0.9, 1.0)}, ValueError, r"betas must be two numbers, at least 0 and below 1, got \(0.9, 1.0\)"),
    ],
)
def test_errors_name_the_option(options, error, message):
    with pytest.raises(error, match=message):
        RAdam(tensors(), **options)


def test_sparse_gradients_are_refused():
    table = torch.nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(TypeError, match=r"gradients must be dense and real, got a sparse one of shape \(5, 2\)"):
        RAdam(table.parameters()).step()
