"""The native scans give what the reference gives: any sizes, any threads, whatever the memory they get holds."""

import subprocess
import sys

import pytest
import torch
import torch.utils.deterministic
from hypothesis import given, settings
from hypothesis import strategies as st

import rru
from rru.scan import native, reference
from rru.scan.kernels import KERNELS
from tests.variants import CELLS, VARIANTS

RAGGED = [5, 1, 3, 5, 2, 4, 1]
every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)
every_cell = pytest.mark.parametrize("variant", CELLS, ids=str)
whole_or_ragged = pytest.mark.parametrize("lengths", [None, torch.tensor(RAGGED)], ids=["whole", "ragged"])


class Case:
    """A cell with random weights, and all that a scan takes."""

    def __init__(
        self,
        variant,
        m=13,
        n=37,
        steps=5,
        batch=7,
        lengths=None,
        dropout=0.0,
        reverse=False,
        dtype=torch.float64,
        spread=0.3,
    ):
        self.cell = variant.build(m, n, dtype=dtype).cells[0]
        self.cell.dropout = dropout
        with torch.no_grad():
            for weight in self.cell.parameters():
                tame = dtype == torch.float32 and weight.dim() > 1
                weight.normal_(std=spread / weight.shape[1] ** 0.5 if tame else spread)
        self.x = torch.randn(steps, batch, m, dtype=dtype, requires_grad=True)
        self.state = tuple(torch.randn(batch, n, dtype=dtype, requires_grad=True) for _ in self.cell.state_names)
        self.lengths = lengths
        self.seed = torch.randint(-(2**63), 2**63 - 1, ()) if dropout else None
        self.reverse = reverse
        self.weighed = torch.randn(steps, batch, self.cell.output_size, dtype=dtype)

    def run(self, scan):
        """Outputs and last states."""
        outputs, last = scan(self.cell, self.x, self.state, self.lengths, self.seed, self.reverse)
        return [outputs, *last]

    def run_and_differentiate(self, scan):
        """Outputs, last states and, of a weighed sum of them, the gradients of inputs, states and all parameters."""
        outputs, *last = self.run(scan)
        total = (outputs * self.weighed).sum() + sum((part * part).sum() for part in last)
        gradients = torch.autograd.grad(total, [self.x, *self.state, *self.cell.parameters()])
        return [result.detach() for result in (outputs, *last, *gradients)]


@st.composite
def cases(draw, dtype=torch.float64, largest=(40, 50, 20, 8)):
    """All but the variant of a `Case`."""
    m, n, batch, steps = (draw(st.integers(1, most)) for most in largest)
    lengths = draw(st.none() | st.lists(st.integers(1, steps), min_size=batch, max_size=batch).map(torch.tensor))
    dropout, reverse = draw(st.sampled_from([0.0, 0.5, 0.9])), draw(st.booleans())
    torch.manual_seed(draw(st.integers(0, 1000)))
    sizes = {"m": m, "n": n, "batch": batch, "steps": steps}
    return sizes | {"lengths": lengths, "dropout": dropout, "reverse": reverse, "dtype": dtype}


def assert_near(actual, wanted, tolerance):
    """Equal up to `tolerance` times each tensor's largest entry, or times one where all are smaller."""
    for one, other in zip(actual, wanted, strict=True):
        largest = max(1.0, other.abs().max().item())
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * largest)


def assert_equal(actual, wanted):
    for one, other in zip(actual, wanted, strict=True):
        assert torch.equal(one, other)


@every_variant
@given(case=cases())
def test_outputs_states_and_all_gradients_are_the_references(variant, case):
    case = Case(variant, **case)
    assert_near(case.run_and_differentiate(native.scan), case.run_and_differentiate(reference.scan), 1e-9)


@every_variant
@settings(max_examples=10)
@given(case=cases(torch.float32, largest=(20, 20, 16, 4)))  # small: where ReLU bends, rounding decides on the gradient
def test_outputs_states_and_all_gradients_are_the_references_in_float32(variant, case):
    case = Case(variant, **case)
    assert_near(case.run_and_differentiate(native.scan), case.run_and_differentiate(reference.scan), 1e-4)


@every_variant
@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("steps", [2, 6])  # of three sequences: too few to pack the weights for, and enough
def test_wide_layers_are_the_references_too(variant, dropout, steps):  # wider than any block a product goes by
    case = Case(variant, m=30, n=300, steps=steps, batch=3, dropout=dropout, spread=0.1)
    assert_near(case.run_and_differentiate(native.scan), case.run_and_differentiate(reference.scan), 1e-9)


