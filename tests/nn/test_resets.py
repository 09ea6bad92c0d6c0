"""`layer(x, resets=mask)`: layouts, depth, errors, graphs, steps; the scans themselves are in tests/scan."""

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import rru
from rru.nn.onnx_export import exported
from tests.variants import CELLS, assert_same, random_state, randomize, state_parts

T, B = 6, 3
MASK = torch.tensor([[False, True, False], [False] * 3, [True, False, False], [True, False, True], *[[False] * 3] * 2])
every_cell = pytest.mark.parametrize("variant", CELLS, ids=str)
x_of = lambda *sizes: torch.randn(*sizes, 3, dtype=torch.float64)  # noqa: E731


def step_by_step(layer, x, mask, state=None, reset_state=None):
    """A loop over single steps that sets states anew where the mask says so."""
    state = layer.initial_state(x.shape[1]) if state is None else state
    start = layer.initial_state(x.shape[1]) if reset_state is None else reset_state
    outputs = []
    for t in range(len(x)):
        rows = mask[t].view(1, -1, 1)
        parts = [torch.where(rows, new, old) for new, old in zip(state_parts(start), state_parts(state), strict=True)]
        output, state = layer(x[t : t + 1], layer.cells[0].public_state(tuple(parts)))
        outputs.append(output)
    return torch.cat(outputs), state


@every_cell
@pytest.mark.parametrize("backend", ["auto", "reference", "fused"])
def test_stacked_layers_start_anew_from_their_initial_states(variant, backend):
    layer = variant.build(num_layers=2, backend=backend)
    x, state = x_of(T, B), random_state(layer, B)
    outputs, last = layer(x, state, resets=MASK)
    wanted, wanted_last = step_by_step(layer, x, MASK, state)
    assert_same(outputs, wanted)
    assert_same(last, wanted_last)


@every_cell
def test_a_given_reset_state_gets_the_gradient_and_steps_before_get_none(variant):
    layer = variant.build(backend="auto")
    x, start = x_of(T, B).requires_grad_(), random_state(layer, B)
    start = tuple(part.requires_grad_() for part in state_parts(start))
    mask = torch.zeros(T, B).bool()
    mask[3, :2] = True
    outputs, _ = layer(x, resets=mask, reset_state=layer.cells[0].public_state(start))
    wanted, _ = step_by_step(layer, x, mask, reset_state=layer.cells[0].public_state(start))
    given = torch.randn_like(outputs[3:])
    computed = torch.autograd.grad((outputs[3:] * given).sum(), [x, *start, *layer.parameters()])
    assert_same(computed, torch.autograd.grad((wanted[3:] * given).sum(), [x, *start, *layer.parameters()]))
    assert not computed[0][:3, :2].any()
    assert computed[0][:3, 2].any()
    for part in computed[1 : 1 + len(start)]:
        assert part[0, :2].any()
        assert not part[0, 2].any()


def test_batch_first_and_single_sequences():
    layer, x = randomize(rru.RRU(3, 4, dtype=torch.float64)), x_of(T, B)
    outputs, last = layer(x, resets=MASK)
    layer.batch_first = True
    assert_same(layer(x.transpose(0, 1), resets=MASK.T)[0].transpose(0, 1), outputs)
    for b in range(B):
        output, state = layer(x[:, b], resets=MASK[:, b])
        assert_same((output, state), (outputs[:, b], last[:, b]))


@every_cell
@pytest.mark.parametrize("backend", ["auto", "reference", "fused"])
def test_lengths_and_packed_sequences(variant, backend):
    layer, x, lengths = variant.build(backend=backend), x_of(T, B), torch.tensor([4, 6, 3])
    outputs, last = layer(x, lengths=lengths, resets=MASK)  # the last reset of the third is after its end
    for b, length in enumerate(lengths):
        output, state = layer(x[:length, b], resets=MASK[:length, b])
        assert_same(outputs[:length, b], output)
        assert_same(tuple(part[:, b] for part in state_parts(last)), state_parts(state))
    packed, last_packed = layer(pack_padded_sequence(x, lengths, enforce_sorted=False), resets=MASK)
    assert_same(pad_packed_sequence(packed)[0], outputs)
    assert_same(last_packed, last)


def test_errors_say_what_is_right():
    layer, x = rru.LSTM(3, 4, num_layers=2), torch.randn(T, B, 3)
    for wrong in (MASK.float(), MASK.long(), MASK.byte()):
        with pytest.raises(TypeError, match=rf"resets must be boolean, got {wrong.dtype}: call .bool\(\)"):
            layer(x, resets=wrong)
    with pytest.raises(TypeError, match=r"resets must be a boolean tensor of shape \(steps, batch\), got ndarray"):
        layer(x, resets=MASK.numpy())
    with pytest.raises(ValueError, match=r"resets must have shape \(6, 3\) = \(steps, batch\), got \(3, 6\)"):
        layer(x, resets=MASK.T)
    with pytest.raises(ValueError, match=r"resets must have shape \(6,\) = \(steps,\), got \(6, 1\)"):
        layer(x[:, 0], resets=MASK[:, :1])
    with pytest.raises(ValueError, match=r"resets must have shape \(3, 6\) = \(batch, steps\), got \(6, 3\)"):
        rru.RRU(3, 4, batch_first=True)(x.transpose(0, 1), resets=MASK)
    with pytest.raises(ValueError, match="reset_state needs resets"):
        layer(x, reset_state=layer.initial_state(B))
    with pytest.raises(ValueError, match=r"state h must have shape \(2, 3, 4\)"):
        layer(x, resets=MASK, reset_state=rru.LSTM(3, 4).initial_state(B))
    with pytest.raises(ValueError, match="bidirectional must be False to reset states inside sequences"):
        rru.RRU(3, 4, bidirectional=True)(x, resets=MASK)


