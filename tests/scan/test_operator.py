"""The operators that graphs see: registered as torch wants operators registered, and the same in every version."""

import pytest
import torch

from rru.scan.kernels import KERNELS
from tests.scan.case import Case, every_cell

both_directions = pytest.mark.parametrize("reverse", [False, True])


@every_cell
@both_directions
def test_torchs_own_check_of_the_reference_operator(variant, reverse):
    cell = variant.build().cells[0]
    torch.library.opcheck(
        torch.ops.rru.scan.default,
        (
            torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True),
            [part.requires_grad_() for part in cell.initial_state(2)],
            list(cell.weights().values()),
            torch.tensor([5, 3]),
            torch.tensor(7),
            cell.name,
            cell.options,
            0.5,
            reverse,
            None,
        ),
    )


@every_cell
@both_directions
@pytest.mark.parametrize("back_end", ["native", "fused"])
def test_torchs_own_check_of_a_kernels_operator(variant, reverse, back_end):
    case = Case(variant, m=3, n=4, steps=5, batch=2, lengths=torch.tensor([5, 3]), reverse=reverse, dropout=0.5)
    cell, kernel = case.cell, KERNELS[case.cell.kernel]
    weights = [weight.detach().contiguous().requires_grad_() for weight in kernel.weights(cell, cell.weights())]
    fixed = case.lengths, case.seed, cell.dropout, list(kernel.options.of(cell)), reverse, True
    end = (cell.options,) if back_end == "native" else (None, cell.options)
    operator = getattr(torch.ops.rru, f"{back_end}_forward").default
    torch.library.opcheck(operator, (cell.kernel, case.x, list(case.state), weights, *fixed, *end))


@every_cell
@pytest.mark.parametrize("back_end", ["native", "fused"])
def test_torchs_own_check_of_a_kernels_operator_with_resets(variant, back_end):
    case = Case(variant, m=3, n=4, steps=5, batch=2)
    cell, kernel = case.cell, KERNELS[case.cell.kernel]
    weights = [weight.detach().contiguous().requires_grad_() for weight in kernel.weights(cell, cell.weights())]
    state = [*case.state, *(torch.randn_like(part, requires_grad=True) for part in case.state)]
    fixed = None, None, 0.0, list(kernel.options.of(cell)), False, True
    end = (cell.options,) if back_end == "native" else (None, cell.options)
    operator = getattr(torch.ops.rru, f"{back_end}_forward").default
    torch.library.opcheck(operator, (cell.kernel, case.x, state, weights, *fixed, *end, torch.rand(5, 2) < 0.4))


FIRST = "str kernel, Tensor x, Tensor[] state, Tensor[] weights"
REST = "Tensor? lengths, Tensor? seed, float dropout, SymInt[] options, bool reverse"
OF_REFERENCE = (
    "Tensor inputs, Tensor[] state, Tensor[] weights, Tensor? lengths, Tensor? seed, str cell, str options, "
    "float dropout, bool reverse, ScalarType? autocast, Tensor? resets=None"
)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("scan", OF_REFERENCE),
        ("scan_backward", f"Tensor[] gradients, {OF_REFERENCE}"),
        (
            "native_forward",
            f'{FIRST}, {REST}, bool save, str cell_options="", Tensor? resets=None, *, ScalarType? autocast=None',
        ),
        (
            "native_backward",
            f"Tensor[] gradients, {FIRST}, Tensor[] saved, {REST}, ScalarType? autocast=None, Tensor? resets=None",
        ),
        (
            "fused_forward",
            f'{FIRST}, {REST}, bool save, ScalarType? autocast, str cell_options="", Tensor? resets=None',
        ),
        (
            "fused_backward",
            f"Tensor[] gradients, {FIRST}, Tensor[] saved, {REST}, ScalarType? autocast, Tensor? resets=None",
        ),
    ],
)
def test_signatures_stay_because_exported_programs_contain_them(name, arguments):
    """An argument may be added if it has a default: programs that were exported before have it nowhere."""
    schema = getattr(torch.ops.rru, name).default._schema
    assert str(schema) == f"rru::{name}({arguments}) -> Tensor[]"
