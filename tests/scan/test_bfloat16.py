"""Products in bfloat16, under autocast and for bfloat16 weights: rounded factors, float32 sums, on every processor."""

import copy
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F

from rru.scan import reference, thresholds
from rru.scan.native import call, library, weight_gradients
from rru.scan.native import run as native
from tests.scan.case import Case, every_cell, every_variant, using

WITHOUT = ("avx512 without AVX512_BF16", "avx512 without AMX")  # by the number of the best that is left
with using(library.INSTRUCTION_SETS[-1] if library.BUILT else ""):
    HAS_DOTS = library.has_bfloat16_dots()
    KINDS = [*library.INSTRUCTION_SETS, *WITHOUT[: library.bfloat16_instructions()]]
every_kind = pytest.mark.parametrize("kind", KINDS)
with_dots = pytest.mark.parametrize("kind", [kind for kind in KINDS if HAS_DOTS and kind in ("avx512", WITHOUT[1])])
TIGHT = 1e-5  # where the same numbers are rounded, only the sums in float32 differ
ROUNDING = 2.0**-8


@contextmanager
def using_kind(kind):
    """The native scans use this instruction set, and no instructions for bfloat16 that `kind` excludes."""
    with using(kind.partition(" without ")[0]):
        before = library.use_bfloat16(WITHOUT.index(kind) if kind in WITHOUT else 2)
        try:
            yield
        finally:
            library.use_bfloat16(before)


def rounded(tensor):
    return tensor.bfloat16().to(tensor.dtype)


class RoundedLinear(torch.autograd.Function):
    """F.linear in float64 of factors rounded to bfloat16, forward and back."""

    @staticmethod
    def forward(ctx, x, weight, whole_input, round_gradient, factor, before):
        ctx.save_for_backward(x, weight, factor)
        ctx.options = whole_input, round_gradient, before
        return rounded(x) @ rounded(weight).T

    @staticmethod
    def backward(ctx, grad):
        x, weight, factor = ctx.saved_tensors
        whole_input, round_gradient, before = ctx.options
        grad_x = grad @ weight if whole_input else rounded(grad) @ rounded(weight)
        if before and factor is not None:
            grad_x = rounded(grad / factor) @ rounded(weight * factor.unsqueeze(1))
        left, right = grad.flatten(0, -2), x.flatten(0, -2)  # (tokens, out), (tokens, in)
        if not round_gradient:
            return grad_x, left.T @ right, None, None, None, None
        without = left if factor is None else left / factor  # W^c is multiplied by Z after the product over steps
        grad_weight = rounded(without).T @ rounded(right)
        return grad_x, grad_weight if factor is None else grad_weight * factor.unsqueeze(1), None, None, None, None


@contextmanager
def rounding_as_native(monkeypatch, cell, dots, narrow=False):
    """F.linear rounds its factors where the native scans round theirs. With `dots`, so do gradients of matrices.

    In the narrow form of the RRU, W^c is multiplied by Z before it is rounded, for the gradient of d.
    """

    def linear(x, weight, bias=None):
        # The gradient of x is one product in float32, after the loop; not so in the RRU and the Mogrifier.
        whole_input = weight is cell.weight_x and cell.name not in ("rru", "mogrifier")
        factor = cell.Z.detach() if weight is getattr(cell, "weight_c", None) else None
        product = RoundedLinear.apply(x, weight, whole_input, dots, factor, narrow)
        return product if bias is None else product + bias

    with monkeypatch.context() as patch:
        patch.setattr(F, "linear", linear)
        yield


def in_float64(case):
    """Return a copy of a float32 case."""
    wide = copy.deepcopy(case)
    wide.cell.double()
    wide.x = wide.x.detach().double().requires_grad_()
    wide.state = tuple(part.detach().double().requires_grad_() for part in wide.state)
    wide.weighed = wide.weighed.double()
    return wide


