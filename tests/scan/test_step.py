"""One step of a cell, and a layer step by step."""

import copy
import pickle

import pytest
import torch
from torch.nn.utils import prune
from torch.utils.flop_counter import FlopCounterMode

import rru
from rru.scan import reference
from rru.scan.native import stepper
from rru.scan.native.call import Loop
from tests.scan.case import assert_near, every_cell, every_variant


@every_variant
@pytest.mark.parametrize(("batch", "n", "dropout"), [(None, 5, 0.0), (1, 300, 0.0), (3, 37, 0.5)])
def test_a_cells_step_is_the_same_with_and_without_gradients(variant, batch, n, dropout):
    lead = () if batch is None else (batch,)
    cell = variant.build(13, n).cells[0]
    cell.dropout = dropout
    x = torch.randn(*lead, 13).double()
    state = cell.public_state(tuple(torch.randn(*lead, n).double() for _ in cell.state_names))
    results = []
    for wanted in (False, True):
        torch.manual_seed(0)
        with torch.set_grad_enabled(wanted):
            output, after = cell(x, state)
        assert output.requires_grad == wanted
        results.append([output, *(after if isinstance(after, tuple) else (after,))])
    assert_near(*results, 1e-12)


@every_cell
def test_a_step_reads_weights_and_states_however_they_lie(variant):
    cell, plain = (variant.build(13, 37).cells[0] for _ in range(2))
    plain.load_state_dict(cell.state_dict())
    for name, weight in cell.named_parameters():
        if weight.dim() > 1:
            setattr(cell, name, torch.nn.Parameter(weight.detach().T.contiguous().T))
    x, strided = torch.randn(3, 13).double(), torch.randn(3, 74).double()[:, ::2]
    state = cell.public_state((strided,) * len(cell.state_names))
    with torch.no_grad():
        torch.testing.assert_close(cell(x, state), plain(x, state), rtol=1e-12, atol=1e-12)


CELLS = [rru.RRUCell, rru.GRUCell, rru.LSTMCell, rru.MogrifierLSTMCell]
every_kind = pytest.mark.parametrize("kind", CELLS, ids=lambda kind: kind.__name__)


class Stepped:
    """A cell with random weights, and what its next step is to be given."""

    def __init__(self, kind=rru.RRUCell, dtype=torch.float64, **options):
        self.cell = kind(5, 7, dtype=dtype, **options)
        with torch.no_grad():
            for weight in self.cell.parameters():
                weight.normal_(std=0.5)
        self.x = torch.randn(2, 5, dtype=dtype)
        self.state = self.cell.public_state(tuple(torch.randn(2, 7, dtype=dtype) for _ in self.cell.state_names))

    def quick(self):
        """What the short way gives, None where the long way is needed."""
        parts = self.state if isinstance(self.state, tuple) else (self.state,)
        return self.cell.native_step(self.cell, self.x, parts)

    def assert_right(self):
        parts = self.state if isinstance(self.state, tuple) else (self.state,)
        with torch.no_grad():
            called, stepped = self.cell(self.x, self.state), self.cell.stepper()(self.x, self.state)
            wanted, after = reference.step(self.cell, self.x, parts, None)
        for output, state in (called, stepped):
            computed = [output, *(state if isinstance(state, tuple) else (state,))]
            assert_near(computed, [wanted, *after], 1e-12 if output.dtype == torch.float64 else 1e-5)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_plain_step_takes_the_short_way(kind, dtype):
    stepped = Stepped(kind, dtype)
    assert stepped.quick() is not None
    stepped.assert_right()


@every_kind
def test_weights_that_were_trained_further_count(kind):
    stepped = Stepped(kind)
    stepper = stepped.cell.stepper()
    before = stepper(stepped.x, stepped.state)[0]
    for weight in stepped.cell.parameters():
        weight.data.add_(0.1)
    assert not torch.equal(stepper(stepped.x, stepped.state)[0], before)
    stepped.assert_right()


def replaced(cell):
    cell.weight_h = torch.nn.Parameter(torch.randn_like(cell.weight_h))


