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


@pytest.mark.parametrize("classes", [10, MANY_CLASSES + 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_under_autocast_the_loss_is_float32_and_only_products_are_rounded(classes, dtype):
    head = torch.nn.Linear(64, classes)
    given = torch.randn(300, 64).to(dtype).requires_grad_()
    features, targets = given.detach().float().requires_grad_(), torch.randint(0, classes, (300,))
    with torch.autocast("cpu", torch.bfloat16):
        loss = head_cross_entropy(head, given, targets)
    expected = F.cross_entropy(head(features), targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=1e-3, atol=0)
    ours = torch.autograd.grad(loss, (given, head.weight, head.bias))
    theirs = torch.autograd.grad(expected, (features, head.weight, head.bias))
    assert [mine.dtype for mine in ours] == [dtype, torch.float32, torch.float32]
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.float(), other, rtol=0, atol=0.02 * float(other.abs().max()))
