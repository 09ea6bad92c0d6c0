"""What a network that all keys share sees of a chord, relative to each key.

All of it is linear in the chord, so the features of all keys are one product with a constant matrix, which takes far
less time than the network itself.
"""

import torch
from torch import Tensor, nn

from rru.tasks.cross_entropy import full_precision

OCTAVE = 12
SIDE = 18  # keys to each side that the network over time sees of the last step
BELOW = 24  # keys below that the network over keys sees of the chord so far
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
        self.keys = keys
        place = torch.arange(keys)
        apart = (place[:, None] - place)[..., None]  # (from, to, 1), in semitones
        near = apart == torch.arange(distances.start, distances.stop)
        interval = apart % OCTAVE == torch.arange(OCTAVE)
        parts = [near.float(), interval.float(), torch.full((keys, keys, 1), COUNT_SCALE)]
        weight = torch.cat(parts, -1)  # (from, to, features of the chord)
        if below:
            weight = weight * (apart < 0)
        height = 2 * place[:, None] / max(keys - 1, 1) - 1
        pitch = (place[:, None] % OCTAVE == torch.arange(OCTAVE)).float()
        own = torch.cat([pitch, height, height.square()], -1)  # (keys, features of the key)
        self.size = weight.shape[-1] + own.shape[-1]
        weight = torch.cat([weight, torch.zeros(keys, keys, own.shape[-1])], -1)
        bias = torch.cat([torch.zeros(keys, self.size - own.shape[-1]), own], -1)
        self.register_buffer("weight", weight.flatten(1), persistent=False)
        self.register_buffer("bias", bias.flatten(), persistent=False)

    def forward(self, chords: Tensor) -> Tensor:
        """Return the features of all keys, (N, keys, f), of chords (N, keys) of zeros and ones."""
        with full_precision(chords.device):
            return torch.addmm(self.bias, chords.to(self.weight.dtype), self.weight).unflatten(
                1, (self.keys, self.size)
            )

    def of_key(self, chords: Tensor, key: int | Tensor) -> Tensor:
        """Return the features of one key, (N, f)."""
        weight, bias = (tensor.unflatten(-1, (self.keys, self.size)) for tensor in (self.weight, self.bias))
        return torch.addmm(bias[key], chords.to(weight.dtype), weight[:, key])


def around(keys: int) -> KeyFeatures:
    """Return what a key sees of the last step: all keys, those around it one by one."""
    return KeyFeatures(keys, range(-SIDE, SIDE + 1), below=False)


def beneath(keys: int) -> KeyFeatures:
    """Return what a key sees of the chord that it belongs to: the keys below it."""
    return KeyFeatures(keys, range(-BELOW, 0), below=True)
