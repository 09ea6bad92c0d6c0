"""The native scan of wide RRUs computes what the reference computes, and is chosen where it is faster."""

import pytest
import torch

import rru
from rru.scan import ScanInputs, reference, thresholds
from rru.scan.arguments import ScanArguments, ScanSpec
from rru.scan.kernels import KERNELS
from rru.scan.native import run as native
from tests.scan.case import RAGGED, Case, assert_equal, assert_like_reference, assert_near, whole_or_ragged
from tests.scan.test_memory import fill_memory_with_nan  # noqa: F401
from tests.variants import Variant

PLAIN = Variant("rru", rru.RRU, {"expansion": 5.0, "backend": "reference"})
OTHER = Variant("rru-other", rru.RRU, {**PLAIN.options, "output_size": 9, "activate_outputs": True, "rezero": "scalar"})
UNSCALED = Variant("rru-unscaled", rru.RRU, {**PLAIN.options, "residual": "unscaled"})
every_dropout = pytest.mark.parametrize("dropout", [0.5, 0.75, 0.9])  # above 0.7, Eq. 1 only where dropout keeps it
every_option = pytest.mark.parametrize("variant", [PLAIN, OTHER, UNSCALED], ids=str)


@pytest.fixture(autouse=True)
def every_one(monkeypatch):
    """Make every RRU that can be wide, in a scan of at least 16 tokens."""
    monkeypatch.setattr(thresholds, "MAX_WIDE_EXTRA", 1e9)
    monkeypatch.setattr(thresholds, "MAX_WIDE_EXTRA_SELECTED", 1e9)
    monkeypatch.setattr(thresholds, "MIN_WIDE_WIDTH", 0)
    monkeypatch.setattr(thresholds, "MIN_PARALLEL_WORK", 0)  # so that several threads may run


@pytest.mark.usefixtures("each_instruction_set")
@every_option
@whole_or_ragged
@every_dropout
@pytest.mark.parametrize("reverse", [False, True])
def test_outputs_states_and_all_gradients_match_reference(variant, lengths, dropout, reverse, loops):
    assert_like_reference(Case(variant, lengths=lengths, dropout=dropout, reverse=reverse))
    assert loops == ["rru_wide_forward", "rru_wide_backward", "rru_wide_forward"]


@pytest.mark.usefixtures("each_instruction_set")
@every_dropout
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layers_wider_than_any_block_of_a_product_match_reference(dropout, dtype):
    case = Case(PLAIN, m=30, n=170, steps=6, batch=5, dropout=dropout, dtype=dtype, spread=0.1)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    assert_near(case.run_and_differentiate(native.scan), case.run_and_differentiate(reference.scan), tolerance)


@whole_or_ragged
@every_dropout
@pytest.mark.parametrize(("n", "threads"), [(37, (1, 2, 9)), (300, (1, 2, 3))])  # own sequences, and shared weights
def test_numbers_do_not_depend_on_the_number_of_threads(lengths, dropout, n, threads):
    case = Case(PLAIN, n=n, lengths=lengths, dropout=dropout, spread=0.1)
    results = []
    before = torch.get_num_threads()
    for number in threads:
        torch.set_num_threads(number)
        results.append(case.run_and_differentiate(native.scan))
    torch.set_num_threads(before)
    for other in results[1:]:
        assert_near(other, results[0], 1e-12)


def errors(case, scan, exact):
    """Return the largest error of each result, relative to the largest entry of the exact one."""
    return [
        ((one.double() - two).abs().max() / two.abs().max()).item()
        for one, two in zip(case.run_and_differentiate(scan), exact, strict=True)
    ]


def assert_as_exact_as_torch(case):
    parts = [*case.cell.parameters(), case.x, *case.state]
    narrow = [part.data for part in parts], case.weighed
    for part in parts:
        part.data = part.data.double()
    case.weighed = case.weighed.double()
    exact = case.run_and_differentiate(reference.scan)
    for part, data in zip(parts, narrow[0], strict=True):
        part.data = data
    case.weighed = narrow[1]
    for computed, torchs in zip(errors(case, native.scan, exact), errors(case, reference.scan, exact), strict=True):
        assert computed < 4 * torchs + 1e-6  # the order of sums alone makes a factor of two or three


@pytest.mark.usefixtures("each_instruction_set")
@every_dropout
def test_float32_is_as_exact_as_torch(dropout):
    torch.manual_seed(3)
    assert_as_exact_as_torch(Case(PLAIN, m=20, n=60, steps=8, batch=9, dropout=dropout, dtype=torch.float32))


