"""Compose music with a trained model, one step at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rru.data import KEYS
from rru.data.own.data_json import MusicFacts
from rru.inference.sampling import check_temperature
from rru.kinds import music
from rru.tasks import JointHead

if TYPE_CHECKING:
    from rru.inference.trained import Trained

BEATS_PER_BAR = 4
OCTAVE = 12
CANDIDATES, ROUNDS = 64, 8  # most chords drawn at once, and how often, to find one with the wanted number of voices
STUCK_STEPS = 16  # a piece is stuck if it does not change for this many steps

Roll = NDArray[np.uint8]


@dataclass(frozen=True, repr=False)
class Piece:
    """A composed piece.

    **Arguments:**

    - `roll`: (T, 88), 1 where a key sounds: the prompt, then its continuation.
    - `prompt`: the number of steps in the prompt.
    - `steps_per_beat`: steps per quarter note.
    - `beats_per_bar`: quarter notes per bar.
    - `repeats`: how many steps of the roll a step of the model takes: more than 1 after a prompt with shorter notes.
    """

    roll: Roll
    prompt: int
    steps_per_beat: int
    repeats: int = 1
    beats_per_bar: float = BEATS_PER_BAR

    @property
    def steps_per_bar(self) -> int:
        """Steps per bar."""
        return max(round(self.beats_per_bar * self.steps_per_beat), 1)

    @property
    def composed(self) -> Roll:
        """The steps of the model after the prompt, (steps, 88)."""
        return self.roll[self.prompt :: self.repeats]

    def moved(self, octaves: int) -> Piece:
        """Return the piece some octaves higher, or lower if negative. Notes that would leave the keys stay."""
        target = np.arange(KEYS) + OCTAVE * octaves
        target = np.where((target >= 0) & (target < KEYS), target, np.arange(KEYS))
        roll = np.zeros_like(self.roll)
        for key in np.flatnonzero(self.roll.any(0)):
            roll[:, target[key]] |= self.roll[:, key]
        return replace(self, roll=roll)

    def __repr__(self) -> str:
        return f"<Piece of {len(self.roll)} steps, {self.prompt} of them given, {self.steps_per_bar} in a bar>"

    def save(self, path: Path | str, *, force: bool = False) -> list[Path]:
        """Write a .mid file, and a .png and a .wav next to it; return the three. `force` overwrites files."""
        from rru.inference import score  # it imports this module

        (place,) = score.places(Path(path), 1, force=force)
        return score.write(self, place)

    def _repr_html_(self) -> str:
        from rru.inference import notebook, picture, sound  # the last two import this module

        return notebook.image(picture.picture(self)) + notebook.audio(sound.sound(self))

    def complaints(self, voices: int | None = None) -> list[str]:
        """Return the problems of the composed part: mostly silent, stuck on one chord, or not of `voices` voices."""
        composed, problems = self.composed, []
        if voices is not None and (other := int((composed.sum(1) != voices).sum())):
            problems.append(f"{other} of {len(composed)} steps do not have {voices} voices")
        silent = int((composed.sum(1) == 0).sum())
        if 2 * silent > len(composed):
            problems.append(f"{silent} of {len(composed)} steps are silent")
        longest = _longest_repeat(composed)
        if longest >= STUCK_STEPS or longest == len(composed) >= BEATS_PER_BAR:
            problems.append(f"nothing changes for {longest} steps")
        return problems


def steps_per_beat(trained: Trained) -> int:
    """Return the steps per quarter note in the data of a model."""
    return music.steps_per_beat(trained.trained_on)


def beats_per_bar(trained: Trained) -> float:
    """Return the quarter notes per bar in the data of a model: of own music, those of most of its pieces."""
    return trained.facts.beats_per_bar if isinstance(trained.facts, MusicFacts) else BEATS_PER_BAR


def keeps_rests(trained: Trained) -> bool:
    """Return whether a model has learnt from music with its rests; the catalogue's tasks leave them out."""
    return trained.config.data is not None


class Sampling(TypedDict, total=False):
    """How a piece is sampled; see `compose`."""

    temperature: float
    voices: int | None
    seed: int