def moved(cell):
    cell.weight_h.data = torch.randn_like(cell.weight_h)


def turned(cell):
    n = cell.hidden_size
    cell.weight_c.data = torch.randn(n, cell.weight_c.shape[1]).double().T.contiguous().T


def parametrized(cell):
    torch.nn.utils.parametrizations.weight_norm(cell, "weight_h")


def pruned(cell):
    prune.random_unstructured(cell, "weight_h", 0.5)


def pruned_at_the_end(cell):
    assert list(cell._parameters)[-1] == "Z"
    prune.random_unstructured(cell, "Z", 0.5)


def pruned_for_good(cell):
    prune.random_unstructured(cell, "weight_h", 0.5)
    prune.remove(cell, "weight_h")
    assert list(cell._parameters)[-1] == "weight_h"  # no longer where it was made


def halved(cell):
    cell.weight_h.data = cell.weight_h.data.bfloat16().double()


CHANGES = [replaced, moved, turned, parametrized, pruned, pruned_at_the_end, pruned_for_good, halved]


@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_became_others_are_checked_and_used(change):
    stepped = Stepped()
    stepper = stepped.cell.stepper()
    stepper(stepped.x, stepped.state)
    change(stepped.cell)
    stepped.assert_right()
    with torch.no_grad():
        assert_near([stepper(stepped.x, stepped.state)[0]], [stepped.cell(stepped.x, stepped.state)[0]], 1e-12)


@pytest.mark.parametrize("change", [turned, parametrized, pruned])
def test_weights_that_the_library_cannot_read_where_they_are_go_the_long_way(change):
    stepped = Stepped()
    change(stepped.cell)
    assert stepped.quick() is None


def test_a_weight_that_shrank_where_it_lies_is_an_error_and_not_read_beyond_its_end():
    stepped = Stepped()
    stepped.cell.weight_h.data = stepped.cell.weight_h.data[:3]
    for run in (stepped.cell, stepped.cell.stepper()):
        with torch.no_grad(), pytest.raises(ValueError, match="weight_h must have shape"):
            run(stepped.x, stepped.state)


def test_weights_without_memory_are_an_error_and_not_read():
    for lose in (lambda cell: cell.to("meta"), lambda cell: cell.weight_h.untyped_storage().resize_(0)):
        stepped = Stepped()
        lose(stepped.cell)
        for run in (stepped.cell, stepped.cell.stepper()):
            with torch.no_grad(), pytest.raises(ValueError, match=r"the weights on meta|tensors with storage"):
                run(stepped.x, stepped.state)


@pytest.mark.parametrize(
    "give",
    [
        lambda s: {"x": torch.randn(5, 2).double().T},
        lambda s: {"state": torch.randn(7, 2).double().T},
        lambda s: {"x": torch._neg_view(s.x)},
        lambda s: {"state": torch._neg_view(s.state)},
    ],
    ids=["turned input", "turned state", "negated input", "negated state"],
)
def test_unusual_inputs_go_the_long_way(give):
    stepped = Stepped()
    vars(stepped).update(give(stepped))
    assert stepped.quick() is None
    stepped.assert_right()


@pytest.mark.parametrize(
    "wrong",
    [
        {"x": torch.randn(2, 4).double()},
        {"state": torch.randn(3, 7).double()},
        {"x": torch.randn(2, 5)},
        {"state": torch.randn(2, 7)},
        {"state": "no tensor"},
        {"x": [1.0]},
    ],
    ids=["features", "batch", "float32 input", "float32 state", "no state", "no input"],
)
def test_what_is_wrong_is_an_error(wrong):
    stepped = Stepped()
    vars(stepped).update(wrong)
    for run in (stepped.cell, stepped.cell.stepper()):
        with torch.no_grad(), pytest.raises((TypeError, ValueError)):
            run(stepped.x, stepped.state)


def test_a_copy_has_weights_of_its_own():
    stepped = Stepped()
    stepped.cell = pickle.loads(pickle.dumps(copy.deepcopy(stepped.cell)))
    with torch.no_grad():
        stepped.cell.weight_h.mul_(2)
    stepped.assert_right()


