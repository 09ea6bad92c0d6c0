"""Data-parallel training: several processes train one run, each on its part of every batch.

Start them with `torchrun --nproc-per-node 2 -m rru train jsb`. Every process has the whole model. It computes the loss
of its part of the batch, weighted by its share of the batch; the gradients are summed over all processes, and each
process then takes the same optimiser step. Only the first process evaluates and writes; the others read what it
wrote, so all processes need access to the run folder.

Without dropout, the numbers equal those of a single process with the same batches, up to rounding. With dropout, each
process draws its own masks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rru.tasks import map_state
from rru.training.errors import RunError

if TYPE_CHECKING:
    from rru.tasks import Batch, LayerState

TIMEOUT = timedelta(days=1)  # the first process may evaluate for hours; if a process dies, torchrun ends the others


@dataclass(frozen=True)
class Processes:
    """The processes that train a run, seen from one of them. Default: a single process.

    **Arguments:**

    - `rank`: the rank of this process, from 0.
    - `count`: the number of processes.
    - `device`: the device of this process's model.
    """

    rank: int = 0
    count: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Whether this process is the one that evaluates, writes files and shows progress."""
        return self.rank == 0

    def part(self, batch: Batch) -> tuple[Batch, float]:
        """Return this process's part of a batch and its share, from 0 to 1.

        Raise RunError if the batch has fewer sequences than there are processes.
        """
        if self.count == 1:
            return batch, 1.0
        sequences = batch.inputs.shape[1]
        if sequences < self.count:
            raise RunError(
                f"a batch must have a sequence for each process, got {sequences} for {self.count}: "
                "start fewer processes, or choose a larger task.batch_size"
            )
        start, end = self._bounds(sequences)
        return batch.part(start, end), (end - start) / sequences

    def sum_gradients(self, model: nn.Module, loss: float) -> float:
        """Sum the gradients over all processes in place, and return the sum of the losses."""
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
        """Seed torch's generator differently in each process; on exit it is the same in all again."""
        if self.count == 1:
            yield
            return
        seed = int(torch.randint(2**62, ()))
        device = torch.device(self.device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed + self.rank)
            yield

    def any(self, *flags: bool) -> list[bool]:
        """Return, for each flag, whether it is True in any process."""
        if self.count == 1:
            return list(flags)
        values = torch.tensor(flags, dtype=torch.int32, device=self.device)
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return [bool(each) for each in values.tolist()]

    def wait(self) -> None:
        """Wait until all processes get here (a barrier)."""
        if self.count > 1:
            dist.barrier()

    def from_first(self, scores: Mapping[str, float] | None) -> dict[str, float]:
        """Return the first process's scores in all processes; the others pass None."""
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

    def whole_state(self, state: LayerState) -> LayerState:
        """Gather the recurrent state of the whole batch, (layers, B, n), from the parts of all processes."""
        whole: LayerState = state if self.count == 1 else map_state(self._whole, state)
        return whole

    def _whole(self, state: Tensor) -> Tensor:
        sequences = torch.tensor([state.shape[1]], device=self.device)
        dist.all_reduce(sequences)
        start, end = self._bounds(int(sequences))
        whole = state.new_zeros(state.shape[0], int(sequences), *state.shape[2:])
        whole[:, start:end] = state
        dist.all_reduce(whole)
        return whole

    def own_state(self, state: LayerState) -> LayerState:
        """Return this process's part of a state from `whole_state`."""
        if self.count == 1:
            return state
        part: LayerState = map_state(lambda each: each[:, slice(*self._bounds(each.shape[1]))].contiguous(), state)
        return part

    def _bounds(self, sequences: int) -> tuple[int, int]:
        return sequences * self.rank // self.count, sequences * (self.rank + 1) // self.count


@contextmanager
def joined(device: str = "cpu") -> Iterator[Processes]:
    """Join the process group if torchrun started this process as one of several; leave it on exit.

    **Arguments:** `device`: the device to train on; for `cuda`, each process takes the GPU of its local rank.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or "RANK" not in os.environ:
        yield Processes(device=device)
        return
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=TIMEOUT)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), device)
    finally:
        dist.destroy_process_group()
