"""The models of the tasks: an embedding where inputs are tokens, recurrent layers, a linear head."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rru.nn import Layer, hidden_size_for, layer_class
from rru.tasks.cross_entropy import head_cross_entropy


class Recurrent(nn.Module):
    """What both models share.

    **Arguments:**

    - `layers`: the recurrent layers, steps first.
    - `features`: how many features of theirs the head reads.
    - `outputs`: how many numbers the head gives.
    - `vocabulary_size`: how many tokens there are; None where inputs are features already.
    - `zero_state`: whether sequences start from plain zeros rather than from the cell's own initial state.
    """

    def __init__(
        self,
        layers: Layer,
        features: int,
        outputs: int,
        *,
        vocabulary_size: int | None = None,
        zero_state: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = None if vocabulary_size is None else nn.Embedding(vocabulary_size, layers.input_size)
        self.layers = layers
        self.head = nn.Linear(features, outputs)
        self.zero_state = zero_state
        if self.embedding is not None:
            nn.init.uniform_(self.embedding.weight, -1, 1)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def run(self, inputs: Tensor, state: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
        """The layers' outputs (T, B, p) and last state, from tokens (T, B) or features (T, B, m)."""
        x = inputs.to(self.head.weight.dtype) if self.embedding is None else self.embedding(inputs)  # (T, B, m)
        if state is None and self.zero_state:
            state = self.initial_state(x.shape[1])
        output, last = self.layers(x, state, lengths=lengths)
        return output, last

    def initial_state(self, batch: int) -> Tensor | tuple[Tensor, ...]:
        """The state that sequences start from where none is given, (layers, B, n) for each part of it."""
        state = self.layers.initial_state(batch)
        if not self.zero_state:
            return state
        return torch.zeros_like(state) if isinstance(state, Tensor) else tuple(map(torch.zeros_like, state))


class SequenceModel(Recurrent):
    """Logits for every step, from the output sequence: music and language."""

    def forward(
        self,
        inputs: Tensor,
        state: Any = None,
        *,
        lengths: Tensor | None = None,
        skip: int = 0,
        targets: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Runs over whole sequences.

        **Arguments:**

        - `inputs`: tokens (T, B) or features (T, B, m).
        - `state`: the layers' state to start from; default: see `zero_state`.
        - `lengths`: (B,), how many steps of each sequence count.
        - `skip`: how many first steps are only read, their logits left out.
        - `targets`: (T - skip, B), the right classes, if it is the loss that is wanted.

        **Returns:** logits (T - skip, B, outputs), or with `targets` their mean cross-entropy, which then takes less
        time and memory; and the state at each sequence's end.
        """
        output, last = self.run(inputs, state, lengths)
        output = output[skip:]  # (T - skip, B, p)
        if targets is None:
            return self.head(output), last
        return head_cross_entropy(self.head, output.flatten(0, 1), targets.flatten()), last


class Classifier(Recurrent):
    """Logits for every sequence, from the last layer's final state h at the sequence's own end."""

    def forward(self, inputs: Tensor, state: Any = None, *, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """Runs over whole sequences.

        **Arguments:** as for `SequenceModel`.

        **Returns:** logits (B, outputs), and the state at each sequence's end.
        """
        _, last = self.run(inputs, state, lengths)
        h = last if isinstance(last, Tensor) else last[0]  # (layers, B, n)
        return self.head(h[-1]), last


KEYS = 88


def music_model(cell: str, options: Mapping[str, Any], budget: int) -> Recurrent:
    """Logits of the 88 keys of the next step; arguments as for `sized_model`."""
    return sized_model(SequenceModel, cell, options, budget, input_size=KEYS, outputs=KEYS)


def language_model(cell: str, options: Mapping[str, Any], budget: int, tokens: int, *, zero_state: bool) -> Recurrent:
    """Logits of the next of so many tokens; `options` have their `embedding_size`."""
    options = dict(options)
    size = options.pop("embedding_size")
    sizes = {"input_size": size, "outputs": tokens, "vocabulary_size": tokens}
    return sized_model(SequenceModel, cell, options, budget, **sizes, zero_state=zero_state)


def review_model(cell: str, options: Mapping[str, Any], budget: int, tokens: int) -> Recurrent:
    """Logits of negative and positive, of texts of so many tokens; `options` have their `embedding_size`."""
    options = dict(options)
    size = options.pop("embedding_size")
    return sized_model(Classifier, cell, options, budget, input_size=size, outputs=2, vocabulary_size=tokens)


def image_model(cell: str, options: Mapping[str, Any], budget: int) -> Recurrent:
    """Logits of the ten digits, of images read pixel by pixel."""
    return sized_model(Classifier, cell, options, budget, input_size=1, outputs=10)


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
) -> Recurrent:
    """The model with the largest hidden size whose parameters, all counted, do not exceed `budget`.

    **Arguments:**

    - `kind`: `SequenceModel` or `Classifier`.
    - `cell`: the name of a registered cell.
    - `options`: the layer's keyword arguments: `num_layers`, `dropout`, and the cell's own.
    - `budget`: the most parameters the model may have.
    - `input_size`: features of an input step, or of a token's embedding.
    - `outputs`, `vocabulary_size`, `zero_state`: as for `Recurrent`.
    """
    layer = layer_class(cell)
    _check_options(cell, layer, options)

    def build(hidden_size: int) -> Recurrent:
        layers: Layer = layer(input_size, hidden_size, **options)
        features = hidden_size if kind is Classifier else layers.output_size
        return kind(layers, features, outputs, vocabulary_size=vocabulary_size, zero_state=zero_state)

    return build(hidden_size_for(budget, build))


def _check_options(cell: str, layer: Callable[..., Layer], options: Mapping[str, Any]) -> None:
    fixed = {"input_size", "hidden_size", "batch_first", "bidirectional", "device", "dtype", "options"}
    known = [*inspect.signature(Layer).parameters]
    known += inspect.signature(layer).parameters
    known += inspect.signature(layer.cell_class).parameters  # type: ignore[attr-defined]
    allowed = [name for name in dict.fromkeys(known) if name not in fixed]
    for name in options:
        if name not in allowed:
            raise ValueError(f"options of the cell {cell!r} must be among {', '.join(allowed)}; got {name!r}")


def device_of(model: nn.Module) -> torch.device:
    """The device a model's weights are on."""
    return next(model.parameters()).device
