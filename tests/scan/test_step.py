"""One step of a cell, and the next like it, for which nothing is checked that was checked before."""

import copy

import pytest
import torch
from torch.nn.utils import prune
from torch.utils.flop_counter import FlopCounterMode

import rru
from rru import scan
from rru.scan import native, reference
from tests.scan.case import assert_near, every_cell, every_variant


@every_variant
@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("n", [5, 300])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
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


ONE_STATE = [rru.RRUCell, rru.GRUCell]
every_one_state = pytest.mark.parametrize("kind", ONE_STATE, ids=lambda kind: kind.__name__)


class Stepped:
    """A cell that has done a step without gradients, and what the next is to be given."""

    def __init__(self, kind, dtype=torch.float64, **options):
        self.cell = kind(5, 7, dtype=dtype, **options)
        with torch.no_grad():
            for weight in self.cell.parameters():
                weight.normal_(std=0.5)
        self.x, self.state = torch.randn(2, 5, dtype=dtype), torch.randn(2, 7, dtype=dtype)
        with torch.no_grad():
            self.cell(self.x, self.state)

    def again(self):
        """What a step is without any check, None where there must be one."""
        with torch.no_grad():
            return scan.step_again(self.cell, self.x, self.state)

    def assert_right(self):
        with torch.no_grad():
            output, state = self.cell(self.x, self.state)
            wanted, (after,) = reference.step(self.cell, self.x, (self.state,), None)
        assert_near([output, state], [wanted, after], 1e-12 if output.dtype == torch.float64 else 1e-5)


@every_one_state
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_like_the_last_is_done_without_checks_on_whatever_it_is_given(kind, dtype):
    stepped = Stepped(kind, dtype)
    for _ in range(3):
        stepped.x, stepped.state = torch.randn_like(stepped.x), torch.randn_like(stepped.state)
        assert stepped.again() is not None
        stepped.assert_right()


@every_one_state
def test_weights_that_were_trained_further_count(kind):
    stepped = Stepped(kind)
    before = stepped.again()
    with torch.no_grad():
        for weight in stepped.cell.parameters():
            weight.add_(0.1)
    assert not torch.equal(stepped.again()[0], before[0])
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


@pytest.mark.parametrize("change", [replaced, moved, turned, parametrized, pruned, pruned_at_the_end])
def test_weights_that_became_others_are_checked_and_used(change):
    stepped = Stepped(rru.RRUCell)
    change(stepped.cell)
    assert stepped.again() is None
    stepped.assert_right()


def test_a_weight_that_shrank_where_it_lies_is_an_error_and_not_read_beyond_its_end():
    stepped = Stepped(rru.RRUCell)
    stepped.cell.weight_h.data = stepped.cell.weight_h.data[:3]
    with torch.no_grad(), pytest.raises(ValueError, match="weight_h must have shape"):
        stepped.cell(stepped.x, stepped.state)


@pytest.mark.parametrize(
    "give",
    [
        lambda s: {"x": torch.randn(3, 5).double(), "state": torch.randn(3, 7).double()},
        lambda s: {"x": torch.randn(5, 2).double().T},
        lambda s: {"state": torch.randn(7, 2).double().T},
        lambda s: {"x": torch._neg_view(s.x)},
        lambda s: {"state": torch._neg_view(s.state)},
    ],
    ids=["other batch", "turned input", "turned state", "negated input", "negated state"],
)
def test_inputs_unlike_the_last_are_looked_at(give):
    stepped = Stepped(rru.RRUCell)
    vars(stepped).update(give(stepped))
    assert stepped.again() is None
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
def test_what_is_wrong_is_an_error_after_a_right_step_too(wrong):
    stepped = Stepped(rru.RRUCell)
    vars(stepped).update(wrong)
    with torch.no_grad(), pytest.raises((TypeError, ValueError)):
        stepped.cell(stepped.x, stepped.state)


def test_options_that_were_changed_count():
    stepped = Stepped(rru.RRUCell)
    stepped.cell.normalize = False
    assert stepped.again() is None
    stepped.assert_right()


def test_a_copy_has_weights_of_its_own():
    stepped = Stepped(rru.RRUCell)
    stepped.cell = copy.deepcopy(stepped.cell)
    with torch.no_grad():
        stepped.cell.weight_h.mul_(2)
    stepped.assert_right()


def test_a_cell_moved_to_another_type_computes_in_it():
    stepped = Stepped(rru.RRUCell)
    stepped.cell.float()
    stepped.x, stepped.state = stepped.x.float(), stepped.state.float()
    stepped.assert_right()


def test_dropout_and_gradients_are_not_forgotten():
    stepped = Stepped(rru.RRUCell)
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
    real = native.Function
    monkeypatch.setattr(native, "Function", lambda *given, alone: seen.append(alone) or real(*given, alone=alone))
    cell = rru.RRUCell(8, 200)
    with torch.no_grad():
        for batch in (1, 1000):
            cell(torch.randn(batch, 8))
    assert seen == [True, False]
