"""Export the models of tasks to ONNX: over whole sequences, and one step."""

from typing import Any

import torch
from torch import Tensor, nn

from rru.nn.onnx_export import exported
from rru.tasks import ChordNetwork, ChordStep, JointHead, LayerState, Recurrent, SequenceModel

_STEPS, _BATCH = torch.export.Dim("T"), torch.export.Dim("B")


def sequence_model(model: Recurrent) -> bytes:
    """Return an ONNX file that runs a model over whole sequences, starting from its initial state.

    **Inputs:** `input`, (T, B) tokens or (T, B, m). **Outputs:** `logits`, (T, B, outputs), or (B, outputs) of a
    classifier, or `conditions`, (T, B, c), of a joint head; and the last state, (layers, B, n) for each part: `h`,
    for the LSTMs `c`, and for music that knows the place of a step in a bar `place`.
    """
    names = model.state_names
    steps = {1: _BATCH} if model.window_steps else {0: _STEPS, 1: _BATCH}
    return exported(model, [model.example(model.window_steps or 3, 2)], (steps,), ["input"], [_output(model), *names])


def step_model(model: Recurrent) -> bytes:
    """Return an ONNX file that runs one step of a model; it takes the state and returns the new one.

    **Inputs:** `input`, (B,) tokens or (B, m); the state, (layers, B, n) for each part, as above.
    **Outputs:** `logits`, (B, outputs), or `conditions`, (B, c), of a joint head; the new state, `h_next` and so on.
    """
    names = model.state_names
    state = model.initial_state(2)
    parts = [state] if isinstance(state, Tensor) else list(state)
    shapes = ({0: _BATCH}, ({1: _BATCH},) * len(parts))
    outputs = [_output(model), *(f"{name}_next" for name in names)]
    return exported(_Step(model), [model.example(2), *parts], shapes, ["input", *names], outputs)


def chord_model(head: ChordNetwork) -> bytes:
    """Return an ONNX file that runs the network over keys for one key; it takes the state and returns the new one.

    **Inputs:** `key`, (1,), its number; `conditions`, (B, p), those of the key; `chord`, (B, keys), the keys so far;
    the state, (layers, B, n) for each part: `h`, and for the LSTMs `c`. **Outputs:** `logit`, (B,); the new state,
    `h_next`, and for the LSTMs `c_next`.
    """
    names = list(head.layers.cells[0].state_names)
    step = ChordStep(head)
    shapes: tuple[Any, ...] = ({}, {0: _BATCH}, {0: _BATCH}, ({1: _BATCH},) * len(names))
    outputs = ["logit", *(f"{name}_next" for name in names)]
    return exported(step, step.example(2), shapes, ["key", "conditions", "chord", *names], outputs)


def _output(model: Recurrent) -> str:
    return "conditions" if isinstance(model.head, JointHead) else "logits"


class _Step(nn.Module):
    """Run one step of a model: map an input and the parts of the state to the logits and the new state."""

    def __init__(self, model: Recurrent) -> None:
        super().__init__()
        self.model = model

    def forward(self, input: Tensor, *state: Tensor) -> tuple[Tensor, LayerState]:
        logits, last = self.model(input.unsqueeze(0), state[0] if len(state) == 1 else state)
        return logits.squeeze(0) if isinstance(self.model, SequenceModel) else logits, last
