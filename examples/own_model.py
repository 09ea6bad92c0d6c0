"""Train your own model on your own `Dataset`: adaptive clipping, patience, a run folder that survives being killed.

    python examples/own_model.py

You can stop it at any time: the same command resumes it. `rru report` shows the run.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import rru

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=20)
options = parser.parse_args()


class Adder(nn.Module):
    """Predicts the sum of the marked numbers of a sequence (B, T, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = rru.RRU(2, 32, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        _, state = self.layer(x)  # (1, B, 32); of a whole sequence, use the state, not the last output
        return self.head(state[-1]).squeeze(-1)  # (B,)


def batches(count: int, seed: int) -> DataLoader:
    """Sequences of 20 numbers, two of them marked, with the sum of these."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(count, 20, generator=generator)
    marks = torch.zeros(count, 20).scatter(1, torch.rand(count, 20, generator=generator).topk(2).indices, 1.0)
    pairs = TensorDataset(torch.stack([numbers, marks], dim=-1), (numbers * marks).sum(dim=1))
    return DataLoader(pairs, batch_size=32, shuffle=True)


torch.manual_seed(0)
model = Adder()
fitted = rru.fit(
    model,
    batches(2000, seed=1),
    batches(200, seed=2),
    test=batches(200, seed=3),
    loss=nn.functional.mse_loss,
    metric=nn.functional.l1_loss,
    folder="runs/adder",
    settings={"lr": 0.005, "epochs": options.epochs},
)
print(f"{fitted.status}: {fitted.reason}; mean error {fitted.test['metric']:.3f} after epoch {fitted.best_epoch}")
