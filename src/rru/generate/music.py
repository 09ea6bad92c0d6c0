"""Music from a trained model: each step's keys are drawn from what the model expects after the steps before."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from rru.generate.trained import Trained, check_temperature

KEYS = 88
STEPS_PER_BEAT = {"jsb": 1, "bach": 1}  # quarter notes; the other sets are in eighths
EIGHTHS = 2
BEATS_PER_BAR = 4
STUCK = 16  # steps without any change, from which on a piece is stuck

Roll = NDArray[np.uint8]


@dataclass(frozen=True)
class Piece:
    """A piece of music.

    **Arguments:**

    - `roll`: (T, 88), 1 where a key sounds; prompt and continuation.
    - `prompt`: how many of its first steps were given.
    - `steps_per_beat`: how many steps make a quarter note.
    """

    roll: Roll
    prompt: int
    steps_per_beat: int

    @property
    def steps_per_bar(self) -> int:
        """How many steps make a bar of four quarter notes."""
        return BEATS_PER_BAR * self.steps_per_beat

    def complaints(self) -> list[str]:
        """What is wrong with what was composed, in words: hardly a note, or no change."""
        made = self.roll[self.prompt :]
        found = []
        silent = int((made.sum(1) == 0).sum())
        if 2 * silent > len(made):
            found.append(f"{silent} of {len(made)} steps are silent")
        longest = _longest_hold(made)
        if longest >= STUCK or longest == len(made) >= BEATS_PER_BAR:
            found.append(f"nothing changes for {longest} steps")
        return found


def steps_per_beat(task: str) -> int:
    """How many steps of a task's data make a quarter note."""
    return STEPS_PER_BEAT.get(task, EIGHTHS)


def compose(trained: Trained, prompt: Roll, steps: int, *, temperature: float = 1.0, seed: int = 0) -> Piece:
    """Goes on with a piece.

    **Arguments:**

    - `trained`: a model of music.
    - `prompt`: (T, 88), what was played so far; at least one step.
    - `steps`: how many to compose.
    - `temperature`: below 1 the likely becomes likelier, above 1 the unlikely.
    - `seed`: of what is drawn.
    """
    trained.check_kind("music", to="compose")
    if prompt.ndim != 2 or prompt.shape[1] != KEYS or not len(prompt):
        raise ValueError(f"prompt must be (steps, {KEYS}) with at least one step, got shape {prompt.shape}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    check_temperature(temperature)
    generator = torch.Generator().manual_seed(seed)
    heard = torch.from_numpy(prompt.astype(np.float32))[:, None]  # (T, 1, 88)
    made: list[Roll] = []
    with torch.no_grad():
        logits, state = trained.model(heard)
        while True:
            chances = torch.sigmoid(trained.checked(logits[-1]) / temperature)  # (1, 88)
            sounding = torch.bernoulli(chances, generator=generator)
            made.append(sounding.numpy().astype(np.uint8)[0])
            if len(made) == steps:
                break
            logits, state = trained.model(sounding[None], state)
    return Piece(np.concatenate([prompt.astype(np.uint8), np.stack(made)]), len(prompt), steps_per_beat(trained.task))


def notes(roll: Roll) -> list[tuple[int, int, int]]:
    """The notes of a roll: key, first step and length. Steps in a row on which a key sounds are one note."""
    edges = np.diff(np.pad(roll.astype(np.int8), ((1, 1), (0, 0))), axis=0)  # (T + 1, 88)
    starts, ends = np.argwhere(edges.T == 1), np.argwhere(edges.T == -1)  # (key, step), key by key
    found = [(int(key), int(start), int(end - start)) for (key, start), (_, end) in zip(starts, ends, strict=True)]
    return sorted(found, key=lambda note: (note[1], note[0]))


def _longest_hold(roll: Roll) -> int:
    """The longest run of equal steps."""
    longest = current = min(len(roll), 1)
    for before, now in pairwise(roll):
        current = current + 1 if (before == now).all() else 1
        longest = max(longest, current)
    return longest
