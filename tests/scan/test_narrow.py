"""The native scan of narrow RRUs computes what the reference computes, and is chosen where it is faster."""

import pytest
import torch

import rru
from rru.scan import reference, thresholds
from rru.scan.arguments import ScanArguments, ScanSpec
from rru.scan.kernels import KERNELS
from rru.scan.native import library
from rru.scan.native import run as native
from tests.scan.case import RAGGED, Case, assert_equal, assert_like_reference, assert_near, whole_or_ragged
from tests.scan.test_memory import fill_memory_with_nan  # noqa: F401
from tests.variants import Variant

PLAIN = Variant("rru", rru.RRU, {"backend": "reference"})
OTHER = Variant("rru-other", rru.RRU, {**PLAIN.options, "output_size": 9, "rezero": "scalar", "normalize": False})
UNSCALED = Variant("rru-unscaled", rru.RRU, {**PLAIN.options, "residual": "unscaled", "expansion": 1.0})
every_option = pytest.mark.parametrize("variant", [PLAIN, OTHER, UNSCALED], ids=str)
every_dropout = pytest.mark.parametrize("dropout", [0.0, 0.4])


@pytest.fixture(autouse=True)
def every_one(monkeypatch):
    """Make every RRU that can be narrow."""
    monkeypatch.setattr(thresholds, "MIN_PARALLEL_WORK", 0)
    monkeypatch.setattr(thresholds, "MIN_TEAM_ROWS", 1)


@pytest.mark.usefixtures("each_instruction_set")
@every_option
@whole_or_ragged
@every_dropout
@pytest.mark.parametrize("reverse", [False, True])
def test_outputs_states_and_all_gradients_match_reference(variant, lengths, dropout, reverse, loops):
    assert_like_reference(Case(variant, lengths=lengths, dropout=dropout, reverse=reverse))
    assert loops == ["rru_forward", "rru_narrow_backward", "rru_forward"]


@pytest.mark.usefixtures("each_instruction_set")
@pytest.mark.parametrize("batch", [63, 64, 65, 129, 200])  # 64 run over time together
@pytest.mark.parametrize("ragged", [False, True])
def test_any_number_of_sequences_matches_reference(batch, ragged):
    lengths = torch.arange(batch) * 5 % 7 % 4 + 1 if ragged else None
    case = Case(PLAIN, m=1, n=10, steps=4, batch=batch, lengths=lengths, dropout=0.3)
    assert_near(case.run_and_differentiate(native.scan), case.run_and_differentiate(reference.scan), 1e-9)


@pytest.mark.usefixtures("each_instruction_set")
def test_float32_matches_reference():
    torch.manual_seed(5)
    case = Case(PLAIN, m=20, n=60, steps=8, batch=9, dtype=torch.float32, spread=0.1)
    assert_near(case.run_and_differentiate(native.scan), case.run_and_differentiate(reference.scan), 1e-4)


@pytest.mark.usefixtures("each_instruction_set")
@whole_or_ragged
def test_an_input_without_gradient_gives_the_same_gradients_of_the_weights(lengths):
    case = Case(PLAIN, lengths=lengths)
    *_, expected = case.run_and_differentiate(native.scan)
    case.x.requires_grad_(False)
    outputs, last = native.scan(case.cell, case.inputs)
    total = (outputs * case.weighed).sum() + (last[0] * last[0]).sum()
    assert_near([torch.autograd.grad(total, [*case.cell.parameters()])[-1]], [expected], 1e-12)


@whole_or_ragged
@every_dropout
def test_numbers_do_not_depend_on_the_number_of_threads(lengths, dropout):
    case = Case(PLAIN, lengths=lengths, dropout=dropout)
    results = []
    before = torch.get_num_threads()
    for number in (1, 2, 9):
        torch.set_num_threads(number)
        results.append(case.run_and_differentiate(native.scan))
    torch.set_num_threads(before)
    for other in results[1:]:
        assert_near(other, results[0], 1e-12)


@pytest.mark.usefixtures("each_instruction_set")
def test_the_same_call_gives_the_same_bits():
    case = Case(PLAIN, batch=70, dropout=0.4, dtype=torch.float32)
    first = case.run_and_differentiate(native.scan)
    Case(PLAIN, n=20).run_and_differentiate(native.scan)
    assert_equal(case.run_and_differentiate(native.scan), first)


@pytest.mark.usefixtures("each_instruction_set")
@every_dropout
def test_everything_that_is_used_is_written(dropout, fill_memory_with_nan):  # noqa: F811
    case = Case(PLAIN, lengths=torch.tensor(RAGGED), dropout=dropout)
    fill_memory_with_nan()
    assert_near(case.run_and_differentiate(native.scan), case.run_and_differentiate(reference.scan), 1e-9)


@pytest.mark.parametrize(
    ("changes", "batch", "form"),
    [
        ({}, 64, "rru_narrow"),
        ({}, 4, "rru"),  # too few rows
        ({"hidden_size": 400}, 64, "rru"),  # too many weights
        ({"output_size": 250}, 64, "rru"),  # zeros are skipped
        ({"relu_layers": 2}, 64, "rru"),
        ({"activate_outputs": True}, 64, "rru"),
    ],
)
def test_counts_decide(changes, batch, form, monkeypatch):
    monkeypatch.undo()
    cell = rru.RRU(20, **{"hidden_size": 64, **changes}).cells[0]
    x, state = torch.empty(100, batch, 20, device="meta"), [torch.empty(batch, cell.hidden_size, device="meta")]
    kernel = KERNELS["rru"]
    spec = ScanSpec("rru", kernel.options.of(cell), 0.0, False)
    arguments = ScanArguments(spec, x, state, [], None, None)
    assert kernel.native.backward_form(arguments).name == form
    assert kernel.native.backward_form(arguments._replace(x=x[:1])).name == "rru"  # a small scan
    rounded = arguments._replace(spec=spec._replace(autocast=torch.bfloat16))
    has_dots = library.bfloat16_instructions() == library.AVX512_BF16  # which also add up the gradients
    assert kernel.native.backward_form(rounded).name == (form if has_dots else "rru")


def test_an_exported_graph_takes_batches_of_any_size(monkeypatch):
    monkeypatch.undo()
    layer = rru.RRU(20, 64, backend="native").eval()
    steps, batch = torch.export.Dim("steps", min=2), torch.export.Dim("batch", min=2)
    graph = torch.export.export(layer, (torch.randn(100, 64, 20),), dynamic_shapes=({0: steps, 1: batch},)).module()
    for shape in ((100, 64, 20), (3, 2, 20)):
        x = torch.randn(shape)
        torch.testing.assert_close(graph(x)[0], layer(x)[0])