@pytest.mark.usefixtures("each_instruction_set")
@every_dropout
def test_inputs_that_the_weights_cancel_are_as_exact_as_torch(dropout):
    torch.manual_seed(4)
    case = Case(PLAIN, m=20, n=60, steps=8, batch=9, dropout=dropout, dtype=torch.float32)
    with torch.no_grad():
        weight = case.cell.weight_x  # columns that almost cancel: x = (c, -c) gives a sum near zero
        weight[:, 10:] = weight[:, :10] * (1 + 1e-3 * torch.randn(weight.shape[0], 10))
        case.x[..., :10] *= 100
        case.x[..., 10:] = -case.x[..., :10]
        case.cell.weight_h *= 1e-2
    assert_as_exact_as_torch(case)


@pytest.mark.usefixtures("each_instruction_set")
@every_dropout
def test_a_row_of_zeros_gives_zeros(dropout):
    case = Case(PLAIN, dropout=dropout)
    with torch.no_grad():
        case.x.zero_(), case.state[0].zero_(), case.cell.bias_j.zero_()
    assert_near(case.run_and_differentiate(native.scan), case.run_and_differentiate(reference.scan), 1e-9)


@pytest.mark.usefixtures("each_instruction_set")
@every_dropout
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_input_that_is_no_number_matches_reference(dropout, value):
    case = Case(PLAIN, lengths=torch.tensor(RAGGED), dropout=dropout)
    with torch.no_grad():
        case.x[1, 2, 5] = value
    computed, wanted = (case.run_and_differentiate(scan) for scan in (native.scan, reference.scan))
    for actual, expected in zip(computed[:2], wanted[:2], strict=True):
        torch.testing.assert_close(actual, expected, equal_nan=True)
    assert computed[2][1, 2].isnan().all()  # the gradient of x, of this step and of other sequences
    assert computed[2][:, 3].isfinite().all()


@pytest.mark.usefixtures("each_instruction_set")
@every_dropout
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["weight_x", "weight_h", "bias_j", "weight_c", "weight_o"])
def test_a_weight_that_is_no_number_shows_though_most_features_are_zero(name, value, dropout):
    case = Case(PLAIN, dropout=dropout)
    with torch.no_grad():
        getattr(case.cell, name)[..., 3] = value
    computed, wanted = (case.run_and_differentiate(scan) for scan in (native.scan, reference.scan))
    for actual, expected in zip(computed[:2], wanted[:2], strict=True):
        assert torch.equal(actual.isnan(), expected.isnan())
    for actual, expected in zip(computed[2:], wanted[2:], strict=True):
        assert actual.isnan().any() or not expected.isnan().any()


@pytest.mark.usefixtures("each_instruction_set")
@every_dropout
@pytest.mark.parametrize(("ragged", "reverse"), [(False, False), (True, True)])
def test_what_memory_held_before_does_not_matter(dropout, ragged, reverse, fill_memory_with_nan):  # noqa: F811
    case = Case(PLAIN, lengths=torch.tensor(RAGGED) if ragged else None, reverse=reverse, dropout=dropout)
    wanted = case.run_and_differentiate(native.scan)
    fill_memory_with_nan()
    assert_equal(case.run_and_differentiate(native.scan), wanted)


@every_dropout
def test_an_input_that_needs_no_gradient_gets_none_and_the_weights_get_theirs(dropout):
    case = Case(PLAIN, dropout=dropout)
    wanted = case.run_and_differentiate(native.scan)[3:]
    case.x.requires_grad_(False)
    outputs, *last = case.run(native.scan)
    total = (outputs * case.weighed).sum() + sum((part * part).sum() for part in last)
    computed = torch.autograd.grad(total, [*case.state, *case.cell.parameters()])
    assert_equal(computed, wanted)


@every_dropout
def test_a_compiled_layer_computes_the_same(dropout, loops):
    layer = rru.RRU(13, 37, expansion=5.0, dropout=dropout, bidirectional=True, dtype=torch.float64, backend="native")
    x = torch.randn(8, 4, 13, dtype=torch.float64, requires_grad=True)
    results = []
    for run in (layer, torch.compile(layer, backend="aot_eager")):
        torch.manual_seed(1)
        outputs, _ = run(x)
        results.append([outputs, *torch.autograd.grad(outputs.square().sum(), [x, *layer.parameters()])])
    assert_near(results[1], results[0], 1e-12)
    assert set(loops) == {"rru_wide_forward", "rru_wide_backward"}