def compose(
    trained: Trained,
    prompt: Roll,
    steps: int,
    *,
    temperature: float = 1.0,
    voices: int | None = None,
    seed: int = 0,
) -> Piece:
    """Continue a piece.

    A model with a joint output samples whole chords; one with independent keys samples each key on its own.

    **Arguments:**

    - `trained`: a model trained on music.
    - `prompt`: (T, 88), the beginning of the piece; at least one step.
    - `steps`: the number of steps to compose.
    - `temperature`: below 1 the music is more predictable, above 1 more varied. With a joint output the number of
      voices does not depend on it; with independent keys, chords are thinner below 1 and denser above.
    - `voices`: the number of keys that sound at a time. Default: what the model samples. If the model gives
      that number almost no probability, a step has the nearest number that has some.
    - `seed`: random seed.
    """
    trained.check_command("compose")
    if prompt.ndim != 2 or prompt.shape[1] != KEYS or not len(prompt):
        raise ValueError(f"prompt must be (steps, {KEYS}) with at least one step, got shape {prompt.shape}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if voices is not None and not 1 <= voices <= KEYS:
        raise ValueError(f"voices must be from 1 to {KEYS}, got {voices}")
    check_temperature(temperature)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.from_numpy(prompt.astype(np.float32))[:, None]  # (T, 1, 88)
    composed: list[Roll] = []
    with torch.no_grad():
        logits, state = trained.model(inputs)
        while True:
            keys = _chord(trained.model.head, trained.checked(logits[-1]), generator, temperature, voices)  # (1, 88)
            composed.append(keys.numpy().astype(np.uint8)[0])
            if len(composed) == steps:
                break
            logits, state = trained.model(keys[None], state)
    roll = np.concatenate([prompt.astype(np.uint8), np.stack(composed)])
    return Piece(roll, len(prompt), steps_per_beat(trained), beats_per_bar=beats_per_bar(trained))


def _chord(
    head: torch.nn.Module, logits: Tensor, generator: torch.Generator, temperature: float, voices: int | None
) -> Tensor:
    """Sample a chord, (1, 88), from what the head gives, (1, c)."""

    def sample(count: int, usual: int = 0) -> Tensor:
        """Sample chords, (usual + count, 88), the first `usual` of them at temperature 1."""
        many = logits.expand(usual + count, -1)
        if not isinstance(head, JointHead):
            return torch.bernoulli(torch.sigmoid(many / temperature), generator=generator)
        temperatures = logits.new_tensor([1.0] * usual + [temperature] * count)[:, None]
        return head.sample(many, generator, temperatures if usual else temperature)

    if voices is None and (temperature == 1 or not isinstance(head, JointHead)):
        return sample(1)
    nearest, count = logits.new_zeros(0, KEYS), head.candidates if isinstance(head, JointHead) else CANDIDATES
    for number in range(ROUNDS):  # until a chord has this number of voices
        chords = sample(min(count << number, CANDIDATES), usual=int(voices is None))
        if voices is None:  # it is that of temperature 1; one call for all chords takes much less time than two
            voices, chords = int(chords[0].sum()), chords[1:]
        chords = torch.cat([nearest, chords])
        away = (chords.sum(1) - voices).abs()
        nearest = chords[away.argmin()][None]
        if not away.min():
            break
    return nearest


def notes(roll: Roll) -> list[tuple[int, int, int]]:
    """Return the notes of a roll: key, first step and length. Consecutive steps of a key are one note."""
    edges = np.diff(np.pad(roll.astype(np.int8), ((1, 1), (0, 0))), axis=0)  # (T + 1, 88)
    starts, ends = np.argwhere(edges.T == 1), np.argwhere(edges.T == -1)  # (key, step), key by key
    order = np.lexsort((starts[:, 0], starts[:, 1]))  # by step, then by key
    keys, steps = starts[order].T.tolist()
    return list(zip(keys, steps, (ends - starts)[order, 1].tolist(), strict=True))


def _longest_repeat(roll: Roll) -> int:
    """Return the length of the longest run of equal steps."""
    longest = current = min(len(roll), 1)
    for before, now in pairwise(roll):
        current = current + 1 if (before == now).all() else 1
        longest = max(longest, current)
    return longest
