"""Train an RRU with Lightning: the layer is a module like any other.

pip install lightning
python examples/with_lightning.py
"""

import argparse

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import rru

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=20)
options = parser.parse_args()


class Adder(lightning.LightningModule):
    """Predicts the sum of the marked numbers of a sequence (B, T, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = rru.RRU(2, 32, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        _, state = self.layer(x)  # (1, B, 32)
        return self.head(state[-1]).squeeze(-1)  # (B,)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x, sums = batch
        return nn.functional.mse_loss(self(x), sums)

    def test_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        x, sums = batch
        self.log("error", nn.functional.l1_loss(self(x), sums))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.003)


def batches(count: int, seed: int) -> DataLoader:
    """Sequences of 20 numbers, two of them marked, with the sum of these."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(count, 20, generator=generator)
    marks = torch.zeros(count, 20).scatter(1, torch.rand(count, 20, generator=generator).topk(2).indices, 1.0)
    pairs = TensorDataset(torch.stack([numbers, marks], dim=-1), (numbers * marks).sum(dim=1))
    return DataLoader(pairs, batch_size=32)


lightning.seed_everything(0)
trainer = lightning.Trainer(
    max_epochs=options.epochs,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Adder()
trainer.fit(model, batches(2000, seed=1))
(scores,) = trainer.test(model, batches(200, seed=2), verbose=False)
print(f"mean error {scores['error']:.3f}")
