"""What a network that all keys share sees of a chord, relative to each key.

All of it is linear in the chord, so the features of all keys are one product with a constant matrix, which takes far
less time than the network itself.
"""

from functools import cache

import torch
from torch import Tensor, nn

from rru.tasks.cross_entropy import full_precision

OCTAVE = 12
SIDE = 18  # keys to each side that the network over time sees of the last step
BELOW = 24  # keys below that the network over keys sees of the chord so far
AROUND, BENEATH = range(-SIDE, SIDE + 1), range(-BELOW, 0)
COUNT_SCALE = 0.1  # of the number of keys that are on


class KeyFeatures(nn.Module):
    """Describe a chord to each key: which keys around it are on, and where it lies itself.

    The features of a key are: whether each key at some distances from it is on; how many keys are on by their interval
    to it in semitones, octaves aside (12); how many are on; its pitch class (12), its height and the square of that.

    **Arguments:**

    - `keys`: the number of keys.
    - `distances`: in semitones, from a key to those that it sees one by one.
    - `below`: whether it sees only the keys below it.
    """

    weight: Tensor  # (keys, keys f), from a chord
    bias: Tensor  # (keys f,), features that do not depend on the chord

    def __init__(self, keys: int, distances: range, *, below: bool) -> None:
        super().__init__()
        self.keys, self.size = keys, feature_count(distances)
        device = torch.get_default_device()  # to find a model's size, meta
        for name, constant in zip(("weight", "bias"), _constants(keys, distances, below), strict=True):
            self.register_buffer(name, constant.to(device, copy=True), persistent=False)

    def forward(self, chords: Tensor, start: int = 0, end: int | None = None) -> Tensor:
        """Return the features of the keys from `start` up to `end`, by default of all.

        **Arguments:** `chords`: (N, keys), zeros and ones.

        **Returns:** (N, end - start, f).
        """
        end = self.keys if end is None else end
        columns = slice(start * self.size, end * self.size)
        with full_precision(chords.device):
            features = torch.addmm(self.bias[columns], chords.to(self.weight.dtype), self.weight[:, columns])
            return features.reshape(chords.shape[0], end - start, self.size)

    def at(self, key: Tensor, chords: Tensor) -> Tensor:
        """Return the features of one key, (N, f), whose number is a tensor (1,)."""
        weight = self.weight.view(self.keys, self.keys, self.size).index_select(1, key).squeeze(1)  # (keys, f)
        bias = self.bias.view(self.keys, self.size).index_select(0, key)  # (1, f)
        return torch.addmm(bias, chords.to(weight.dtype), weight)


@cache
def _constants(keys: int, distances: range, below: bool) -> tuple[Tensor, Tensor]:
    """Return weight and bias of `KeyFeatures`. They are made once: to find its hidden size, a model is built often."""
    with torch.device("cpu"):
        place = torch.arange(keys)
        apart = (place[:, None] - place)[..., None]  # (from, to, 1), in semitones
        near = apart == torch.arange(distances.start, distances.stop)
        interval = apart % OCTAVE == torch.arange(OCTAVE)
        of_chord = torch.cat([near.float(), interval.float(), torch.full((keys, keys, 1), COUNT_SCALE)], -1)
        if below:
            of_chord = of_chord * (apart < 0)
        height = 2 * place[:, None] / max(keys - 1, 1) - 1
        pitch = (place[:, None] % OCTAVE == torch.arange(OCTAVE)).float()
        of_key = torch.cat([pitch, height, height.square()], -1)
        weight = torch.cat([of_chord, torch.zeros(keys, keys, of_key.shape[-1])], -1)  # (from, to, f)
        bias = torch.cat([torch.zeros(keys, of_chord.shape[-1]), of_key], -1)  # (to, f)
    return weight.flatten(1), bias.flatten()


def feature_count(distances: range) -> int:
    """Return f, the number of features of a key."""
    return len(distances) + 2 * OCTAVE + 3


def around(keys: int) -> KeyFeatures:
    """Return what a key sees of the last step: all keys, those around it one by one."""
    return KeyFeatures(keys, AROUND, below=False)


def beneath(keys: int) -> KeyFeatures:
    """Return what a key sees of the chord that it belongs to: the keys below it."""
    return KeyFeatures(keys, BENEATH, below=True)
