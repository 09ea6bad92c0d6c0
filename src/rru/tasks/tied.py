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
from torch import Tensor, nn

from rru.data import KEYS
from rru.nn import Layer
from rru.scan import Stepper
from rru.scan.reference import State
from rru.tasks.cross_entropy import full_precision, head_logits
from rru.tasks.joint import LOW_HIGH, PIECE, JointHead
from rru.tasks.keys import AROUND, BENEATH, around, beneath, feature_count
from rru.tasks.models import Architecture, LayerState, MakeLayer, SequenceModel
from rru.tasks.task import map_state

SPAN = 30  # keys to draw in one run; more are drawn in vain if one is on, fewer need more calls
MANY_CHORDS = 32  # to draw at once: then a run takes so long that none may be in vain


class ChordNetwork(JointHead, nn.Linear):
    """A recurrent network over the keys of a step, from low to high. Its linear layer gives the logit of each key.

    The conditions are the outputs of the network over time at all keys, (N, keys p).

    **Arguments:** `layers`: reads the p conditions of a key and the features of the keys below; `keys`: how many.
    """

    candidates = 4  # each takes longer than a step of the network over time, but far less than a call for it alone

    def __init__(self, layers: Layer, keys: int) -> None:
        super().__init__(layers.output_size, 1)
        self.layers, self.keys, self.below = layers, keys, beneath(keys)
        self.set_order(LOW_HIGH)

    def logits(self, conditions: Tensor, chords: Tensor) -> Tensor:
        """Return the logit of every key, (N, keys), given the keys of the chord below it."""
        return self._run(self._by_key(conditions), chords, None, 0)[0]

    def _run(self, conditions: Tensor, chords: Tensor, state: Any, start: int) -> tuple[Tensor, Any]:
        """Run over some keys, from `start` on.

        **Arguments:** `conditions`: (N, some, p); `chords`: (N, keys); `state`: that after the keys below.

        **Returns:** the logits (N, some), and the state after them.
        """
        below = self.below(chords, start, start + conditions.shape[1])  # (N, some, f)
        output, state = self.layers(torch.cat([conditions, below], -1).transpose(0, 1), state)  # (some, N, p')
        return head_logits(self, output).squeeze(-1).t(), state

    def _by_key(self, conditions: Tensor) -> Tensor:
        """Return the conditions of each key, (N, keys, p)."""
        return conditions.reshape(conditions.shape[0], self.keys, conditions.shape[1] // self.keys)

    def following(self, conditions: Tensor, chords: Tensor) -> Tensor:
        return self.logits(conditions, chords)

    def nats(self, conditions: Tensor, chords: Tensor) -> Tensor:
        """Return the negative log-likelihood of chords, (N,); without gradients, compute `PIECE` of them at once.

        **Arguments:** `conditions` (N, keys p), `chords` (N, keys): zeros and ones.
        """
        piece = len(chords) if torch.is_grad_enabled() else PIECE
        pieces = zip(torch.split(conditions, piece), torch.split(chords, piece), strict=True)
        return torch.cat([self._nats(*each) for each in pieces])

    def _nats(self, conditions: Tensor, chords: Tensor) -> Tensor:
        logits = self.logits(conditions, chords)
        with full_precision(logits.device):
            return F.binary_cross_entropy_with_logits(logits, chords.to(logits.dtype), reduction="none").sum(1)

    @torch.no_grad()
    def sample(self, conditions: Tensor, generator: torch.Generator, temperature: float | Tensor = 1.0) -> Tensor:
        """Draw a chord for each row of conditions, exactly as probable as `nats` says.

        **Arguments:** see `JointHead.sample`.

        A temperature of 1 draws every key in turn. One run over a span of keys tells their chances up to the first that
        is on, so only then it is run again: a call for each key would take several times as long. Another temperature
        runs over all keys for each key that is on, for the chances of each to be the next.
        """
        if isinstance(temperature, Tensor) or temperature != 1:
            return super().sample(conditions, generator, temperature)
        chords, state = conditions.new_zeros(len(conditions), self.keys), None
        draws = torch.rand(chords.shape, generator=generator, device=chords.device, dtype=chords.dtype).logit()
        of_time = self._by_key(conditions)
        size = SPAN if len(chords) < MANY_CHORDS else 1
        for start in range(0, self.keys, size):
            some = slice(start, min(start + size, self.keys))
            state = self._draw(of_time[:, some], draws[:, some], chords, state, start)
        return chords

    def _draw(self, conditions: Tensor, draws: Tensor, chords: Tensor, state: Any, start: int) -> Any:
        """Draw some keys of chords, from `start` on, and return the state after them.

        **Arguments:** `conditions`: (N, some, p); `draws`: (N, some), logits of random numbers; others see `_run`.
        """
        places = torch.arange(draws.shape[1], device=draws.device)
        drawn = places.new_zeros(len(draws), 1)  # keys of each chord
        while True:
            logits, after = self._run(conditions, chords, state, start)
            on = (draws < logits) & (places >= drawn)
            first = on.float().argmax(1, keepdim=True)
            hit = on.gather(1, first)
            chords[:, start : start + len(places)].scatter_add_(1, first, hit.to(chords.dtype))
            drawn = torch.where(hit, first + 1, len(places))
            if (drawn == len(places)).all():  # no key saw another one that was drawn in this run
                return after


class ChordStep(nn.Module):
    """Run a `ChordNetwork` for one key, for other runtimes.

    It maps the number of the key (1,), its conditions (N, p), the chords so far (N, keys) and the parts of the state,
    (layers, N, n) each, to the logits (N,) and the new state.
    """

    def __init__(self, head: ChordNetwork) -> None:
        super().__init__()
        self.head = head

    def forward(self, key: Tensor, conditions: Tensor, chord: Tensor, *state: Tensor) -> tuple[Tensor, LayerState]:
        x = torch.cat([conditions, self.head.below.at(key, chord)], 1)  # (N, p + f)
        output, last = self.head.layers(x.unsqueeze(0), state[0] if len(state) == 1 else state)
        return self.head(output.squeeze(0)).squeeze(1), last

    def initial_state(self, batch: int) -> list[Tensor]:
        """Return the parts of the state before the lowest key."""
        state = self.head.layers.initial_state(batch)
        return [state] if isinstance(state, Tensor) else list(state)

    def example(self, batch: int) -> list[Tensor]:
        """Return inputs: zeros, and the initial state."""
        conditions = torch.zeros(batch, self.head.layers.input_size - self.head.below.size)
        chords = torch.zeros(batch, self.head.keys)
        return [torch.zeros(1, dtype=torch.long), conditions, chords, *self.initial_state(batch)]


class TiedModel(SequenceModel):
    """A music model whose layers run over time for each key; see `rru.tasks.tied`. Its head is a `ChordNetwork`.

    It returns the outputs of its layers at all keys as the conditions of the head, (T, B, keys p), and their final
    state as (layers, B, keys n) for each part. If it knows the place of each step in a bar, it counts steps from the
    first on, and the last part of its state is the place of the next, (layers, B, 1).

    **Arguments:** `layers`: over time; `chord_layers`: over keys; `architecture`: all else.
    """

    head: ChordNetwork

    def __init__(self, layers: Layer, chord_layers: Layer, architecture: Architecture) -> None:
        def head(features: int, keys: int) -> ChordNetwork:
            return ChordNetwork(chord_layers, keys)

        super().__init__(layers, replace(architecture, head=head))
        self.around, self.bar = around(KEYS), architecture.bar

    @classmethod
    def of(cls, layer: MakeLayer, input_size: int, hidden_size: int, architecture: Architecture) -> Self:
        """Build a model. The network over keys has half the hidden size, and half the output size if that is an option.

        So a budget has one model for every cell. At 250,000 parameters, 0.4 of an RRU's weights are over keys.
        """
        over_time = layer(feature_count(AROUND) + (architecture.bar or 0), hidden_size)
        options: dict[str, Any] = {name: size for name, size in layer.keywords.items() if name == "output_size"}
        halved = {name: (size + 1) // 2 for name, size in options.items()}
        over_keys = layer(over_time.output_size + feature_count(BENEATH), (hidden_size + 1) // 2, **halved)
        return cls(over_time, over_keys, architecture)

    def read(self, inputs: Tensor, places: Tensor | None = None) -> Tensor:
        """Return what the layers read, (.., B keys, m), of piano rolls (.., B, keys).

        **Arguments:** `places`: (.., B), those of the steps in a bar, if the model knows them.
        """
        features: Tensor = self.around(inputs.reshape(-1, KEYS))  # (N, keys, f)
        if self.bar is not None:
            assert places is not None
            here = places.reshape(-1, 1, 1) == torch.arange(self.bar, device=places.device)  # (N, 1, bar)
            features = torch.cat([features, here.to(features.dtype).expand(-1, KEYS, -1)], -1)
        return features.reshape(*inputs.shape[:-2], inputs.shape[-2] * KEYS, features.shape[-1])

    def outputs(self, output: Tensor) -> Tensor:
        """Return the conditions (.., B, keys p), from the outputs of the layers (.., B keys, p)."""
        return output.reshape(*output.shape[:-2], output.shape[-2] // KEYS, KEYS * output.shape[-1])

    def run(
        self, inputs: Tensor, state: LayerState, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor | tuple[Tensor, ...]]:
        """Run the layers on piano rolls (T, B, keys). Return outputs (T, B keys, p) and the final state."""
        steps, batch, _ = inputs.shape
        rows = None if lengths is None else lengths.repeat_interleave(KEYS)
        if self.bar is None:
            output, last = self.layers(self.read(inputs), map_state(_by_key, state), lengths=rows)
            return output, _by_sequence(last)
        *parts, place = self.initial_state(batch) if state is None else state  # place: (layers, B, 1)
        count = torch.arange(steps, device=place.device) % self.bar  # in whole numbers: bfloat16 has few of them
        places = (place[0].t() + count[:, None]) % self.bar  # (T, B)
        known = tuple(map(_by_key, parts))
        output, last = self.layers(self.read(inputs, places), known[0] if len(known) == 1 else known, lengths=rows)
        passed = steps % self.bar if lengths is None else (lengths % self.bar).to(place)[:, None]
        after = (place + passed) % self.bar
        return output, (*_parts(_by_sequence(last)), after)

    def step(self, stepper: Stepper, inputs: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        count, places = len(inputs), None
        if self.bar is not None:
            states, places = [state[:-1] for state in states], states[0][-1].squeeze(1)
        by_key = [tuple(part.reshape(count * KEYS, -1) for part in state) for state in states]
        output, after = stepper.run(self.read(inputs, places), by_key)
        joined = [tuple(part.reshape(count, -1) for part in state) for state in after]
        if self.bar is None or places is None:
            return output, joined
        place = ((places + 1) % self.bar)[:, None]
        return output, [(*state, place) for state in joined]

    def example(self, *sizes: int) -> Tensor:
        return torch.zeros(*sizes, KEYS)

    @property
    def state_names(self) -> tuple[str, ...]:
        return super().state_names if self.bar is None else (*super().state_names, "place")

    def initial_state(self, batch: int) -> Tensor | tuple[Tensor, ...]:
        state = _by_sequence(self.layers.initial_state(batch * KEYS))
        if self.bar is None:
            return state
        return (*_parts(state), self.head.weight.new_zeros(self.layers.num_layers, batch, 1))


def _parts(state: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (state,) if isinstance(state, Tensor) else state


def _by_key(part: Tensor) -> Tensor:
    """Return a part of the state of the layers, (layers, B keys, n), from that of sequences, (layers, B, keys n)."""
    layers, batch, size = part.shape
    return part.reshape(layers, batch * KEYS, size // KEYS)


def _by_sequence(state: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    """Return the state of sequences, (layers, B, keys n) each, from that of the layers, (layers, B keys, n) each."""
    joined = [part.reshape(part.shape[0], part.shape[1] // KEYS, KEYS * part.shape[2]) for part in _parts(state)]
    return joined[0] if isinstance(state, Tensor) else tuple(joined)
