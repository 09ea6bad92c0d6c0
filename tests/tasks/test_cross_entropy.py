"""The head's loss over many classes: the same numbers as torch's own."""

import pytest
import torch
import torch.nn.functional as F

from rru.tasks.cross_entropy import MANY_CLASSES, ROWS, head_cross_entropy


@pytest.mark.parametrize("rows", [1, ROWS - 1, 2 * ROWS, 2 * ROWS + 3])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_loss_and_gradients_are_those_of_torch(rows, dtype, tolerance):
    head = torch.nn.Linear(5, MANY_CLASSES + 7).to(dtype)
    features = torch.randn(rows, 5, dtype=dtype, requires_grad=True)
    targets = torch.randint(0, MANY_CLASSES + 7, (rows,))
    given = (features, head.weight, head.bias)
    expected = F.cross_entropy(head(features), targets)
    loss = head_cross_entropy(head, features, targets)
    torch.testing.assert_close(loss, expected, rtol=tolerance, atol=0)
    ours, theirs = (torch.autograd.grad(3 * value, given) for value in (loss, expected))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=tolerance * float(other.abs().max()))


def test_no_gradient_is_computed_where_none_is_wanted():
    head, features = torch.nn.Linear(5, MANY_CLASSES), torch.randn(4, 5)
    with torch.no_grad():
        loss = head_cross_entropy(head, features, torch.arange(4))
    assert not loss.requires_grad
    assert loss == F.cross_entropy(head(features), torch.arange(4))
