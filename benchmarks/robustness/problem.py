"""What a problem is: batches to train on, fixed batches to score with, a model and a loss."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from benchmarks.robustness.models import BuildModel

Batch = tuple[Tensor, Tensor]
"""Inputs and targets."""


@dataclass(frozen=True)
class Loss:
    """A loss, and what the best constant prediction gets: the chance level.

    **Arguments:**

    - `name`: its name and unit.
    - `of`: computes it from predictions and targets. Outputs at steps before the first target are not scored.
    - `chance`: computes it for the best constant, from all targets of the validation data.
    """

    name: str
    of: Callable[[Tensor, Tensor], Tensor]
    chance: Callable[[Tensor], float]


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    logits = logits[-len(targets) :]
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def _label_entropy(targets: Tensor) -> float:
    frequencies = targets.flatten().bincount().double() / targets.numel()
    return torch.special.entr(frequencies).sum().item()


def _keys_loss(logits: Tensor, keys: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, keys, reduction="none").sum(-1).mean()


def _keys_entropy(keys: Tensor) -> float:
    pressed = keys.flatten(0, -2).double().mean(0)  # of each key
    return (torch.special.entr(pressed) + torch.special.entr(1 - pressed)).sum().item()


def _squared_error(predictions: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(predictions, targets)


def _absolute_error(predictions: Tensor, targets: Tensor) -> Tensor:
    return F.l1_loss(predictions, targets)


def _deviation(targets: Tensor) -> float:
    rows = targets.flatten(0, -2)  # one constant for each output
    return (rows - rows.median(0).values).abs().mean().item()


CROSS_ENTROPY = Loss("cross-entropy, nats", _cross_entropy, _label_entropy)
KEYS = Loss("negative log-likelihood of the 88 keys, nats", _keys_loss, _keys_entropy)
SQUARED = Loss("mean squared error", _squared_error, lambda targets: targets.var(correction=0).item())
ABSOLUTE = Loss("mean absolute error", _absolute_error, _deviation)


@dataclass(frozen=True)
class Source:
    """The data of a problem.

    **Arguments:**

    - `batch`: draws a batch of the given size.
    - `valid`: fixed batches that are never trained on. The score is the mean of their losses, so they have equal sizes.
    """

    batch: Callable[[int, Generator], Batch]
    valid: list[Batch]


@dataclass(frozen=True)
class Problem:
    """A problem.

    **Arguments:**

    - `name`, `about`: its name, and what is predicted from what.
    - `open_source`: loads or prepares the data; raises FileNotFoundError or `rru.data.MissingData` if it is absent.
    - `model`: builds the network.
    - `loss`: what is trained and scored.
    - `budget`: the parameters of the whole network.
    - `steps`, `batch_size`: how long to train, and on how many sequences at a time.
    - `layers`: the numbers of layers to try.
    """

    name: str
    about: str
    open_source: Callable[[], Source]
    model: BuildModel
    loss: Loss
    budget: int
    steps: int
    batch_size: int = 32
    layers: tuple[int, ...] = (1, 2)

    @property
    def source(self) -> Source:
        """The data, opened once in a process."""
        return _opened(self.open_source)

    @property
    def chance(self) -> float:
        """The loss of the best constant prediction on the validation data."""
        return self.loss.chance(torch.cat([targets for _, targets in self.source.valid]))

    @torch.no_grad()
    def validate(self, model: nn.Module) -> float:
        """Return the loss on the validation data."""
        losses = [self.loss.of(model(inputs), targets).item() for inputs, targets in self.source.valid]
        return sum(losses) / len(losses)


@cache
def _opened(open_source: Callable[[], Source]) -> Source:
    return open_source()


def fresh(draw: Callable[[int, Generator], Batch], valid_batches: int = 2, size: int = 250) -> Source:
    """Return a source that draws new sequences each time, and a fixed validation set."""
    generator = torch.Generator().manual_seed(987_654_321)
    return Source(draw, [draw(size, generator) for _ in range(valid_batches)])


def stored(inputs: Tensor, targets: Tensor, valid_inputs: Tensor, valid_targets: Tensor, parts: int = 4) -> Source:
    """Return a source of stored sequences with one target each: inputs (T, N, ...), targets (N, ...)."""

    def batch(size: int, generator: Generator) -> Batch:
        chosen = torch.randint(len(targets), (size,), generator=generator)
        return inputs[:, chosen], targets[chosen]

    return Source(batch, list(zip(valid_inputs.chunk(parts, 1), valid_targets.chunk(parts), strict=True)))