def run(case, scan):
    """Return outputs, last states and gradients by name."""
    names = case.cell.state_names
    keys = ["outputs", *names, "x", *(f"first {name}" for name in names), *dict(case.cell.named_parameters())]
    return dict(zip(keys, case.run_and_differentiate(scan), strict=True))


def errors(computed, wanted):
    return {name: ((computed[name].double() - wanted[name]).norm() / wanted[name].norm()).item() for name in wanted}


@every_variant
@every_kind
def test_all_results_are_those_of_rounded_factors_and_exact_sums(variant, kind, monkeypatch):
    monkeypatch.setattr(native, "product_dtype", lambda dtype: torch.bfloat16)
    monkeypatch.setattr(thresholds, "MIN_PARALLEL_WORK", 0)  # the gradients of small layers are in float32
    worst = []
    for seed in range(5):
        torch.manual_seed(seed)
        with using_kind(kind):
            dots = library.has_bfloat16_dots()
            dropout = 0.5 if dots else 0.0  # without dot products, dropout keeps products with d in float32
            case = Case(variant, m=5, n=19, steps=2, batch=9, dropout=dropout, dtype=torch.float32)
            wide = in_float64(case)
            computed = run(case, native.scan)
            with rounding_as_native(monkeypatch, wide.cell, dots):
                wanted = run(wide, reference.scan)
        difference = errors(computed, wanted)
        difference.pop("Z", None)  # a sum with the weights as they were before rounding
        assert max(difference.values()) < 8 * ROUNDING, difference
        worst.append(max(difference.values()))
    assert min(worst) < TIGHT, worst  # in some cases, float32 sums are rounded to the other neighbour


@every_cell
@every_kind
@pytest.mark.parametrize(("batch", "steps"), [(17, 2), (40, 4)])  # a tile and a row, three tiles; one sum, several
@pytest.mark.parametrize("lengths", [False, True], ids=["whole", "ragged"])
def test_layers_of_several_tiles_round_as_small_ones_do(variant, kind, batch, steps, lengths, monkeypatch, loops):
    monkeypatch.setattr(native, "product_dtype", lambda dtype: torch.bfloat16)
    monkeypatch.setattr(thresholds, "MIN_PARALLEL_WORK", 0)
    torch.manual_seed(0)
    ragged = torch.arange(batch) % steps + 1 if lengths else None
    case = Case(variant, m=21, n=70, steps=steps, batch=batch, lengths=ragged, dtype=torch.float32, spread=0.1)
    wide = in_float64(case)
    with using_kind(kind):
        computed = run(case, native.scan)
        narrow = "rru_narrow_backward" in loops
        assert narrow == (case.cell.name == "rru" and library.bfloat16_instructions() == library.AVX512_BF16)
        with rounding_as_native(monkeypatch, wide.cell, library.has_bfloat16_dots(), narrow):
            wanted = run(wide, reference.scan)
    difference = errors(computed, wanted)
    difference.pop("Z", None)
    assert max(difference.values()) < ROUNDING / 4, difference  # a few sums are rounded to the other neighbour


@every_cell
@every_kind
def test_numbers_hardly_depend_on_the_number_of_threads(variant, kind, monkeypatch):
    monkeypatch.setattr(thresholds, "MIN_PARALLEL_WORK", 0)
    case = Case(variant, m=30, n=300, batch=15, dtype=torch.float32, spread=0.1)
    results, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            with torch.autocast("cpu", torch.bfloat16), using_kind(kind):
                outputs, last = native.scan(case.cell, case.inputs)
            results.append((outputs, *last))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        for one, two in zip(other, results[0], strict=True):
            assert (one - two).norm() < ROUNDING / 2 * two.norm()  # the RRU's threads divide its sums