@every_cell
@pytest.mark.parametrize("backend", ["auto", "reference", "fused"])
def test_compiled_and_exported_graphs_take_resets(variant, backend):
    layer, x = variant.build(backend=backend), x_of(T, B).requires_grad_()
    outputs, last = layer(x, resets=MASK)
    gradients = torch.autograd.grad(outputs.square().sum(), [x, *layer.parameters()], retain_graph=True)
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    compiled_outputs, compiled_last = compiled(x, resets=MASK)
    assert_same(compiled_outputs, outputs)
    assert_same(compiled_last, last)
    total = compiled_outputs.square().sum()
    assert_same(torch.autograd.grad(total, [x, *layer.parameters()]), gradients)
    program = torch.export.export(layer, (x.detach(),), {"resets": MASK})
    assert_same(program.module()(x.detach(), resets=~MASK)[0], layer(x, resets=~MASK)[0])


class Agent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(layer.output_size, 2)

    def forward(self, x, done):
        outputs, state = self.layer(x, resets=done)
        return self.head(outputs), state


@every_cell
def test_onnx(variant):
    agent = Agent(variant.build(dtype=torch.float32, backend="auto")).eval()
    shapes = {0: torch.export.Dim("T"), 1: torch.export.Dim("B")}
    content = exported(agent, (torch.randn(T, B, 3), MASK), (shapes, shapes), ["x", "done"])
    session = onnxruntime.InferenceSession(content)
    mask = torch.rand(9, 2) < 0.4
    x = torch.randn(9, 2, 3)
    results = session.run(None, {"x": x.numpy(), "done": mask.numpy()})
    logits, state = agent(x, mask)
    for computed, wanted in zip(results, [logits, *state_parts(state)], strict=True):
        np.testing.assert_allclose(computed, wanted.detach().numpy(), atol=1e-5)


def test_a_cell_of_the_users_own():
    class Leaky(rru.Cell):
        """A state that leaks, and starts from a learned value."""

        def shapes(self):
            return {"weight": (self.hidden_size, self.input_size), "start": (self.hidden_size,)}

        def reset_parameters(self):
            nn.init.normal_(self.weight)
            nn.init.normal_(self.start)

        def initial_state(self, batch):
            return (self.start.expand(batch, -1),)

        def project(self, x):
            return x @ self.weight.T

        def step(self, projected, state, keep):
            h = 0.5 * state[0] + projected
            return h, (h,)

    class LeakyLayer(rru.Layer):
        cell_class = Leaky

    layer, x = LeakyLayer(3, 4, dtype=torch.float64), x_of(T, B)
    outputs, last = layer(x, resets=MASK)
    wanted, wanted_last = step_by_step(layer, x, MASK)
    assert_same((outputs, last), (wanted, wanted_last))
    gradient = torch.autograd.grad(outputs.square().sum(), layer.cells[0].start)
    assert_same(gradient, torch.autograd.grad(wanted.square().sum(), layer.cells[0].start))


@every_cell
def test_steppers_reset_rows(variant):
    layer, x = variant.build(num_layers=2, backend="auto"), x_of(T, B)
    outputs, last = layer(x, resets=MASK)
    stepper, state = layer.stepper(), None
    for t in range(T):
        output, state = stepper(x[t], state, resets=MASK[t])
        assert_same(output, outputs[t])
    assert_same(state, last)
    start = random_state(layer, B)
    given, _ = stepper(x[0], state, resets=torch.tensor([True] * B), reset_state=start)
    assert_same(given, stepper(x[0], start)[0])
    with pytest.raises(ValueError, match=r"resets must have shape \(3,\) = \(batch,\), got \(6, 3\)"):
        stepper(x[0], state, resets=MASK)
    with pytest.raises(ValueError, match="reset_state needs resets"):
        stepper(x[0], state, reset_state=start)


def test_streams_reset_sessions():
    layer = randomize(rru.LSTM(3, 4, num_layers=2, dtype=torch.float64)).eval()
    x = x_of(T, B)
    with torch.no_grad():
        outputs, (h, _) = layer(x, resets=MASK)
    stream = rru.stream(layer)
    stream.open("abc")
    for t in range(T):
        assert_same(stream.step("abc", x[t], resets=MASK[t]), outputs[t])
    assert_same(stream.state("b")[0], h[:, 1])
    alone = stream.step("a", x[0, :1])
    again = stream.step("a", x[0, :1], resets=torch.tensor([True]))
    assert not torch.equal(alone, again)
    with torch.no_grad():
        assert_same(again, layer(x[:1, :1])[0][0])
    with pytest.raises(TypeError, match=r"resets must be boolean, got torch.int64"):
        stream.step("a", x[0, :1], resets=torch.tensor([1]))
