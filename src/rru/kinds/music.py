"""Music: piano rolls of the catalogue, and users' MIDI files."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rru.data import KEYS, Music
from rru.data.own import midi
from rru.data.own.data_json import Statistics
from rru.kinds import sizes
from rru.kinds.kind import Card, Kind, TrainedOn
from rru.kinds.sizes import Tables
from rru.kinds.sources import Source, items_of, numbers_of
from rru.tasks import ChordNetwork, JointHead, MusicTask, Recurrent

STEPS_PER_BEAT = {"jsb": 1, "bach": 1}  # a step is a quarter note
LONGEST_BAR = 48  # steps: the place in a longer one takes too many inputs
MOST_SHARED = 500_000  # steps: with more, a network that all keys share takes hours
DEFAULT_STEPS_PER_BEAT = 2  # in the other data sets, a step is an eighth note
INPUTS = "(steps, batch, 88) float32, 1 where a key sounds; key 0 is the MIDI note 21"
CHORDS = """inputs = np.zeros((8, 1, 88), np.float32)
for note in (60, 64, 67, 72):
    inputs[:, 0, note - 21] = 1
"""
PROBABLE = """chances = 1 / (1 + np.exp(-logits[-1, 0]))  # (88,), of each key at the next step
for key in np.argsort(-chances)[:4]:
    print(f"note {21 + key}: {chances[key]:.0%}")
"""
SAMPLER = """head, random = dict(np.load("head.npz")), np.random.default_rng(0)


def sample(conditions):  # of one sequence
    chord = np.zeros(88, np.float32)
    for key in head["order"]:
        logit = conditions[key]
        if "between" in head:  # chain
            logit = logit + head["between"][key] @ chord
        else:  # nade
            hidden = np.maximum(conditions[88:] + chord @ head["to_hidden"], 0)
            logit = logit + hidden @ head["from_hidden"][:, key]
        chord[key] = random.random() < 1 / (1 + np.exp(-logit))
    return chord


chord = sample(conditions[-1, 0])  # (88,), the next step; feed it back to compose on
print("notes", *(21 + np.flatnonzero(chord)))
"""
HEAD_SAMPLER = """chord = trained.model.head.sample(torch.from_numpy(conditions[-1]), torch.Generator())
print("notes", *(21 + np.flatnonzero(chord)))  # (1, 88), the next step; feed it back to compose on
"""
CHORD_NETWORK = """network, random = onnxruntime.InferenceSession("chord.onnx"), np.random.default_rng(0)


def sample(conditions):  # of one sequence
    chord, state = np.zeros((1, 88), np.float32), dict(np.load("chord_state.npz"))
    for key, of_key in enumerate(conditions.reshape(88, 1, -1)):
        inputs = {"key": np.array([key]), "conditions": of_key, "chord": chord}
        logit, *after = network.run(None, inputs | state)
        state = dict(zip(state, after))
        chord[0, key] = random.random() < 1 / (1 + np.exp(-logit[0]))
    return chord[0]


"""
CHORD_PROGRAM = """network, random = torch.export.load("chord.pt2").module(), np.random.default_rng(0)


def sample(conditions):  # of one sequence; the program takes two or more, here twice the same
    chord, state = torch.zeros(2, 88), [torch.from_numpy(part) for part in dict(np.load("chord_state.npz")).values()]
    state = [part.repeat(1, 2, 1) for part in state]
    for key, of_key in enumerate(torch.from_numpy(conditions).reshape(88, 1, -1)):
        logit, after = network(torch.tensor([key]), of_key.repeat(2, 1), chord, *state)
        state = after if isinstance(after, tuple) else (after,)
        chord[:, key] = float(random.random() < logit[0].sigmoid())
    return chord[0].numpy()