@every_variant
@every_kind
@pytest.mark.parametrize("dropout", [0.0, 0.8])
def test_under_autocast_no_result_is_farther_from_the_truth_than_the_references(variant, kind, dropout):
    torch.manual_seed(0)
    case = Case(variant, steps=4, batch=9, dropout=dropout, dtype=torch.float32)
    case.weighed = rounded(case.weighed)

    def autocast(scan):
        def narrow(*arguments):
            with torch.autocast("cpu", torch.bfloat16):
                outputs, last = scan(*arguments)
            assert outputs.dtype == (torch.bfloat16 if case.cell.name == "rru" else torch.float32)
            return outputs.float(), last

        return narrow

    truth = run(in_float64(case), reference.scan)
    references = errors(run(case, autocast(reference.scan)), truth)
    with using_kind(kind):
        computed = errors(run(case, autocast(native.scan)), truth)
    for name, error in computed.items():
        assert error <= 1.2 * references[name] + ROUNDING, name
    assert max(computed.values()) > ROUNDING / 8  # so products were in bfloat16


@every_cell
def test_bfloat16_weights_are_multiplied_in_bfloat16(variant, monkeypatch):
    numbers = []
    original = call.scan_numbers
    monkeypatch.setattr(call, "scan_numbers", lambda loop: numbers.append(original(loop)) or numbers[-1])
    call.function_of.cache_clear()
    layer = variant.layer(3, 4, backend="native").bfloat16()
    layer(torch.randn(5, 2, 3, dtype=torch.bfloat16))[0].sum().backward()
    layer.float()(torch.randn(5, 2, 3))[0].sum().backward()
    assert [given["bfloat16"] for given in numbers] == [1, 1, 0, 0]


@with_dots
@pytest.mark.parametrize("tokens", [1, 2, 77, 2500])  # 2,500: more than one block
@pytest.mark.parametrize(
    ("rows", "columns", "split"), [(1, 1, 0), (8, 48, 48), (13, 50, 7), (30, 131, 100), (70, 530, 100)]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_matrix_gradient_is_the_product_over_all_tokens(kind, tokens, rows, columns, split, threads):
    torch.manual_seed(0)
    gradient, values = torch.randn(tokens, 1, rows), torch.randn(tokens, 1, columns)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with using_kind(kind):
            left, right = weight_gradients.by_input_and_state(gradient, values, split, True)
    finally:
        torch.set_num_threads(before)
    wanted = rounded(gradient[:, 0]).double().T @ rounded(values[:, 0]).double()
    assert left.shape == (rows, split)
    assert (torch.cat([left, right], 1) - wanted).abs().max() < 1e-6 * tokens**0.5 * wanted.abs().max().clamp(1)


@with_dots
@pytest.mark.parametrize("tokens", [3, 2500])
def test_a_matrix_gradient_leaves_out_tokens_without_a_gradient(kind, tokens):
    torch.manual_seed(0)
    gradient, values = torch.randn(tokens, 1, 30), torch.randn(tokens, 1, 131)
    gradient[torch.rand(tokens) < 0.6] = 0
    wanted = rounded(gradient[:, 0]).double().T @ rounded(values[:, 0]).double()
    with using_kind(kind):
        both = weight_gradients.over_steps(gradient, values, True)
        nothing = weight_gradients.over_steps(torch.zeros_like(gradient), values, True)
    assert (both - wanted).abs().max() < 1e-6 * tokens**0.5 * wanted.abs().max().clamp(1)
    assert torch.equal(nothing, torch.zeros(30, 131))


@every_kind
def test_infinity_and_nan_stay_what_they_are(kind):
    case = Case(every_cell.args[1][0], steps=2, batch=9, dtype=torch.float32)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), using_kind(kind):
        case.x[0, 3, 0], case.x[1, 5, 1] = float("inf"), float("nan")
        outputs, _ = native.scan(case.cell, case.inputs)
    bad = outputs.isnan().all(-1)
    assert torch.equal(bad.nonzero(), torch.tensor([[0, 3], [1, 3], [1, 5]]))
