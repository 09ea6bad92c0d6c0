"""The mutable state of training, which checkpoints save and restore."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict

import torch
from torch import nn

from rru.tasks import LayerState, map_state
from rru.training.average import WeightAverage
from rru.training.checkpoint import Checkpoint
from rru.training.errors import RunError
from rru.training.progress import Progress
from rru.training.rates import scaled_rates


class Session:
    """Model, optimiser, counters, random generators, and the recurrent state carried from batch to batch.

    It has two random generators. Its own draws a seed for the batches of each epoch; torch's global one, which dropout
    uses, is seeded from it.

    **Arguments:** `model`; `optimiser`: over the model's parameters; `seed`: the random seed of training; `ema`: the
    decay of the average of weights, 0 for none.
    """

    def __init__(self, model: nn.Module, optimiser: torch.optim.Optimizer, seed: int, ema: float = 0.0) -> None:
        self.model = model
        self.optimiser = optimiser
        self.device = next(model.parameters()).device
        self.progress = Progress()
        self.carried: LayerState = None
        self._average = WeightAverage(model, ema) if ema else None
        self._generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(self._draw())
        self._epoch_start = self._generator.get_state()

    def epoch_generator(self) -> torch.Generator:
        """Return a generator for the current epoch's batches, with the same seed on every call."""
        self._generator.set_state(self._epoch_start)
        return torch.Generator().manual_seed(self._draw())

    def step(self, rate_share: float = 1.0) -> None:
        """Update the weights from their gradients, with this share of the learning rate; then their average."""
        with scaled_rates(self.optimiser, rate_share):
            self.optimiser.step()
        if self._average is not None:
            self._average.update(self.progress.step + 1)

    def evaluated_weights(self) -> AbstractContextManager[None]:
        """Give the model the weights to validate and keep inside a `with` block: their average, if there is one."""
        return nullcontext() if self._average is None else self._average.used()

    def close_epoch(self) -> None:
        """End the current epoch: clear the carried state and its counters, and advance the epoch count."""
        self._epoch_start = self._generator.get_state()
        self.carried = None
        self.progress.epoch += 1
        self.progress.index, self.progress.epoch_loss = 0, 0.0

    def checkpoint(self, carried: LayerState) -> Checkpoint:
        """Return a checkpoint. Its tensors share memory with the live ones, so write it before training on.

        **Arguments:** `carried`: the carried state of the whole batch, over all processes.
        """
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        state = {
            "progress": asdict(self.progress),
            "optimiser": self.optimiser.state_dict(),
            "generator": self._epoch_start,
            "random": random,
            "carried": carried,
            "threads": torch.get_num_threads(),
        }
        if self._average is not None:
            state["average"] = self._average.tensors
        return Checkpoint(self.model.state_dict(), state)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint; raise RunError if it does not fit this model and optimiser."""
        state = checkpoint.state
        try:
            self.model.load_state_dict(checkpoint.model)
            self.optimiser.load_state_dict(state["optimiser"])
            if self._average is not None:
                self._average.restore(state["average"])
            self.progress = Progress.from_state(state["progress"])
            self._generator.set_state(state["generator"])
            self._epoch_start = state["generator"]
            self.carried = map_state(lambda part: part.to(self.device), state["carried"])
            torch.set_rng_state(state["random"]["cpu"])
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(state["random"]["cuda"], self.device)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
            reason = " ".join(str(error).split())  # torch's messages span several lines
            raise RunError(f"the checkpoint does not fit this model and optimiser: {reason}") from error

    def _draw(self) -> int:
        return int(torch.randint(2**63 - 1, (), generator=self._generator))
