"""The networks around a contender: an embedding if the inputs are tokens, the layer, and a linear read-out."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.robustness.contenders import BuildLayer


def last_state(state: Tensor | tuple[Tensor, Tensor], bidirectional: bool) -> Tensor:
    """Return the last layer's final h (B, n), or of both directions (B, 2n). An LSTM's c is not read."""
    h = state[0] if isinstance(state, tuple) else state  # (layers x directions, B, n)
    return torch.cat([h[-2], h[-1]], dim=-1) if bidirectional else h[-1]


class SequenceModel(nn.Module):
    """Reads a sequence, and predicts from its final state (B, outputs) or at each step (T, B, outputs).

    **Arguments:**

    - `build_layer`, `hidden_size`, `num_layers`, `bidirectional`: the layer.
    - `features`: the numbers in a step; for tokens, the width of their embedding.
    - `outputs`: the numbers to predict.
    - `tokens`: the number of different tokens; 0 if the inputs are numbers.
    - `from_state`: whether to predict from the final state.
    """

    def __init__(
        self,
        build_layer: BuildLayer,
        hidden_size: int,
        num_layers: int,
        *,
        features: int,
        outputs: int,
        tokens: int = 0,
        from_state: bool = False,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        self.from_state, self.bidirectional = from_state, bidirectional
        self.embedding = nn.Embedding(tokens, features) if tokens else nn.Identity()
        self.layer = build_layer(features, hidden_size, num_layers=num_layers, bidirectional=bidirectional)
        self.head = nn.Linear(hidden_size * (1 + bidirectional), outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Take numbers (T, B, features) or tokens (T, B)."""
        outputs, state = self.layer(self.embedding(inputs))  # (T, B, n)
        return self.head(last_state(state, self.bidirectional) if self.from_state else outputs)


class PairModel(nn.Module):
    """Classifies pairs of sentences, as the SNLI model in pytorch/examples does, with its defaults but for the sizes.

    Embedding, projection with ReLU, an encoder shared by both sentences, and an MLP of three hidden layers. It reads
    the final states of both directions.
    """

    def __init__(
        self,
        build_layer: BuildLayer,
        hidden_size: int,
        num_layers: int,
        *,
        tokens: int,
        classes: int,
        embedding: int = 100,
        projection: int = 48,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, embedding)
        self.projection = nn.Sequential(nn.Linear(embedding, projection), nn.ReLU())
        self.encoder = build_layer(projection, hidden_size, num_layers=num_layers, bidirectional=True)
        width = 4 * hidden_size  # two sentences, two directions
        hidden = [module for _ in range(3) for module in (nn.Linear(width, width), nn.ReLU())]
        self.classifier = nn.Sequential(*hidden, nn.Linear(width, classes))

    def forward(self, pairs: Tensor) -> Tensor:
        """Take tokens (T, B, 2) and return logits (B, classes)."""
        encoded = [self._encode(sentence) for sentence in pairs.unbind(-1)]
        return self.classifier(torch.cat(encoded, dim=-1))

    def _encode(self, sentence: Tensor) -> Tensor:
        _, state = self.encoder(self.projection(self.embedding(sentence)))
        return last_state(state, bidirectional=True)  # (B, 2n)


BuildModel = Callable[..., nn.Module]
"""Builds a model from a function that builds layers, a hidden size and a number of layers."""