@every_variant
@given(case=cases())
def test_numbers_do_not_depend_on_whether_gradients_are_wanted(variant, case):
    case = Case(variant, **case)
    with torch.no_grad():
        alone = case.run(native.scan)
    assert_equal(alone, case.run(native.scan))


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


@pytest.fixture
def _threads_restored():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def assert_threads_do_not_matter(case, threads):
    results = []
    for number in threads:
        torch.set_num_threads(number)
        results.append(case.run_and_differentiate(native.scan))
    values = 1 + len(case.state)
    for other in results[1:]:
        assert_equal(other[:values], results[0][:values])
        assert_near(other[values:], results[0][values:], 1e-12)


@pytest.mark.usefixtures("_threads_restored")
@every_variant
@whole_or_ragged
@pytest.mark.parametrize(
    "dropout", [0.0, 0.3, 0.9]
)  # 0.3: the RRU's threads differ in whether zeros are worth skipping
def test_numbers_do_not_depend_on_the_number_of_threads(variant, lengths, dropout):
    assert_threads_do_not_matter(Case(variant, lengths=lengths, dropout=dropout), (1, 2, 9))  # 9: more than sequences


@pytest.mark.usefixtures("_threads_restored")
@every_variant
@pytest.mark.parametrize("dropout", [0.0, 0.9])
def test_numbers_do_not_depend_on_how_many_threads_share_the_weights(variant, dropout):  # of a wide layer, a few rows
    case = Case(variant, m=30, n=300, lengths=torch.tensor(RAGGED), dropout=dropout, spread=0.1)
    assert_threads_do_not_matter(case, (1, 2, 3))


@pytest.fixture
def fill_memory_with_nan():
    """Call it to have torch fill the memory it hands out with NaN, until the test is over."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory

    def begin():
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = True
        assert torch.empty(3).isnan().all()

    yield begin
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]


@every_variant
@whole_or_ragged
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.9])
def test_what_memory_held_before_does_not_matter(variant, lengths, reverse, dropout, fill_memory_with_nan):
    case = Case(variant, lengths=lengths, reverse=reverse, dropout=dropout)
    wanted = case.run_and_differentiate(native.scan)
    assert all(tensor.isfinite().all() for tensor in wanted)
    fill_memory_with_nan()
    assert_equal(case.run_and_differentiate(native.scan), wanted)
    with torch.no_grad():
        assert_equal(case.run(native.scan), wanted[: 1 + len(case.state)])


@every_variant
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.9])
def test_nan_in_padding_reaches_nothing(variant, reverse, dropout, fill_memory_with_nan):
    case = Case(variant, lengths=torch.tensor(RAGGED), reverse=reverse, dropout=dropout)
    wanted = case.run_and_differentiate(native.scan)
    padding = torch.arange(5).unsqueeze(1) >= case.lengths
    with torch.no_grad():
        case.x[padding] = float("nan")
    fill_memory_with_nan()
    spoiled = case.run_and_differentiate(native.scan)
    assert_equal(spoiled, wanted)
    assert all(tensor.isfinite().all() for tensor in spoiled)
    outputs, grad_x = spoiled[0], spoiled[1 + len(case.state)]
    assert not outputs[padding].any()
    assert not grad_x[padding].any()


@every_variant
@pytest.mark.parametrize("dropout", [0.0, 0.9])
@pytest.mark.parametrize("reverse", [False, True])
def test_nan_in_an_input_reaches_every_later_output_of_its_sequence_and_no_other(variant, dropout, reverse):
    case = Case(variant, lengths=torch.tensor(RAGGED), reverse=reverse, dropout=dropout)
    with torch.no_grad():
        case.x[1, 2, 5] = float("nan")
    outputs, *last = case.run(native.scan)
    reached = torch.zeros(5, 7, dtype=torch.bool)
    reached[slice(0, 2) if reverse else slice(1, RAGGED[2]), 2] = True
    assert torch.equal(outputs.isnan().all(2), reached)
    assert torch.equal(outputs.isnan().any(2), reached)
    for part in last:
        assert torch.equal(part.isnan().all(1), torch.arange(7) == 2)
        assert torch.equal(part.isnan().any(1), torch.arange(7) == 2)


@every_variant
@pytest.mark.parametrize("dropout", [0.0, 0.9])
def test_an_infinite_input_gives_what_the_reference_gives(variant, dropout):
    case = Case(variant, dropout=dropout)
    with torch.no_grad():
        case.x[1, 2, 5] = float("inf")
    for actual, wanted in zip(case.run(native.scan), case.run(reference.scan), strict=True):
        torch.testing.assert_close(actual, wanted, equal_nan=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["weight_c", "weight_o"])
def test_a_weight_that_is_no_number_shows_though_most_features_are_zero(name, value):
    case = Case(VARIANTS[0], dropout=0.9)
    with torch.no_grad():
        getattr(case.cell, name)[3, 0] = value
    for actual, wanted in zip(case.run(native.scan), case.run(reference.scan), strict=True):
        assert torch.equal(actual.isnan(), wanted.isnan())
    assert any(part.isnan().any() for part in case.run(native.scan))


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.layer is rru.RRU], ids=str)
def test_gradients_of_what_is_no_number_are_none_either(variant):
    case = Case(variant)
    with torch.no_grad():
        case.x[1, 2, 5] = float("nan")
    for scan in (native.scan, reference.scan):
        grad_x, *_ = case.run_and_differentiate(scan)[1 + len(case.state) :]
        assert grad_x[1, 2].isnan().all()
        assert grad_x[:, 3].isfinite().all()


THREADS_FAIL = """
import resource, torch, rru
layer = rru.LSTM(3, 5, backend="native")
x = torch.randn(64, 64, 3)
layer(x)  # whatever this takes, it has now
torch.set_num_threads(64)  # one sequence each, and a stack of megabytes for each thread
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, resource.RLIM_INFINITY))
for attempt in range(3):
    try:
        with torch.no_grad():
            layer(x)
    except MemoryError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
