"""One run over several processes: each has its part of every batch, and all take the same steps.

`torchrun --nproc-per-node 2 -m rru train jsb` starts them. Every process has the whole model. It computes the loss of
its part of a batch, weighted by how much of the batch that is; gradients are summed over all processes, and each then
does the optimiser's step for itself. The first process alone evaluates and writes; all others read what it wrote, so
the run's folder must be one that all can see.

Without dropout the numbers are those of one process with the same batches, up to rounding. Dropout draws other masks in
each process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rru.training.checkpoint import Checkpoint, Checkpoints
from rru.training.files import RunError
from rru.training.run import Run

if TYPE_CHECKING:
    from rru.tasks import Batch

PATIENCE = timedelta(days=1)  # the first process may evaluate for long; if one dies, torchrun ends the others


@dataclass(frozen=True)
class Processes:
    """The processes of a run, seen from one of them. Without arguments: the only one.

    **Arguments:**

    - `rank`: which of them this is, from 0.
    - `count`: how many there are.
    - `device`: where its model is.
    """

    rank: int = 0
    count: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Whether it is the one that evaluates, writes and shows."""
        return self.rank == 0

    def part(self, batch: Batch) -> tuple[Batch, float]:
        """This process's part of a batch, and how much of it that is."""
        sequences = batch.inputs.shape[1]
        if sequences < self.count:
            raise RunError(
                f"a batch must have a sequence for each process, got {sequences} for {self.count}: "
                "start fewer processes, or choose a larger task.batch_size"
            )
        start, end = self._bounds(sequences)
        return (batch if self.count == 1 else batch.part(start, end)), (end - start) / sequences

    def sum_gradients(self, model: nn.Module, loss: float) -> float:
        """Sums gradients over all processes, and the loss, which is returned."""
        if self.count == 1:
            return loss
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        flat = torch.cat([*(each.flatten() for each in gradients), gradients[0].new_tensor([loss])])
        dist.all_reduce(flat)
        at = 0
        for gradient in gradients:
            gradient.copy_(flat[at : at + gradient.numel()].view_as(gradient))
            at += gradient.numel()
        return float(flat[-1])

    @contextmanager
    def own_randomness(self) -> Iterator[None]:
        """While this lasts torch's generator is another in each process; afterwards it is the same in all again."""
        if self.count == 1:
            yield
            return
        seed = int(torch.randint(2**62, ()))
        device = torch.device(self.device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed + self.rank)
            yield

    def any(self, *flags: bool) -> list[bool]:
        """Whether some process says so, for each of the flags."""
        if self.count == 1:
            return list(flags)
        said = torch.tensor(flags, dtype=torch.int32, device=self.device)
        dist.all_reduce(said, dist.ReduceOp.MAX)
        return [bool(each) for each in said.tolist()]

    def wait(self) -> None:
        """Goes on when all processes are here."""
        if self.count > 1:
            dist.barrier()

    def from_first(self, scores: Mapping[str, float] | None) -> dict[str, float]:
        """The numbers that the first process has, in all; the others give None."""
        if self.count == 1:
            return dict(scores or {})
        text = json.dumps(scores).encode()
        size = torch.tensor([len(text)], device=self.device)
        dist.broadcast(size, src=0)
        content = torch.zeros(int(size), dtype=torch.uint8, device=self.device)
        if self.first:
            content.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
        dist.broadcast(content, src=0)
        return dict(json.loads(bytes(content.tolist())))

    def whole_state(self, state: Any) -> Any:
        """The recurrent state (layers, B, n) of a whole batch, from the parts that processes have."""
        if self.count == 1 or state is None:
            return state
        if isinstance(state, tuple):
            return tuple(self.whole_state(each) for each in state)
        sequences = torch.tensor([state.shape[1]], device=self.device)
        dist.all_reduce(sequences)
        start, end = self._bounds(int(sequences))
        whole = state.new_zeros(state.shape[0], int(sequences), *state.shape[2:])
        whole[:, start:end] = state
        dist.all_reduce(whole)
        return whole

    def own_state(self, state: Any) -> Any:
        """This process's part of what `whole_state` gave."""
        if self.count == 1 or state is None:
            return state
        if isinstance(state, tuple):
            return tuple(self.own_state(each) for each in state)
        start, end = self._bounds(state.shape[1])
        return state[:, start:end].contiguous()

    def _bounds(self, sequences: int) -> tuple[int, int]:
        return sequences * self.rank // self.count, sequences * (self.rank + 1) // self.count


class SeenRun(Run):
    """A run's folder for a process that is not the first: it reads, and what it would write the first one writes."""

    def __init__(self, path: Any) -> None:
        super().__init__(path)
        self.checkpoints = _SeenCheckpoints(self.checkpoints.folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def write_result(self, result: Mapping[str, Any]) -> None:
        pass

    def append(self, line: Mapping[str, Any]) -> None:
        pass

    def keep_lines(self, count: int) -> int:
        return count

    def save_best(self, epoch: int, model: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        pass

    def keep_best(self, epochs: set[int]) -> None:
        pass


class _SeenCheckpoints(Checkpoints):
    def save(self, checkpoint: Checkpoint) -> None:
        pass

    def clear(self) -> None:
        pass


@contextmanager
def joined(device: str = "cpu") -> Iterator[Processes]:
    """Joins the other processes, if torchrun started this one among several.

    **Arguments:** `device`: as the user named it; of `cuda` each process on a machine takes its own.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or "RANK" not in os.environ:
        yield Processes(device=device)
        return
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=PATIENCE)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), device)
    finally:
        dist.destroy_process_group()
