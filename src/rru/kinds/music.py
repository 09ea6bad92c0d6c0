"""Music: piano rolls of the catalogue, and users' MIDI files."""

from rru.data.own import midi
from rru.data.own.data_json import Statistics
from rru.kinds import sizes
from rru.kinds.kind import CODE, Card, Kind
from rru.kinds.sizes import Tables
from rru.tasks import JointHead, MusicTask

INPUTS = "(steps, batch, 88) float32, 1 where a key sounds"
JOINT_CODE = {
    "safetensors": """import torch
import rru

trained = rru.load(".")
conditions, state = trained.model(inputs)
chords = trained.model.head.sample(conditions[-1], torch.Generator())  # (batch, 88): the next step
""",
    "onnx": """import numpy as np
import onnxruntime

head, random = dict(np.load("head.npz")), np.random.default_rng(0)

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

step = onnxruntime.InferenceSession("step.onnx")
state = dict(np.load("initial_state.npz"))  # (layers, 1, features) each: repeat along axis 1 for a batch
for x in inputs:
    conditions, *after = step.run(None, {"input": x, **state})
    state = dict(zip(state, after))
chords = np.stack([sample(each) for each in conditions])  # (batch, 88): the next step; feed it back to compose on
""",
    "torch-export": CODE["torch-export"].replace("logits, state", "conditions, state"),
}
PLAIN = Card(f"{INPUTS}; logits are of the keys of the next step", CODE)
JOINT = Card(
    f"{INPUTS}; conditions say how probable the chords of the next step are, together with the weights of the head",
    JOINT_CODE,
)


def _auto(statistics: Statistics) -> Tables:
    steps, pieces = statistics["steps"][0], statistics["pieces"][0]
    context = sizes.power_of_two(steps / max(pieces, 1) * 2, 32, 256)
    batch_size = sizes.power_of_two(steps / context * 2 / sizes.BATCHES, sizes.MIN_BATCH, 16)
    model = {
        "budget": sizes.rounded(sizes.between(steps * 20, 100_000, 1_500_000)),
        "dropout": sizes.by_size(steps, (100_000, 0.6), (1_000_000, 0.4), (0, 0.2)),
    }
    return sizes.tables(steps, {"context": context, "batch_size": batch_size}, model)


MUSIC = Kind(
    format=midi.FORMAT,
    task=MusicTask,
    noun="music",
    commands=("compose", "stream"),
    steps=sizes.counted("steps", "pieces"),
    inputs=PLAIN.inputs,
    card_of=lambda model: JOINT if isinstance(model.head, JointHead) else PLAIN,
    auto=_auto,
    figure="piano roll",
)