torch.set_num_threads(1)
print(layer(x)[0].isfinite().all())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be told to run out of memory")
def test_threads_that_cannot_be_started_are_an_error_and_harm_nothing():
    ran = subprocess.run([sys.executable, "-c", THREADS_FAIL], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    *errors, after = ran.stdout.splitlines()
    assert len(errors) == 3
    assert all("could not get the memory or the threads" in error for error in errors)
    assert after == "tensor(True)"


def is_denormal(x):
    return (x != 0) & (x.abs() < torch.finfo(x.dtype).tiny)


@pytest.mark.parametrize("wants_gradients", [False, True])
@pytest.mark.parametrize(
    "residual", [0.5, 0.9]
)  # 0.9 of a few of the smallest denormals rounds to as many: no way down
def test_states_that_decay_become_zero_and_never_denormal(residual, wants_gradients):
    cell = rru.RRUCell(3, 4, residual=residual)  # Z = 0: nothing but the decay
    lengths = torch.tensor([2000, *range(120, 160), *range(800, 1000, 10)])
    x, state = torch.randn(2000, len(lengths), 3), (torch.ones(len(lengths), 4),)
    with torch.set_grad_enabled(wants_gradients):
        outputs, (last,) = native.scan(cell, x, state, lengths, None, False)
    assert (last[0] == 0).all()
    assert not is_denormal(last).any()
    assert (last[1] != 0).all()
    assert outputs.isfinite().all()


@pytest.mark.parametrize("flushed", [False, True])
@every_cell
def test_torch_keeps_its_own_setting_for_denormals(variant, flushed):
    case = Case(variant, dtype=torch.float32)
    torch.set_flush_denormal(flushed)
    try:
        case.run_and_differentiate(native.scan)
        product = torch.tensor([1e-38]) * torch.tensor([1e-2])
    finally:
        torch.set_flush_denormal(False)
    assert (product.item() == 0) == flushed


@every_cell
@pytest.mark.parametrize("reverse", [False, True])
def test_torchs_own_check_of_an_operator(variant, reverse):
    case = Case(variant, m=3, n=4, steps=5, batch=2, lengths=torch.tensor([5, 3]), reverse=reverse, dropout=0.5)
    cell, kernel = case.cell, KERNELS[case.cell.kernel]
    weights = [weight.detach().contiguous().requires_grad_() for weight in kernel.weights(cell, cell.named_weights())]
    options = [int(option) for option in kernel.options(cell)]
    torch.library.opcheck(
        native.forward,
        (
            cell.kernel,
            case.x,
            list(case.state),
            weights,
            case.lengths,
            case.seed,
            cell.dropout,
            options,
            reverse,
            True,  # keep what the backward pass needs
        ),
    )


def test_an_infinite_middle_weight_shows_in_gradients_though_most_are_zero():
    case = Case(VARIANTS[2], m=20, n=150, steps=8, batch=8, dropout=0.95)  # several ReLU layers, n + p above 256
    with torch.no_grad():
        case.cell.weight_k2[3, 5] = float("inf")
    for actual, wanted in zip(
        case.run_and_differentiate(native.scan), case.run_and_differentiate(reference.scan), strict=True
    ):
        assert torch.equal(actual.isnan().any(), wanted.isnan().any())
