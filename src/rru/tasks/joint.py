"""Joint outputs: heads that give a probability to whole chords, one key after another.

With independent keys, each key is on or off given the state alone. A joint head also looks at the keys that come
before a key in a fixed order, so the probability of a chord is exact and adds up to one over all 2^88 chords:

    log p(chord) = sum over keys i of log p(key i | keys before i, state)

This module has the heads `chain` and `nade`; `tied` is in `rru.tasks.tied`.
"""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rru.tasks.cross_entropy import full_precision

OUTPUTS = ("independent", "chain", "nade", "tied")
ORDERS = ("low-high", "high-low", "outside-in")
INDEPENDENT, LOW_HIGH, UNITS = OUTPUTS[0], ORDERS[0], 128  # the defaults
TIED = OUTPUTS[-1]
PIECE = 2048  # steps that are computed at once, so that they take some 40 MB


def head_of(output: str, units: int = UNITS, order: str = LOW_HIGH) -> Callable[[int, int], nn.Linear]:
    """Return what builds the head of a music model from its input size and the number of keys.

    **Arguments:**

    - `output`: `independent`: every key on its own, as in the paper; `chain`: a `ChainHead`; `nade`: a `NadeHead`. The
      model of `tied` is a `rru.tasks.TiedModel`, which makes its head itself.
    - `units`: hidden units of a `NadeHead`.
    - `order`: the order of keys: `low-high`, `high-low` or `outside-in`.
    """
    heads: dict[str, Callable[[int, int], nn.Linear]] = {
        INDEPENDENT: nn.Linear,
        "chain": partial(ChainHead, order=order),
        "nade": partial(NadeHead, units=units, order=order),
    }
    if output not in heads:
        raise ValueError(f"output must be {INDEPENDENT}, chain or nade, got {output!r}")
    return heads[output]


def key_order(name: str, keys: int) -> Tensor:
    """Return the keys in an order: `low-high`, `high-low`, or `outside-in` (lowest, highest, second lowest, ...)."""
    if name not in ORDERS:
        raise ValueError(f"order must be {', '.join(ORDERS[:-1])} or {ORDERS[-1]}, got {name!r}")
    low_high = torch.arange(keys)
    outside_in = torch.stack([low_high, low_high.flip(0)], 1).flatten()[:keys].clone()
    return {"low-high": low_high, "high-low": low_high.flip(0), "outside-in": outside_in}[name]


class JointHead(nn.Module):
    """Base class of joint heads, which tell how probable chords are under conditions (N, c).

    The conditions are what a model returns for a step; which they are depends on the head.
    """

    keys: int
    order: Tensor  # (keys,), the key at each position
    position: Tensor  # (keys,), the position of each key
    candidates = 64
    """How many chords to draw at first to find one with a wanted number of voices."""

    def set_order(self, name: str) -> None:
        """Set the order of keys; see `key_order`."""
        order = key_order(name, self.keys)
        self.register_buffer("order", order, persistent=False)
        self.register_buffer("position", order.argsort(), persistent=False)

    @abstractmethod
    def following(self, conditions: Tensor, chords: Tensor) -> Tensor:
        """Return the logits of the keys that follow the last key of a chord, if the chord is all that is on so far.

        **Arguments:** `conditions` (N, c), `chords` (N, keys): zeros and ones.

        **Returns:** (N, keys). The logits of keys before the last key of the chord have no meaning.
        """

    @abstractmethod
    def nats(self, conditions: Tensor, chords: Tensor) -> Tensor:
        """Return the negative log-likelihood of chords, (N,), in full precision.

        **Arguments:** see `following`.
        """

    @torch.no_grad()
    def sample(self, conditions: Tensor, generator: torch.Generator, temperature: float | Tensor = 1.0) -> Tensor:
        """Draw a chord for each row of conditions, exactly as probable as `nats` says.

        Draw the next key that is on, or that there is none, until there is none.

        **Arguments:**

        - `conditions`: (N, c).
        - `generator`: the random generator, on the device of the conditions.
        - `temperature`: divides the log-probabilities of which key is next. Whether there is one is left as it is. A
          number, or one for each row, (N, 1).

        **Returns:** (N, keys), zeros and ones.
        """
        chords = conditions.new_zeros(len(conditions), self.keys)
        last = torch.full((len(chords), 1), -1, device=chords.device)  # position of the last key
        places = torch.arange(self.keys, device=chords.device)
        while (last < self.keys).any():
            logits = self.following(conditions, chords)[:, self.order].double()
            off = F.logsigmoid(-logits).where(places > last, 0.0)
            on = F.logsigmoid(logits).where(places > last, -torch.inf)
            after = on + off.cumsum(1) - off  # of each position to be the next
            none = off.sum(1, keepdim=True)
            if isinstance(temperature, Tensor) or temperature != 1:
                after = (after / temperature).log_softmax(1).nan_to_num(-torch.inf) + torch.log(-torch.expm1(none))
            chances = torch.cat([after, none], 1).exp().nan_to_num(0.0)
            last = torch.multinomial(chances, 1, generator=generator)  # keys: none
            more = last[:, 0] < self.keys
            chords[more, self.order[last[more, 0]]] = 1
        return chords


