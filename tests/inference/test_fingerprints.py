"""What tells one training of a user's own model from another."""

import functools
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from rru.inference.fingerprints import data_of, fingerprint, function_name

X, Y = torch.arange(60.0).reshape(20, 3), torch.arange(20)


class Items(Dataset):
    """Pairs that are made when asked for."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 20

    def __getitem__(self, place):
        return self.make(place)


class Numbers(IterableDataset):
    """Numbers in an order, without indices."""

    def __init__(self, first=0, shuffled=None):
        self.first, self.shuffled = first, shuffled

    def __iter__(self):
        numbers = list(range(self.first, self.first + 20))
        if self.shuffled is not None:
            self.shuffled.shuffle(numbers)
        return iter([(torch.tensor([float(number)]), number) for number in numbers])

    def __len__(self):
        return 20


def pairs(targets=Y):
    return TensorDataset(X, targets)


def test_the_order_of_a_loader_does_not_count():
    assert data_of(DataLoader(pairs(), 4, shuffle=True)) == data_of(DataLoader(pairs(), 4))
    plain = Items(lambda place: (X[place], Y[place]))
    assert data_of(DataLoader(plain, 4, shuffle=True)) == data_of(DataLoader(plain, 4))


@pytest.mark.parametrize("of_tensors", [True, False])
def test_a_single_other_label_counts(of_tensors):
    other = Y.clone()
    other[7] = 0
    sets = [pairs(y) if of_tensors else Items(lambda place, y=y: (X[place], y[place])) for y in (Y, other)]
    first, second = (data_of(DataLoader(each, 4)) for each in sets)
    assert {name for name in first if first[name] != second[name]} == {"content"}


def test_batches_items_and_shapes_are_named():
    facts = data_of(DataLoader(pairs(), 4))
    assert facts["batches"] == 5
    assert facts["items"] == 20
    assert facts["shapes"] == "((3,) of float32, () of int64)"
    assert data_of(DataLoader(pairs(), 10))["batches"] == 2


def test_a_list_of_batches_is_compared_by_content():
    batches = [(X[:10], Y[:10]), (X[10:], Y[10:])]
    assert data_of(batches) == data_of(list(batches))
    assert data_of(batches) != data_of([batches[0], (X[10:], Y[:10])])


def test_random_items_are_compared_with_the_same_seeds():
    for draw in (lambda: torch.rand(3), lambda: np.random.rand(3), lambda: random.random()):
        noisy = [data_of(DataLoader(Items(lambda place: (draw(), place)), 4)) for _ in range(2)]  # noqa: B023
        assert noisy[0] == noisy[1]
        assert "content" in noisy[0]


def test_items_that_differ_every_time_are_compared_by_shape():
    own = np.random.default_rng(0)
    facts = data_of(DataLoader(Items(lambda place: (torch.from_numpy(own.random(3)), place)), 4))
    assert "content" not in facts
    assert facts["shapes"] == "((3,) of float64, int)"


def test_data_without_indices_is_compared_by_its_first_batch():
    assert data_of(DataLoader(Numbers(), 4)) == data_of(DataLoader(Numbers(), 4))
    assert data_of(DataLoader(Numbers(), 4)) != data_of(DataLoader(Numbers(1), 4))
    shuffled = [data_of(DataLoader(Numbers(shuffled=random.Random(seed)), 4)) for seed in range(2)]
    assert shuffled[0] == shuffled[1]
    assert shuffled[0]["shapes"] == "((4, 1) of float32, (4,) of int64)"


def test_random_generators_are_left_as_they_were():
    generator = torch.Generator().manual_seed(3)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy(), generator.get_state()
    data_of(
        DataLoader(Items(lambda place: (torch.rand(3), random.random() + np.random.rand())), 4, generator=generator)
    )
    data_of(DataLoader(Numbers(), 4, generator=generator))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert (np.random.get_state()[1] == before[2]).all()
    assert torch.equal(generator.get_state(), before[3])


def weighted(weight):
    return lambda outputs, targets: weight * F.mse_loss(outputs, targets)


def test_losses_are_known_by_name_options_and_what_they_call():
    assert function_name(F.mse_loss) == "torch.nn.functional.mse_loss"
    assert function_name(nn.CrossEntropyLoss()) != function_name(nn.CrossEntropyLoss(label_smoothing=0.1))
    assert function_name(nn.CrossEntropyLoss(torch.ones(3))) != function_name(nn.CrossEntropyLoss(torch.zeros(3)))
    smooth = functools.partial(F.cross_entropy, label_smoothing=0.1)
    assert function_name(smooth) == "torch.nn.functional.cross_entropy with label_smoothing=0.1"
    assert function_name(lambda o, t: F.mse_loss(o, t)) != function_name(lambda o, t: F.l1_loss(o, t))
    assert function_name(lambda o, t: 2 * F.mse_loss(o, t)) != function_name(lambda o, t: 3 * F.mse_loss(o, t))
    assert function_name(weighted(2)) == function_name(weighted(2)) != function_name(weighted(3))


def test_a_docstring_of_a_loss_does_not_count():
    def documented(outputs, targets):
        """Measure the distance."""
        return F.mse_loss(outputs, targets)

    names = [function_name(documented)]
    documented.__code__ = documented.__code__.replace(
        co_consts=tuple(
            "Other words." if each == documented.__doc__ else each for each in documented.__code__.co_consts
        )
    )
    documented.__doc__ = "Other words."
    assert names == [function_name(documented)]


def test_initial_weights_do_not_count_but_shapes_and_options_do():
    def facts(model):
        return fingerprint(model, {"loss": F.mse_loss, "metric": None}, {})

    assert facts(nn.Linear(3, 2)) == facts(nn.Linear(3, 2))
    assert facts(nn.Linear(3, 2))["weights"] != facts(nn.Linear(3, 4))["weights"]
    assert facts(nn.Dropout(0.1))["modules"] != facts(nn.Dropout(0.2))["modules"]
