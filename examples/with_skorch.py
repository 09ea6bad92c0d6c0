"""Train an RRU with skorch, which makes a scikit-learn estimator of any module.

pip install skorch
python examples/with_skorch.py
"""

import argparse

import numpy as np
import torch
from sklearn.model_selection import cross_val_score
from skorch import NeuralNetClassifier
from torch import Tensor, nn

import rru

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=20)
options = parser.parse_args()


class Classifier(nn.Module):
    """Classifies sequences (B, T, 1) by the state after the last step."""

    def __init__(self, hidden_size: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer = rru.RRU(1, hidden_size, dropout=dropout, batch_first=True)
        self.head = nn.Linear(hidden_size, 2)

    def forward(self, x: Tensor) -> Tensor:
        _, state = self.layer(x)  # (1, B, hidden_size)
        return self.head(state[-1])  # (B, 2)


generator = np.random.default_rng(0)
frequencies = generator.integers(1, 3, 400)  # waves of one or two periods, at any phase
phases = generator.uniform(0, 2 * np.pi, 400)
waves = np.sin(np.linspace(0, 2 * np.pi, 24) * frequencies[:, None] + phases[:, None])  # (400, 24)
noisy = (waves + 0.3 * generator.normal(size=waves.shape)).astype(np.float32)[..., None]  # (400, 24, 1)

torch.manual_seed(0)
net = NeuralNetClassifier(
    Classifier,
    criterion=nn.CrossEntropyLoss,
    optimizer=torch.optim.Adam,
    lr=0.01,
    max_epochs=options.epochs,
    batch_size=32,
    train_split=None,
    verbose=0,
)
scores = cross_val_score(net, noisy, frequencies - 1, cv=3)
print(f"accuracy {scores.mean():.2f}")
