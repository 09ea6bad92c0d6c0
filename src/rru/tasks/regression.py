"""Predict numbers from sequences of numbers."""

from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from rru.data import Sequences
from rru.tasks.batches import Batch, by_length
from rru.tasks.classification import SequenceTask
from rru.tasks.metrics import MSE
from rru.tasks.models import LayerState, device_of
from rru.tasks.settings import TaskSettings


class RegressionTask(SequenceTask):
    """Predict numbers, scaled to mean 0 and deviation 1, from the last `context` steps of sequences.

    The metric is `mse`, the mean squared error of the scaled numbers.

    **Arguments:** see `SequenceTask`; labels are (N, numbers) float32, and there are no classes.
    """

    metric = MSE
    starts_well = True  # an untrained model predicts the mean

    def __init__(self, sequences: Sequences, settings: TaskSettings, *, own: bool = False) -> None:
        super().__init__(sequences, settings, own=own)
        self.architecture = replace(self.architecture, outputs=sequences.train.labels.shape[1], zero_head=True)

    def _loss(self, model: nn.Module, batch: Batch, state: LayerState) -> tuple[Tensor, LayerState]:
        return F.mse_loss(model(batch.inputs, lengths=batch.lengths)[0], batch.targets), None

    def _scores(self, model: nn.Module, split: str) -> dict[str, float]:
        total, lengths = 0.0, self._lengths[split]
        for numbers in by_length(lengths, self.batch_size):
            batch = self._batch(split, numbers).to(device_of(model))
            errors = model(batch.inputs, lengths=batch.lengths)[0] - batch.targets  # (B, numbers)
            total += float(errors.double().square().mean(dim=1).sum())
        mean = total / len(lengths)
        return {"mse": mean, "loss": mean}

    def _details(self, model: nn.Module) -> dict[str, object]:
        return {}