@every_dropout
@pytest.mark.parametrize("sizes", [{"steps": 0}, {"batch": 0}, {"steps": 3, "batch": 5}])
def test_scans_of_few_tokens_are_not_wide(dropout, sizes, loops):
    case = Case(PLAIN, dropout=dropout, **sizes)
    case.run_and_differentiate(native.scan)
    assert loops == ["rru_forward", "rru_backward"]


def a_cell(hidden_size=300, expansion=7.0, **options):
    return rru.RRU(20, hidden_size, expansion=expansion, **options).cells[0]


@pytest.mark.parametrize(
    ("changes", "tokens", "dropout", "wide"),
    [
        ({}, 3200, 0.5, True),
        ({}, 3200, 0.9, True),
        ({}, 3200, 0.3, False),  # most of d may be live
        ({}, 300, 0.5, False),  # products of the weights alone would cost too much
        ({"expansion": 2.0}, 2000, 0.5, False),  # the products with (m + n)^2 matrices would cost too much
        ({"expansion": 2.0}, 2000, 0.75, True),  # but dropout saves more
        ({"expansion": 1.2}, 100_000, 0.9, False),
        ({"output_size": 10, "hidden_size": 200}, 3200, 0.5, False),  # too small
        ({"relu_layers": 2}, 3200, 0.5, False),
        ({"normalize": False}, 3200, 0.5, False),
    ],
)
def test_counts_decide(changes, tokens, dropout, wide, monkeypatch):
    monkeypatch.undo()
    cell, x = a_cell(**changes), torch.empty(tokens, 1, 20, device="meta")
    state = [torch.empty(1, cell.hidden_size, device="meta")]
    kernel = KERNELS["rru"]
    spec = ScanSpec("rru", kernel.options.of(cell), dropout, False)
    arguments = ScanArguments(spec, x, state, [], None, torch.tensor(1))
    assert (kernel.native.best_form(arguments).name == "rru_wide") == wide
    assert kernel.native.best_form(arguments._replace(seed=None)).name == "rru"  # no dropout in this scan


def test_other_live_entries_than_the_forward_pass_saved_are_an_error():
    case = Case(PLAIN, dropout=0.5)
    outputs, _ = case.run(native.scan)
    saved = [tensor for tensor in outputs.grad_fn.saved_tensors if tensor is not None and tensor.dtype == torch.int32]
    saved[1].data.view(-1)[5] = -1
    with pytest.raises(RuntimeError, match="the live entries of d are not those of the forward pass"):
        outputs.sum().backward()


def test_the_default_device_of_new_tensors_does_not_matter():
    layer, x = rru.RRU(8, 128, expansion=8.0, dropout=0.5), torch.randn(10, 32, 8)
    with torch.device("meta"):
        assert layer(x)[0].isfinite().all()


@pytest.mark.parametrize(
    ("changes", "dropout", "wide"),
    [({}, 0.65, True), ({}, 0.5, False), ({"expansion": 2.0}, 0.75, False)],
)
def test_bfloat16_must_skip_more(changes, dropout, wide, monkeypatch):
    monkeypatch.undo()
    cell, x = a_cell(**changes), torch.empty(3200, 1, 20, device="meta")
    state = [torch.empty(1, cell.hidden_size, device="meta")]
    spec = ScanSpec("rru", KERNELS["rru"].options.of(cell), dropout, False, autocast=torch.bfloat16)
    arguments = ScanArguments(spec, x, state, [], None, torch.tensor(1))
    assert (KERNELS["rru"].native.best_form(arguments).name == "rru_wide") == wide


def test_under_autocast_it_is_the_form_in_float32(monkeypatch):
    monkeypatch.undo()
    cell = a_cell(dropout=0.7)
    x, seed = torch.randn(100, 32, 20), torch.tensor(5)
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            outputs, (last,) = native.scan(cell, ScanInputs(x, cell.initial_state(32), seed=seed))
        cell.zero_grad()
        last.sum().backward()
        results.append((last, cell.weight_h.grad.clone()))
        assert outputs.dtype == (torch.bfloat16 if enabled else torch.float32)
    for plain, rounded in zip(*results, strict=True):
        torch.testing.assert_close(rounded, plain)
