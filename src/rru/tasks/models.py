"""Models of the tasks: an embedding for tokens, recurrent layers and a head."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rru.data import KEYS
from rru.nn import Layer, hidden_size_for, layer_class
from rru.tasks.cross_entropy import head_cross_entropy

Head = Callable[[int, int], nn.Linear]


class Recurrent(nn.Module):
    """Base class of the models.

    **Arguments:**

    - `layers`: the recurrent layers, with time as the first dimension.
    - `features`: input size of the head.
    - `outputs`: output size of the head.
    - `vocabulary_size`: the number of tokens, or None if inputs are features.
    - `zero_state`: whether sequences start from zeros instead of the initial state of the cell.
    - `head`: builds the head from `features` and `outputs`; for music also those of `rru.tasks.joint`.
    """

    def __init__(
        self,
        layers: Layer,
        features: int,
        outputs: int,
        *,
        vocabulary_size: int | None = None,
        zero_state: bool = False,
        head: Head = nn.Linear,
    ) -> None:
        super().__init__()
        self.embedding = None if vocabulary_size is None else nn.Embedding(vocabulary_size, layers.input_size)
        self.layers = layers
        self.head = head(features, outputs)
        self.zero_state = zero_state
        if self.embedding is not None:
            nn.init.uniform_(self.embedding.weight, -1, 1)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def run(self, inputs: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """Runs the layers on tokens (T, B) or features (T, B, m). Returns outputs (T, B, p) and final state."""
        x = inputs.to(self.head.weight.dtype) if self.embedding is None else self.embedding(inputs)  # (T, B, m)
        if state is None and self.zero_state:
            state = self.initial_state(x.shape[1])
        output, last = self.layers(x, state, lengths=lengths)
        return output, last

    def initial_state(self, batch: int) -> Tensor | tuple[Tensor, ...]:
        """Returns the default initial state, (layers, B, n) each."""
        state = self.layers.initial_state(batch)
        if not self.zero_state:
            return state
        return torch.zeros_like(state) if isinstance(state, Tensor) else tuple(map(torch.zeros_like, state))


class SequenceModel(Recurrent):
    """Returns logits for every step, from the outputs of the layers. For music and language."""

    def forward(
        self,
        inputs: Tensor,
        state: Any = None,
        *,
        lengths: Tensor | None = None,
        skip: int = 0,
        targets: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Run the model over sequences.

        **Arguments:**

        - `inputs`: tokens (T, B) or features (T, B, m).
        - `state`: the initial state of the layers. Default: see `zero_state`.
        - `lengths`: (B,), the length of each sequence.
        - `skip`: the number of leading steps without logits.
        - `targets`: (T - skip, B), class indices. If given, the loss is returned instead of logits.

        **Returns:** logits (T - skip, B, outputs); with a `JointHead` its conditions; or with `targets` the mean
        cross-entropy, which takes less time and memory; and the state at the end of each sequence.
        """
        output, last = self.run(inputs, state, lengths)
        output = output[skip:]  # (T - skip, B, p)
        if targets is None:
            return self.head(output), last
        return head_cross_entropy(self.head, output.flatten(0, 1), targets.flatten()), last


class Classifier(Recurrent):
    """Returns logits for every sequence, from the state h of the last layer at the end of the sequence."""

    def forward(self, inputs: Tensor, state: Any = None, *, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """Run the model over sequences.

        **Arguments:** see `SequenceModel`.

        **Returns:** logits (B, outputs), and the state at the end of each sequence.
        """
        _, last = self.run(inputs, state, lengths)
        h = last if isinstance(last, Tensor) else last[0]  # (layers, B, n)
        return self.head(h[-1]), last


def music_model(cell: str, options: Mapping[str, Any], budget: int, head: Head = nn.Linear) -> Recurrent:
    """Builds a model that predicts the 88 keys of the next step. See `sized_model`."""
    return sized_model(SequenceModel, cell, options, budget, input_size=KEYS, outputs=KEYS, head=head)


def language_model(cell: str, options: Mapping[str, Any], budget: int, tokens: int, *, zero_state: bool) -> Recurrent:
    """Builds a model that predicts the next of `tokens` tokens. `options` must have `embedding_size`."""
    options = dict(options)
    size = options.pop("embedding_size")
    sizes = {"input_size": size, "outputs": tokens, "vocabulary_size": tokens}
    return sized_model(SequenceModel, cell, options, budget, **sizes, zero_state=zero_state)


def review_model(cell: str, options: Mapping[str, Any], budget: int, tokens: int, classes: int = 2) -> Recurrent:
    """Builds a classifier of texts with `tokens` different tokens. `options` must have `embedding_size`."""
    options = dict(options)
    size = options.pop("embedding_size")
    return sized_model(Classifier, cell, options, budget, input_size=size, outputs=classes, vocabulary_size=tokens)


def image_model(cell: str, options: Mapping[str, Any], budget: int) -> Recurrent:
    """Builds a classifier of the ten digits, for images read pixel by pixel."""
    return sized_model(Classifier, cell, options, budget, input_size=1, outputs=10)


def sequence_model(cell: str, options: Mapping[str, Any], budget: int, columns: int, classes: int) -> Recurrent:
    """Builds a classifier of sequences with `columns` numbers at each step."""
    return sized_model(Classifier, cell, options, budget, input_size=columns, outputs=classes)


def sized_model(
    kind: type[Recurrent],
    cell: str,
    options: Mapping[str, Any],
    budget: int,
    *,
    input_size: int,
    outputs: int,
    vocabulary_size: int | None = None,
    zero_state: bool = False,
    head: Head = nn.Linear,
) -> Recurrent:
    """Build the model with the largest hidden size that has at most `budget` parameters in total.

    **Arguments:**

    - `kind`: `SequenceModel` or `Classifier`.
    - `cell`: the name of a registered cell.
    - `options`: keyword arguments of the layer: `num_layers`, `dropout` and the options of the cell.
    - `budget`: the maximum number of parameters.
    - `input_size`: features per input step, or the size of token embeddings.
    - `outputs`, `vocabulary_size`, `zero_state`, `head`: see `Recurrent`.
    """
    layer = layer_class(cell)
    _check_options(cell, layer, options)

    def build(hidden_size: int) -> Recurrent:
        layers: Layer = layer(input_size, hidden_size, **options)
        features = hidden_size if kind is Classifier else layers.output_size
        return kind(layers, features, outputs, vocabulary_size=vocabulary_size, zero_state=zero_state, head=head)

    return build(hidden_size_for(budget, build))


def _check_options(cell: str, layer: Callable[..., Layer], options: Mapping[str, Any]) -> None:
    fixed = {"input_size", "hidden_size", "batch_first", "bidirectional", "device", "dtype", "options"}
    known = [*inspect.signature(Layer).parameters]
    known += inspect.signature(layer).parameters
    known += inspect.signature(layer.cell_class).parameters  # type: ignore[attr-defined]
    allowed = [name for name in dict.fromkeys(known) if name not in fixed]
    for name in options:
        if name not in allowed:
            raise ValueError(f"options of cell {cell!r} must be among {', '.join(allowed)}; got {name!r}")


def device_of(model: nn.Module) -> torch.device:
    """Returns the device of a model."""
    return next(model.parameters()).device
