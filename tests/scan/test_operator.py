"""The operator that graphs see: registered as torch wants operators registered."""

import pytest
import torch

from rru.scan.operator import scan
from tests.variants import CELLS

every_cell = pytest.mark.parametrize("variant", CELLS, ids=str)


@every_cell
@pytest.mark.parametrize("reverse", [False, True])
def test_torchs_own_check_of_an_operator(variant, reverse):
    cell = variant.build().cells[0]
    torch.library.opcheck(
        scan,
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
