"""Steps of a cell with gradients, against the reference."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call
from torch.nn.utils import parametrizations
from torch.utils.flop_counter import FlopCounterMode

import rru
from rru.scan import reference, thresholds
from rru.scan.native import gradient_step, library
from tests.scan.case import assert_near, every_variant
from tests.scan.steps import Steps
from tests.variants import VARIANTS, state_parts

pytestmark = pytest.mark.skipif(not library.BUILT, reason="the native library is not built")
every_native = pytest.mark.parametrize(
    "variant", [variant for variant in VARIANTS if variant.layer is not rru.LSTM], ids=str
)


@pytest.fixture
def ran(monkeypatch):
    """Which steps ran: native ones and those of the reference."""
    names = []
    for name, owner, function in (
        ("native", gradient_step._Step, gradient_step._Step.forward),
        ("reference", reference, reference.step),
    ):

        def recorded(*given, name=name, original=function):
            names.append(name)
            return original(*given)

        attribute, wrapped = ("step", recorded) if owner is reference else ("forward", staticmethod(recorded))
        monkeypatch.setattr(owner, attribute, wrapped)
    return names


@pytest.fixture
def steps():
    return Steps()


@every_native
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_of_steps_are_those_of_the_reference(variant, dropout, dtype, ran):
    steps = Steps(lambda: variant.build(13, 37, dtype=dtype).cells[0])
    steps.cell.dropout = dropout
    steps.assert_like_reference(steps.gradients, 1e-10 if dtype == torch.float64 else 2e-4)
    assert ran == ["native"] * 6 + ["reference"] * 6


@every_variant
def test_gradients_of_steps_are_those_of_the_layer(variant):
    layer = variant.build(3, 4)
    steps = Steps(lambda: layer.cells[0])
    outputs, last = layer(steps.x, steps.cell.public_state(tuple(part.unsqueeze(0) for part in steps.state)))
    total = (outputs * outputs.detach().cos()).sum() + sum(part.pow(2).sum() for part in state_parts(last))
    assert_near(steps.gradients(), torch.autograd.grad(total, steps.tensors), 1e-10)


@every_native
def test_gradients_of_a_step_against_finite_differences(variant):
    cell = variant.build(2, 3, dropout=0.3).cells[0]
    names = [name for name, _ in cell.named_parameters()]
    states = len(cell.state_names)

    def run(x, *tensors):
        torch.manual_seed(0)
        state, weights = cell.public_state(tensors[:states]), dict(zip(names, tensors[states:], strict=True))
        output, state = functional_call(cell, weights, (x, state))
        output, state = functional_call(cell, weights, (x, state))
        return output, *state_parts(state)

    tensors = [torch.randn(2, 2).double(), *[torch.randn(2, 3).double() for _ in range(states)], *cell.parameters()]
    given = tuple(tensor.detach().clone().requires_grad_() for tensor in tensors)
    assert gradcheck(run, given, fast_mode=True)
    assert gradgradcheck(run, given, fast_mode=True)


@pytest.mark.parametrize("most", [1, 4, 10_000])
def test_rows_of_any_number_wait(most, steps, monkeypatch):
    monkeypatch.setattr(thresholds, "MAX_WAITING_ROWS", most)

    def compute():
        total = sum(steps.cell(steps.x.flatten(0, 1)[:batch])[0].pow(2).sum() for batch in (1, 4, 1, 18, 2))
        return torch.autograd.grad(total + steps.total(), steps.tensors)

    steps.assert_like_reference(compute)


def test_large_layers_and_batches():
    for sizes, batch in ((40, 300), 20), ((20, 30), 700):
        steps = Steps(lambda sizes=sizes: rru.RRUCell(*sizes, dtype=torch.float64), batch)
        steps.assert_like_reference(steps.gradients)


def test_one_sequence_without_a_batch(steps, ran):
    steps.x, steps.state = (tensor.detach().requires_grad_() for tensor in (steps.x[:, 0], steps.state[0][0]))
    steps.state = (steps.state,)
    steps.assert_like_reference(steps.gradients)
    assert ran.count("native") == 6


@pytest.mark.parametrize("change", [lambda x: x.mT.contiguous().mT, torch._neg_view, lambda x: x[::2].expand(3, 3, 5)])
def test_inputs_however_they_lie(change, steps, ran):
    steps.assert_like_reference(lambda: torch.autograd.grad(steps.total(x=change(steps.x)), steps.tensors))
    assert "native" in ran


def test_default_state_and_results_that_nothing_depends_on(steps):
    def compute():
        outputs, states, state = [], [], None
        for x in steps.x:
            output, state = steps.cell(x, state)
            outputs.append(output)
            states.append(state)
        wanted = [steps.x, *steps.cell.parameters()]
        of_output = torch.autograd.grad(outputs[3].pow(2).sum(), wanted, retain_graph=True)
        of_state = torch.autograd.grad(states[4].pow(2).sum(), wanted, materialize_grads=True)
        return [*of_output, *of_state]

    steps.assert_like_reference(compute)


def test_weights_and_inputs_without_gradients(steps):
    def compute():
        results = []
        for frozen in [{"weight_h", "Z"}, set(), {name for name, _ in steps.cell.named_parameters()}]:
            for name, weight in steps.cell.named_parameters():
                weight.requires_grad_(name not in frozen).grad = None
            steps.x.grad = None
            steps.total().backward()
            for name, weight in steps.cell.named_parameters():
                assert (weight.grad is None) == (name in frozen)
            results += [weight.grad for weight in steps.cell.parameters() if weight.grad is not None] + [steps.x.grad]
        return results

    steps.assert_like_reference(compute)


def parametrized(steps):
    parametrizations.weight_norm(steps.cell, "weight_h")


def turned(steps):
    steps.cell.weight_h.data = steps.cell.weight_h.data.T.contiguous().T


def halved(steps):
    steps.cell.half()
    steps.x, steps.state = steps.x.detach().half(), tuple(part.detach().half() for part in steps.state)


@pytest.mark.parametrize("change", [parametrized, turned, halved])
def test_weights_that_the_library_cannot_read_go_to_the_reference(change, steps, ran):
    change(steps)
    steps.total().backward()
    assert set(ran) == {"reference"}
    assert all(parameter.grad is not None for parameter in steps.cell.parameters())


def test_other_weights_in_each_step_of_one_graph(steps):
    def compute():
        weights = {name: weight.detach().clone().requires_grad_() for name, weight in steps.cell.named_parameters()}
        sets = weights, {name: 2 * weight for name, weight in weights.items()}, dict(steps.cell.named_parameters())
        total, state = 0, steps.state[0]
        for x, given in zip(steps.x, [*sets, *sets], strict=True):
            output, state = functional_call(steps.cell, given, (x, state))
            total = total + output.pow(2).sum()
        return torch.autograd.grad(total, [*steps.tensors, *weights.values()])

    steps.assert_like_reference(compute)


def test_autocast_compilation_and_modes_do_not_go_past_torch(ran):
    steps = Steps(lambda: rru.RRUCell(5, 7))
    before, x = steps.state[0].detach(), steps.x[0].detach().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert steps.cell(x, before)[0].dtype == torch.bfloat16
    with FlopCounterMode(display=False) as counter:
        steps.cell(x, before)
    assert counter.get_total_flops() > 0
    compiled = torch.compile(steps.cell, backend="aot_eager", fullgraph=True)
    assert_near([compiled(x, before)[0]], [steps.cell(x, before)[0]], 1e-5)
    transformed = torch.func.grad(lambda x: steps.cell(x, before)[0].sum())(x)
    assert_near([transformed], torch.autograd.grad(steps.cell(x, before)[0].sum(), x), 1e-5)
    assert ran.count("native") == 2  # only those that were called without any of these


def test_a_backward_pass_inside_a_mode_does_not_go_past_torch(steps):
    def products():
        total = steps.total()
        with FlopCounterMode(display=False) as counter:
            total.backward()
        forward = 2 * 6 * 3 * sum(weight.numel() for weight in steps.cell.parameters() if weight.dim() > 1)
        assert counter.get_total_flops() >= 2 * forward
        return [weight.grad for weight in steps.cell.parameters()]

    for computed, wanted in zip(products(), steps.gradients()[2:], strict=True):
        torch.testing.assert_close(computed, wanted)
