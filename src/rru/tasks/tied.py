"""The output `tied`: music models in which all keys share one network, so that a key is a key wherever it lies.

A recurrent network runs over time, once for each key; it sees the last step from the place of its key. A second one
runs over the keys of a step, from low to high; it sees what the first one says about each key, and the keys below it
in the chord that is predicted. Its last layer gives the logit of the key:

    log p(chord) = sum over keys i of log p(key i | keys below i, all steps before)

So the probability of a chord is exact, as with the other joint outputs. The idea is that of Johnson (2017), "Generating
Polyphonic Music Using Tied Parallel Networks"; here both networks are of any registered cell.
"""

from dataclasses import replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from rru.data import KEYS
from rru.nn import Layer
from rru.tasks.cross_entropy import full_precision, head_logits
from rru.tasks.joint import LOW_HIGH, PIECE, JointHead
from rru.tasks.keys import around, beneath
from rru.tasks.models import Architecture, LayerState, MakeLayer, SequenceModel
from rru.tasks.task import map_state


class ChordNetwork(JointHead, torch.nn.Linear):
    """A recurrent network over the keys of a step, from low to high. Its linear layer gives the logit of each key.

    The conditions are the outputs of the network over time at all keys, (N, keys p).

    **Arguments:** `layers`: reads the p conditions of a key and the features of the keys below; `keys`: how many.
    """

    candidates = 4  # each takes about as long as a step of the network over time

    def __init__(self, layers: Layer, keys: int) -> None:
        super().__init__(layers.output_size, 1)
        self.layers, self.keys, self.below = layers, keys, beneath(keys)
        self.set_order(LOW_HIGH)

    def logits(self, conditions: Tensor, chords: Tensor) -> Tensor:
        """Return the logit of every key, (N, keys), given the keys of the chord below it."""
        of_time = conditions.unflatten(1, (self.keys, -1))  # (N, keys, p)
        x = torch.cat([of_time, self.below(chords)], -1).transpose(0, 1)  # (keys, N, p + f)
        output, _ = self.layers(x)
        return head_logits(self, output).squeeze(-1).t()

    def following(self, conditions: Tensor, chords: Tensor) -> Tensor:
        return self.logits(conditions, chords)

    def nats(self, conditions: Tensor, chords: Tensor) -> Tensor:
        """Return the negative log-likelihood of chords, (N,); without gradients, compute `PIECE` of them at once.

        **Arguments:** `conditions` (N, keys p), `chords` (N, keys): zeros and ones.
        """
        piece = len(chords) if torch.is_grad_enabled() else PIECE
        pieces = zip(conditions.split(piece), chords.split(piece), strict=True)
        return torch.cat([self._nats(*each) for each in pieces])

    def _nats(self, conditions: Tensor, chords: Tensor) -> Tensor:
        logits = self.logits(conditions, chords)
        with full_precision(logits.device):
            return F.binary_cross_entropy_with_logits(logits, chords.to(logits.dtype), reduction="none").sum(1)

    def step(self, conditions: Tensor, chords: Tensor, key: int | Tensor) -> Tensor:
        """Return what the layers read at a key, (N, p + f), from its conditions (N, p) and the chords so far."""
        return torch.cat([conditions, self.below.of_key(chords, key)], 1)

    @torch.no_grad()
    def sample(self, conditions: Tensor, generator: torch.Generator, temperature: float = 1.0) -> Tensor:
        """Draw a chord for each row of conditions, exactly as probable as `nats` says.

        **Arguments:** see `JointHead.sample`. A temperature of 1 takes a step of the network for each key; another one
        a run over all keys for each key that is on, since it needs the chances of all keys to be the next.
        """
        if temperature != 1:
            return super().sample(conditions, generator, temperature)
        of_time = conditions.unflatten(1, (self.keys, -1)).transpose(0, 1).contiguous()  # (keys, N, p)
        chords, stepper = conditions.new_zeros(len(conditions), self.keys), self.layers.stepper()
        states = [cell.initial_state(len(chords)) for cell in self.layers.cells]
        draws = torch.rand(chords.shape, generator=generator, device=chords.device, dtype=chords.dtype).logit()
        for key in range(self.keys):
            output, states = stepper.run(self.step(of_time[key], chords, key), states)
            chords[:, key] = draws[:, key] < self(output)[:, 0]
        return chords


class TiedModel(SequenceModel):
    """A music model whose layers run over time for each key; see `rru.tasks.tied`. Its head is a `ChordNetwork`.

    It returns the outputs of its layers at all keys as the conditions of the head, (T, B, keys p), and their final
    state as (layers, B, keys n) for each part.

    **Arguments:** `layers`: over time; `chord_layers`: over keys; `architecture`: all else.
    """

    rows = KEYS
    head: ChordNetwork

    def __init__(self, layers: Layer, chord_layers: Layer, architecture: Architecture) -> None:
        def head(features: int, keys: int) -> ChordNetwork:
            return ChordNetwork(chord_layers, keys)

        super().__init__(layers, replace(architecture, head=head))
        self.around = around(KEYS)

    @classmethod
    def of(cls, layer: MakeLayer, input_size: int, hidden_size: int, architecture: Architecture) -> Self:
        """Build a model. The network over keys has half the hidden size, and half the output size if that is an option.

        So a budget has one model for every cell. At 250,000 parameters, 0.4 of an RRU's weights are over keys.
        """
        over_time = layer(around(KEYS).size, hidden_size)
        options: dict[str, Any] = {name: size for name, size in layer.keywords.items() if name == "output_size"}
        halved = {name: (size + 1) // 2 for name, size in options.items()}
        over_keys = layer(over_time.output_size + beneath(KEYS).size, (hidden_size + 1) // 2, **halved)
        return cls(over_time, over_keys, architecture)

    def read(self, inputs: Tensor) -> Tensor:
        """Return what the layers read, (.., B keys, m), of piano rolls (.., B, keys)."""
        features = self.around(inputs.reshape(-1, KEYS))  # (N, keys, m)
        return features.reshape(*inputs.shape[:-2], inputs.shape[-2] * KEYS, self.around.size)

    def outputs(self, output: Tensor) -> Tensor:
        """Return the conditions (.., B, keys p), from the outputs of the layers (.., B keys, p)."""
        return output.reshape(*output.shape[:-2], output.shape[-2] // KEYS, KEYS * output.shape[-1])

    def run(
        self, inputs: Tensor, state: LayerState, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor | tuple[Tensor, ...]]:
        """Run the layers on piano rolls (T, B, keys). Return outputs (T, B keys, p) and the final state."""
        lengths = None if lengths is None else lengths.repeat_interleave(KEYS)
        output, last = self.layers(self.read(inputs), map_state(_by_key, state), lengths=lengths)
        return output, map_state(_by_sequence, last)

    def example(self, *sizes: int) -> Tensor:
        return torch.zeros(*sizes, KEYS)

    def initial_state(self, batch: int) -> Tensor | tuple[Tensor, ...]:
        return map_state(_by_sequence, self.layers.initial_state(batch * KEYS))


def _by_key(part: Tensor) -> Tensor:
    """Return a part of the state of the layers, (layers, B keys, n), from that of sequences, (layers, B, keys n)."""
    layers, batch, size = part.shape
    return part.reshape(layers, batch * KEYS, size // KEYS)


def _by_sequence(part: Tensor) -> Tensor:
    """Return a part of the state of sequences, (layers, B, keys n), from that of the layers, (layers, B keys, n)."""
    layers, rows, size = part.shape
    return part.reshape(layers, rows // KEYS, KEYS * size)