class LinearJointHead(JointHead, nn.Linear):
    """Base class of joint heads whose conditions are linear in the features of a step.

    Called as a linear layer, it maps features (.., p) to conditions (.., c). All else is computed from the conditions
    and a chord: the first `keys` conditions are the logits without what other keys add to them.

    These depend only on the keys that are on, so they change only where a key is on. `nats` therefore computes them
    once for each key that is on and once for the empty chord, about five times in a chorale and not 88.

    **Arguments:**

    - `features`: input size.
    - `keys`: the number of keys.
    - `conditions`: the number of conditions.
    - `order`: see `key_order`.
    """

    def __init__(self, features: int, keys: int, conditions: int, order: str) -> None:
        super().__init__(features, conditions)
        self.keys = keys
        self.set_order(order)

    @abstractmethod
    def effect(self, inner: Tensor, chords: Tensor) -> Tensor:
        """Return what the keys of a chord add to the logits of the keys after them.

        **Arguments:** `inner` (N, c - keys): the conditions that are not logits; `chords` (N, keys): zeros and ones.

        **Returns:** (N, keys). The values at keys before the last key of the chord have no meaning.
        """

    @abstractmethod
    def sampling(self) -> dict[str, Tensor]:
        """Return the tensors that sampling needs beside the conditions: `order`, and the parameters of the head."""

    def following(self, conditions: Tensor, chords: Tensor) -> Tensor:
        return conditions[:, : self.keys] + self.effect(conditions[:, self.keys :], chords)

    def logits(self, conditions: Tensor, chords: Tensor) -> Tensor:
        """Return the logit of every key, given the keys of the chord before it.

        **Arguments:** see `following`.

        **Returns:** (N, keys).
        """
        on = chords[:, self.order].long()  # (N, keys)
        before = (on.cumsum(1) - on)[:, self.position]  # keys that are on before each key
        rows = on.sum(1) + 1  # a row for each beginning of a chord: without keys, with one, ..., with all
        step = torch.repeat_interleave(rows)  # (M,)
        first = rows.cumsum(0) - rows  # (N,), the row without keys
        sounding = torch.arange(len(step), device=on.device) - first[step]  # (M,), keys that are on in a row
        beginnings = chords[step] * (before[step] < sounding[:, None])  # (M, keys)
        inner = conditions[:, self.keys :].index_select(0, step)  # its backward pass is much faster than indexing's
        effect = self.effect(inner, beginnings)  # (M, keys)
        return conditions[:, : self.keys] + effect.gather(0, first[:, None] + before)

    def nats(self, conditions: Tensor, chords: Tensor) -> Tensor:
        """Return the negative log-likelihood of chords, (N,). Compute `PIECE` of them at once to save memory.

        **Arguments:** see `following`.
        """
        chords = chords.to(conditions.dtype)
        with full_precision(conditions.device):
            if len(chords) <= PIECE:
                return self._nats(conditions, chords)
            pieces = []
            for start in range(0, len(chords), PIECE):
                piece = conditions[start : start + PIECE], chords[start : start + PIECE]
                if torch.is_grad_enabled():  # computed again in the backward pass
                    pieces.append(checkpoint(self._nats, *piece, use_reentrant=False, preserve_rng_state=False))
                else:
                    pieces.append(self._nats(*piece))
            return torch.cat(pieces)

    def _nats(self, conditions: Tensor, chords: Tensor) -> Tensor:
        logits = self.logits(conditions, chords)
        return F.binary_cross_entropy_with_logits(logits, chords, reduction="none").sum(1)


class ChainHead(LinearJointHead):
    """Add a matrix from the keys before a key to its logit.

    **Arguments:** `features`: input size; `keys`: the number of keys; `order`: see `key_order`.
    """

    def __init__(self, features: int, keys: int, order: str = LOW_HIGH) -> None:
        super().__init__(features, keys, keys, order)
        self.between = nn.Parameter(torch.zeros(keys, keys))  # (to, from); only from keys before is used

    def effect(self, inner: Tensor, chords: Tensor) -> Tensor:
        return chords @ self._masked().t()

    def _masked(self) -> Tensor:
        return self.between.where(self.position[None, :] < self.position[:, None], 0)

    def logits(self, conditions: Tensor, chords: Tensor) -> Tensor:
        return self.following(conditions, chords)  # the mask leaves out the keys that follow

    def sampling(self) -> dict[str, Tensor]:
        return {"order": self.order, "between": self._masked()}


class NadeHead(LinearJointHead):
    """Add a hidden layer that sees the keys before a key and the state (a NADE, Larochelle and Murray 2011).

    The conditions are the logits (keys) and the input of the hidden layer (units), both without any key.

    **Arguments:** `features`: input size; `keys`: the number of keys; `units`: hidden units; `order`: see `key_order`.
    """

    def __init__(self, features: int, keys: int, units: int = UNITS, order: str = LOW_HIGH) -> None:
        super().__init__(features, keys, keys + units, order)
        self.to_hidden = nn.Parameter(torch.empty(keys, units))
        self.from_hidden = nn.Parameter(torch.empty(units, keys))
        nn.init.xavier_uniform_(self.to_hidden)
        nn.init.xavier_uniform_(self.from_hidden)

    def effect(self, inner: Tensor, chords: Tensor) -> Tensor:
        return torch.addmm(inner, chords, self.to_hidden).relu() @ self.from_hidden

    def sampling(self) -> dict[str, Tensor]:
        return {"order": self.order, "to_hidden": self.to_hidden, "from_hidden": self.from_hidden}
