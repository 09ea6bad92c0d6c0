"""Export models to ONNX with torch's exporter; `rru.scan.onnx` says how it translates the layers."""

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch import Tensor, nn

from rru.tasks import JointHead, LayerState, Recurrent, SequenceModel

_STEPS, _BATCH = torch.export.Dim("T"), torch.export.Dim("B")


def sequence_model(model: Recurrent) -> bytes:
    """Return an ONNX file that runs a model over whole sequences, starting from its initial state.

    **Inputs:** `input`, (T, B) tokens or (T, B, m). **Outputs:** `logits`, (T, B, outputs), or (B, outputs) of a
    classifier, or `conditions`, (T, B, c), of a joint head; and the last state, (layers, B, n) for each part: `h`, and
    for the LSTMs `c`.
    """
    names = model.layers.cells[0].state_names
    steps = {1: _BATCH} if model.window_steps else {0: _STEPS, 1: _BATCH}
    return _exported(model, [model.example(model.window_steps or 3, 2)], (steps,), ["input"], [_output(model), *names])


def step_model(model: Recurrent) -> bytes:
    """Return an ONNX file that runs one step of a model; it takes the state and returns the new one.

    **Inputs:** `input`, (B,) tokens or (B, m); the state, (layers, B, n) for each part: `h`, and for the LSTMs `c`.
    **Outputs:** `logits`, (B, outputs), or `conditions`, (B, c), of a joint head; the new state, `h_next`,
    and for the LSTMs `c_next`.
    """
    names = list(model.layers.cells[0].state_names)
    state = model.initial_state(2)
    parts = [state] if isinstance(state, Tensor) else list(state)
    shapes = ({0: _BATCH}, ({1: _BATCH},) * len(parts))
    outputs = [_output(model), *(f"{name}_next" for name in names)]
    return _exported(_Step(model), [model.example(2), *parts], shapes, ["input", *names], outputs)


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


def _exported(module: nn.Module, inputs: list[Tensor], shapes: Any, names: list[str], outputs: Sequence[str]) -> bytes:
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)  # it warns about packages that are not needed here
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's warnings about its own code
            program = torch.onnx.export(
                module.eval(),
                tuple(inputs),
                dynamic_shapes=shapes,
                input_names=names,
                output_names=outputs,
                verbose=False,
            )
    finally:
        logger.setLevel(level)
    assert program is not None
    ClearMetadataAndDocStringPass()(program.model)  # it contains paths of this machine
    content: bytes = program.model_proto.SerializeToString(deterministic=True)
    return content
