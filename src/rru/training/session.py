"""All that changes while a model trains, and that a checkpoint must hold for it to go on as if never stopped."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from rru.training.checkpoint import Checkpoint
from rru.training.files import RunError
from rru.training.progress import Progress


class Session:
    """Model, optimiser, counters, generators, and the recurrent state carried from batch to batch.

    Two generators are used: one of its own gives each epoch a seed for the order of its batches; torch's, which dropout
    draws from, is seeded from it.

    **Arguments:** `model`; `optimiser` over its parameters; `seed`, on which all randomness of training depends.
    """

    def __init__(self, model: nn.Module, optimiser: torch.optim.Optimizer, seed: int) -> None:
        self.model = model
        self.optimiser = optimiser
        self.device = next(model.parameters()).device
        self.progress = Progress()
        self._carried: Any = None
        self._generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(self._draw())
        self._epoch_start = self._generator.get_state()

    @property
    def carried(self) -> Any:
        """The recurrent state the next batch may go on from: None, a tensor, or a tuple of tensors."""
        return self._carried

    @carried.setter
    def carried(self, state: Any) -> None:
        self._carried = _each(state, Tensor.detach)

    def epoch_generator(self) -> torch.Generator:
        """The generator of the current epoch's batches, the same each time."""
        self._generator.set_state(self._epoch_start)
        return torch.Generator().manual_seed(self._draw())

    def close_epoch(self) -> None:
        """The next epoch is now the current one."""
        self._epoch_start = self._generator.get_state()
        self._carried = None
        self.progress.epoch += 1
        self.progress.index, self.progress.epoch_loss = 0, 0.0

    def checkpoint(self, carried: Any) -> Checkpoint:
        """All of it, sharing memory with what is trained.

        **Arguments:** `carried`: the state carried on, of the whole batch if this is one of several processes.
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
        return Checkpoint(self.model.state_dict(), state)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Goes back to a checkpoint; a RunError if it is one of another model or optimiser."""
        state = checkpoint.state
        try:
            self.model.load_state_dict(checkpoint.model)
            self.optimiser.load_state_dict(state["optimiser"])
            self.progress = Progress.from_state(state["progress"])
            self._generator.set_state(state["generator"])
            self._epoch_start = state["generator"]
            self._carried = _each(state["carried"], lambda tensor: tensor.to(self.device))
            torch.set_rng_state(state["random"]["cpu"])
            if self.device.type == "cuda":
                torch.cuda.set_rng_state(state["random"]["cuda"], self.device)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            reason = " ".join(str(error).split())  # torch's has several lines
            raise RunError(f"the checkpoint is not one of this model and optimiser: {reason}") from error

    def _draw(self) -> int:
        return int(torch.randint(2**63 - 1, (), generator=self._generator))


def _each(state: Any, change: Any) -> Any:
    """Changes every tensor of a recurrent state."""
    if isinstance(state, Tensor):
        return change(state)
    return tuple(_each(part, change) for part in state) if isinstance(state, tuple) else state
