"""A cell with all arguments of a scan, on which scans are compared."""

import pytest
import torch
from hypothesis import strategies as st

from rru.scan import reference
from rru.scan.native import run as native
from rru.scan.native.library import using as using
from rru.scan.reference import ScanInputs
from tests.variants import CELLS, VARIANTS

RAGGED = [5, 1, 3, 5, 2, 4, 1]
every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)
every_cell = pytest.mark.parametrize("variant", CELLS, ids=str)
whole_or_ragged = pytest.mark.parametrize("lengths", [None, torch.tensor(RAGGED)], ids=["whole", "ragged"])


class Case:
    """A cell with random weights, and all arguments of a scan."""

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

    @property
    def inputs(self):
        return ScanInputs(self.x, self.state, self.lengths, self.seed, self.reverse)

    def run(self, scan):
        """Outputs and last states."""
        outputs, last = scan(self.cell, self.inputs)
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
    for tensor, expected in zip(actual, wanted, strict=True):
        largest = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(tensor, expected, rtol=0, atol=tolerance * largest)


def assert_like_reference(case):
    """Check outputs, states and all gradients of a native scan, and that without gradients it gives the same."""
    computed = case.run_and_differentiate(native.scan)
    assert_near(computed, case.run_and_differentiate(reference.scan), 1e-9)
    with torch.no_grad():  # nothing is saved
        assert_equal(case.run(native.scan), computed[:2])


def assert_equal(actual, wanted):
    for tensor, expected in zip(actual, wanted, strict=True):
        assert torch.equal(tensor, expected)