"""
NEXT_CHORD = SAMPLER[SAMPLER.index("chord = sample") :]
PLAIN = Card(CHORDS, PROBABLE)
JOINT = Card(
    CHORDS,
    SAMPLER,
    "conditions",
    HEAD_SAMPLER,
    f"{INPUTS}; conditions say how probable the chords of the next step are, together with the weights of the head",
)
TIED = Card(
    CHORDS,
    CHORD_NETWORK + NEXT_CHORD,
    "conditions",
    HEAD_SAMPLER,
    f"{INPUTS}; conditions say how probable the keys of the next step are, together with the keys below: a second "
    "network runs over the keys, from low to high",
    CHORD_PROGRAM + NEXT_CHORD,
)


def _auto(statistics: Statistics, scale: float) -> Tables:
    """Return one network for all keys, unless there is so much music that it would take hours."""
    steps, pieces = statistics["steps"][0], statistics["pieces"][0]
    shared, bar = steps <= MOST_SHARED, statistics.get("bar", 0)  # data that was read by an older version has none
    bar = bar if shared and 2 <= bar <= LONGEST_BAR else 0
    context = max(sizes.power_of_two(steps / max(pieces, 1) * 2, 32, 256), bar)
    context -= context % bar if bar else 0
    batch_size = sizes.power_of_two(steps / context * 2 / sizes.BATCHES, sizes.MIN_BATCH, 16)
    budget = int(scale * (sizes.between(steps * 20, 100_000, 250_000) if shared else 1_500_000))
    budget = max(budget, 70_000 + 1_200 * bar)  # room for a state of at least 16
    epochs = sizes.between(1_500_000 // max(steps, 1), 3, 60) if shared else sizes.between(10_000_000 // steps, 5, 60)
    task: dict[str, float | str] = {
        "output": "tied" if shared else "nade",
        "context": context,
        "batch_size": batch_size,
    }
    task |= {"bar": bar} if bar else {}
    model = {"budget": sizes.rounded(budget), "dropout": 0.4 if steps < 1_000_000 else 0.2}
    return sizes.decaying(epochs, task, model)


def _smoke(statistics: Statistics) -> Tables:
    """Return the changes of `smoke`; the inputs for the place in a bar need room."""
    return {**sizes.smoke(statistics), "model": {"dropout": 0.1, "budget": 60_000}}


def steps_per_beat(trained: TrainedOn) -> int:
    """Return the steps per quarter note in the data of a model."""
    if trained.data is not None:
        return int(trained.data.options.get("grid", midi.GRID))
    return STEPS_PER_BEAT.get(trained.settings.name, DEFAULT_STEPS_PER_BEAT)


def _read(trained: TrainedOn, source: Source, labels: Iterable[object] | None) -> Music:
    """Read pieces: a MIDI file, a folder of these, piano rolls (T, 88), or a list of any."""
    if labels is not None:
        raise TypeError("music to evaluate on has no labels")
    pieces: list[NDArray[np.uint8]] = []
    for each in [source] if isinstance(source, Path) else (item for _, item in items_of(source, 2)):
        if isinstance(each, Path | str):
            pieces += midi.rolls_in(Path(each).expanduser(), steps_per_beat(trained))
        else:
            pieces.append((numbers_of(each, (None, KEYS), "a piece") > 0).astype(np.uint8))
    return Music(pieces, pieces, pieces)


def _card(trained: TrainedOn, model: Recurrent) -> Card:
    if isinstance(model.head, ChordNetwork):
        return TIED
    return JOINT if isinstance(model.head, JointHead) else PLAIN


MUSIC = Kind(
    format=midi.FORMAT,
    task=MusicTask,
    noun="music",
    commands=("compose", "stream"),
    steps=sizes.counted("steps", "pieces"),
    inputs=f"{INPUTS}; logits are of the keys of the next step",
    card_of=_card,
    auto=_auto,
    smoke=_smoke,
    cells=sizes.NARROW_CELLS,
    read=_read,
    figure="piano roll",
    page="music",
)