def test_a_cell_moved_to_another_type_computes_in_it():
    stepped = Stepped()
    stepped.cell.float()
    stepped.x, stepped.state = stepped.x.float(), stepped.state.float()
    stepped.assert_right()


def test_dropout_and_gradients_are_not_forgotten():
    stepped = Stepped()
    output, _ = stepped.cell(stepped.x, stepped.state)
    assert output.requires_grad
    stepped.cell.dropout = 0.5
    with torch.no_grad():
        assert not torch.equal(stepped.cell(stepped.x, stepped.state)[0], stepped.cell(stepped.x, stepped.state)[0])
        stepped.cell.eval()
        assert torch.equal(stepped.cell(stepped.x, stepped.state)[0], stepped.cell(stepped.x, stepped.state)[0])


def test_under_autocast_transforms_and_dispatch_modes_nothing_goes_past_torch():
    stepped = Stepped(rru.RRUCell, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        assert stepped.cell(stepped.x, stepped.state)[0].dtype == torch.bfloat16
    with torch.no_grad():
        mapped = torch.vmap(lambda x: stepped.cell(x, stepped.state)[0])(stepped.x[None])
        torch.testing.assert_close(mapped[0], stepped.cell(stepped.x, stepped.state)[0])
        with FlopCounterMode(display=False) as counter:
            stepped.cell(stepped.x, stepped.state)
    assert counter.get_total_flops() > 0


def test_only_much_work_gets_another_thread(monkeypatch):
    seen = []
    real = stepper.function_of
    monkeypatch.setattr(
        stepper, "function_of", lambda *fields: seen.append(Loop(*fields).single_threaded) or real(*fields)
    )
    cell = rru.RRUCell(8, 200)
    with torch.no_grad():
        for batch in (1, 1000):
            cell(torch.randn(batch, 8))
    assert seen == [True, False]


@every_kind
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_step_by_step_is_the_layer(kind, num_layers, dtype):
    layer_class = next(rru.layer_class(name) for name in rru.cell_names() if rru.layer_class(name).cell_class is kind)
    layer = layer_class(3, 8, num_layers, dropout=0.5, dtype=dtype)
    x = torch.randn(6, 4, 3, dtype=dtype)
    wanted, last = layer.eval()(x)
    run, state = layer.train().stepper(), None
    outputs = []
    for step in x:
        output, state = run(step, state)
        outputs.append(output)
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(torch.stack(outputs), wanted.detach(), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(state, last, rtol=tolerance, atol=tolerance)
    assert not output.requires_grad
    assert run.native
    assert layer.training


def test_what_cannot_be_run_step_by_step():
    with pytest.raises(ValueError, match="bidirectional must be False to run step by step"):
        rru.GRU(3, 8, bidirectional=True).stepper()
    with pytest.raises(ValueError, match=r"state must have shape \(2, batch, hidden_size\), got \(1, 4, 8\)"):
        rru.GRU(3, 8, 2).stepper()(torch.zeros(4, 3), torch.zeros(1, 4, 8))
    with pytest.raises(ValueError, match="input must have input_size=3 features, got 5"):
        rru.GRU(3, 8).stepper()(torch.zeros(4, 5))


def test_a_stepper_checks_the_form_of_input_and_state():
    layer, x = rru.GRU(3, 8), torch.zeros(4, 3)
    state = layer.stepper()(x)[1]
    with pytest.raises(TypeError, match="state of GRUCell must be h, got 2 values"):
        layer.stepper()(x, (state, state))
    with pytest.raises(TypeError, match=r"state of LSTMCell must be h and c, got 1 value$"):
        rru.LSTM(3, 8).stepper()(x, state)
    no_batch = r"input must be a tensor \(batch, input_size\) if there is no state, got "
    with pytest.raises(ValueError, match=no_batch + r"shape \(3,\)"):
        layer.stepper()(x[0])
    with pytest.raises(ValueError, match=no_batch + "ndarray"):
        layer.stepper()(x.numpy())
    alone, both = layer.stepper()(x[0], state[:, 0])[0], layer.stepper()(x, state)[0]
    torch.testing.assert_close(alone, both[0])
