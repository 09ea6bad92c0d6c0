"""Models of the tasks: an embedding for tokens, recurrent layers and a head."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from rru.nn import Layer, hidden_size_for, layer_class
from rru.scan import Stepper
from rru.scan.reference import State
from rru.tasks.cross_entropy import head_cross_entropy, head_logits

if TYPE_CHECKING:
    from rru.tasks.forecaster import WindowShape

Head = Callable[[int, int], nn.Linear]
MakeLayer = partial[Layer]
"""Builds a layer from its input and hidden sizes; its `keywords` are the options of the layer."""
Options = Mapping[str, Any]
"""Keyword arguments of a layer: `num_layers`, `dropout` and the options of its cell."""
LayerState = Tensor | tuple[Tensor, ...] | None
"""The state of layers, (layers, B, n) for each part; None is their initial state."""


@dataclass(frozen=True)
class Architecture:
    """The model of a task, except for its recurrent layers.

    **Arguments:**

    - `model_class`: `SequenceModel` or `Classifier`.
    - `outputs`: output size of the head.
    - `input_size`: features per input step; None if inputs are tokens.
    - `tokens`: the size of the vocabulary, if inputs are tokens.
    - `embedding_size`: default size of token embeddings; the options of a model override it.
    - `zero_state`: whether sequences start from zeros instead of the initial state of the cell.
    - `head`: builds the head from its input size and `outputs`; for music also those of `rru.tasks.joint`.
    - `zero_head`: whether the weights of the head start as zeros.
    - `window`: for series, the shape of a window.
    - `members`: for series, the models in an ensemble; the budget is that of each.
    - `bar`: for music with the output `tied`, the steps of a bar, if the model knows the place of each step in it.
    """

    model_class: type["Recurrent"]
    outputs: int
    input_size: int | None = None
    tokens: int | None = None
    embedding_size: int = 32
    zero_state: bool = False
    head: Head = nn.Linear
    zero_head: bool = False
    window: "WindowShape | None" = None
    members: int = 1
    bar: int | None = None

    def build(self, cell: str, options: Options, budget: int) -> "Recurrent":
        """Build the model with the largest hidden size that has at most `budget` parameters in total.

        **Arguments:**

        - `cell`: the name of a registered cell.
        - `options`: those of the layer; if inputs are tokens, also `embedding_size`.
        - `budget`: the maximum number of parameters; of each member of an ensemble.
        """
        layer, chosen, size = layer_class(cell), dict(options), self.input_size
        if size is None:
            size = chosen.pop("embedding_size", self.embedding_size)
        _check_options(cell, layer, chosen)

        def build(hidden_size: int) -> Recurrent:
            return self.model_class.of(partial(layer, **chosen), size, hidden_size, self)

        return build(hidden_size_for(budget * self.members, build))


class Recurrent(nn.Module):
    """Base class of the models.

    **Arguments:** `layers`: the recurrent layers, with time as the first dimension; `architecture`: all else.
    """

    def __init__(self, layers: Layer, architecture: Architecture) -> None:
        super().__init__()
        tokens = architecture.tokens
        self.embedding = None if tokens is None else nn.Embedding(tokens, layers.input_size)
        self.layers = layers
        self.head = architecture.head(self.features(layers), architecture.outputs)
        self.zero_state = architecture.zero_state
        if self.embedding is not None:
            nn.init.uniform_(self.embedding.weight, -1, 1)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if architecture.zero_head:
            nn.init.zeros_(self.head.weight)

    @classmethod
    def of(cls, layer: MakeLayer, input_size: int, hidden_size: int, architecture: Architecture) -> Self:
        """Build a model with layers of a hidden size. All that it has counts towards its budget."""
        return cls(layer(input_size, hidden_size), architecture)

    @staticmethod
    def features(layers: Layer) -> int:
        """Return the input size of the head."""
        return layers.output_size

    def read(self, inputs: Tensor) -> Tensor:
        """Return what the layers read, (.., B, m), of tokens (.., B) or features (.., B, m)."""
        read: Tensor = inputs.to(self.head.weight.dtype) if self.embedding is None else self.embedding(inputs)
        return read

    def run(
        self, inputs: Tensor, state: LayerState, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor | tuple[Tensor, ...]]:
        """Run the layers on tokens (T, B) or features (T, B, m). Return outputs (T, B, p) and final state."""
        x = self.read(inputs)  # (T, B, m)
        if state is None and self.zero_state:
            state = self.initial_state(x.shape[1])
        output, last = self.layers(x, state, lengths=lengths)
        return output, last

    def step(self, stepper: Stepper, inputs: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        """Run one step of many sequences.

        **Arguments:**

        - `stepper`: that of the layers.
        - `inputs`: tokens (B,) or features (B, m).
        - `states`: (B, n) for each part of the state, for each cell.

        **Returns:** the output of the layers (B, p), and the states after it.
        """
        return stepper.run(self.read(inputs), states)

    @property
    def state_names(self) -> tuple[str, ...]:
        """The name of each part of its state."""
        return self.layers.cells[0].state_names

    @property
    def window_steps(self) -> int | None:
        """The number of steps of its inputs, if it must be that; None if it may be any."""
        return None

    def example(self, *sizes: int) -> Tensor:
        """Return zeros as inputs: tokens (T, B) or features (T, B, m), or without T for one step."""
        if self.embedding is None:
            return torch.zeros(*sizes, self.layers.input_size)
        return torch.zeros(sizes, dtype=torch.long)

    def initial_state(self, batch: int) -> Tensor | tuple[Tensor, ...]:
        """Return the default initial state, (layers, B, n) each."""
        state = self.layers.initial_state(batch)
        if not self.zero_state:
            return state
        return torch.zeros_like(state) if isinstance(state, Tensor) else tuple(map(torch.zeros_like, state))


class SequenceModel(Recurrent):
    """Return logits for every step, from the outputs of the layers. For music and language."""

    def forward(
        self,
        inputs: Tensor,
        state: LayerState = None,
        *,
        lengths: Tensor | None = None,
        skip: int = 0,
        targets: Tensor | None = None,
    ) -> tuple[Tensor, LayerState]:
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
            return self.outputs(output), last
        return head_cross_entropy(self.head, output.flatten(0, 1), targets.flatten()), last

    def outputs(self, output: Tensor) -> Tensor:
        """Return logits or conditions (.., c), from the outputs of the layers (.., p)."""
        return head_logits(self.head, output)


class Classifier(Recurrent):
    """Return logits for every sequence, from the state h of the last layer at the end of the sequence."""

    @staticmethod
    def features(layers: Layer) -> int:
        return layers.hidden_size

    def forward(
        self, inputs: Tensor, state: LayerState = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor, LayerState]:
        """Run the model over sequences.

        **Arguments:** see `SequenceModel`.

        **Returns:** logits (B, outputs), and the state at the end of each sequence.
        """
        _, last = self.run(inputs, state, lengths)
        h = last if isinstance(last, Tensor) else last[0]  # (layers, B, n)
        return head_logits(self.head, h[-1]), last


def _check_options(cell: str, layer: Callable[..., Layer], options: Options) -> None:
    fixed = {"input_size", "hidden_size", "batch_first", "bidirectional", "device", "dtype", "options"}
    known = [*inspect.signature(Layer).parameters]
    known += inspect.signature(layer).parameters
    known += inspect.signature(layer.cell_class).parameters  # type: ignore[attr-defined]
    allowed = [name for name in dict.fromkeys(known) if name not in fixed]
    for name in options:
        if name not in allowed:
            raise ValueError(f"options of cell {cell!r} must be among {', '.join(allowed)}; got {name!r}")


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model."""
    return next(model.parameters()).device


def known_tokens(tokens: int | None) -> int:
    """Return the size of a vocabulary; raise ValueError if it is not known."""
    if tokens is None:
        raise ValueError("tokens must be the size of the vocabulary, got None")
    return tokens
