"""Every cell and variant of the package, in small, with the results of the oracle."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import rru
from tests import oracle


@dataclass(frozen=True)
class Variant:
    name: str
    layer: type[rru.Layer]
    options: dict[str, Any] = field(default_factory=dict)

    def build(self, input_size=3, hidden_size=4, dtype=torch.float64, **arguments):
        """A layer whose weights are all random, the ones that start at zero too."""
        fewest_draws = {"init": "paper"} if self.layer is rru.RRU else {}  # tests pin tolerances to what is drawn
        layer = self.layer(input_size, hidden_size, dtype=dtype, **fewest_draws | self.options | arguments)
        return randomize(layer)

    def __str__(self):
        return self.name


def randomize(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)
    return module


VARIANTS = [
    Variant("rru", rru.RRU),
    Variant("rru-output-size", rru.RRU, {"output_size": 2}),
    Variant("rru-three-relu-layers", rru.RRU, {"relu_layers": 3, "expansion": 0.7}),
    Variant("rru-no-normalization", rru.RRU, {"normalize": False}),
    Variant("rru-scalar-rezero", rru.RRU, {"rezero": "scalar"}),
    Variant("rru-relu-outputs", rru.RRU, {"activate_outputs": True}),
    Variant("rru-unscaled", rru.RRU, {"residual": "unscaled"}),
    Variant("rru-start-0.95", rru.RRU, {"residual": 0.95}),
    Variant("gru", rru.GRU),
    Variant("gru-reset-after", rru.GRU, {"reset_after": True}),
    Variant("lstm", rru.LSTM),
    Variant("lstm-forget-bias", rru.LSTM, {"forget_bias": -2.3}),
    Variant("mogrifier", rru.MogrifierLSTM),
    Variant("mogrifier-low-rank", rru.MogrifierLSTM, {"rounds": 6, "rank": 2}),
    Variant("mogrifier-no-rounds", rru.MogrifierLSTM, {"rounds": 0}),
]
NATIVE = [Variant(f"native-{v.name}", v.layer, {**v.options, "backend": "native"}) for v in VARIANTS]
FUSED = [Variant(f"fused-{v.name}", v.layer, {**v.options, "backend": "fused"}) for v in VARIANTS]
VARIANTS = [Variant(v.name, v.layer, {**v.options, "backend": "reference"}) for v in VARIANTS]
CELLS = [variant for variant in VARIANTS if "-" not in variant.name]  # the four cells with their defaults


def random_state(layer, *lead):
    parts = tuple(torch.randn(len(layer.cells), *lead, layer.hidden_size).double() for _ in layer.cells[0].state_names)
    return layer.cells[0].public_state(parts)


def state_parts(state):
    return (state,) if isinstance(state, torch.Tensor) else tuple(state)


def expected(layer, x, state=None, lengths=None, masks=None):
    """The oracle's outputs (T, B, directions * p) and states, for a layer of any depth, as tensors.

    `masks[cell][t, b]` is the dropout mask of a cell, as an array.
    """
    x = x.detach().numpy()
    _, batch, _ = x.shape
    lengths = [len(x)] * batch if lengths is None else [int(length) for length in lengths]
    directions = layer.num_directions
    finals = []
    for depth in range(layer.num_layers):
        outputs = []
        for direction in range(directions):
            index = depth * directions + direction
            cell = layer.cells[index]
            results = []
            for b in range(batch):
                start = default_state(cell) if state is None else [s[index, b].numpy() for s in state_parts(state)]
                mask = None if masks is None else masks[index][:, b]
                results.append(run_oracle(cell, x[:, b], start, length=lengths[b], reverse=direction == 1, masks=mask))
            outputs.append(np.stack([output for output, _ in results], axis=1))
            finals.append([np.stack(parts) for parts in zip(*(last for _, last in results), strict=True)])
        x = np.concatenate(outputs, axis=-1)
    last = tuple(torch.from_numpy(np.stack(parts)) for parts in zip(*finals, strict=True))
    return torch.from_numpy(x), layer.cells[0].public_state(last)


def run_oracle(cell, x, start, **arguments):
    weights = {name: parameter.detach().numpy() for name, parameter in cell.named_parameters()}
    options = {name: getattr(cell, name) for name in ORACLE_OPTIONS[cell.name]}
    outputs, last = getattr(oracle, cell.name)(weights, x, *start, **options, **arguments)
    return outputs, last if isinstance(last, tuple) else (last,)


ORACLE_OPTIONS = {
    "rru": ("relu_layers", "normalize", "residual", "activate_outputs"),
    "gru": ("reset_after",),
    "lstm": ("forget_bias",),
    "mogrifier": ("rounds", "rank"),
}


def default_state(cell):
    if cell.name == "rru":
        return (oracle.default_state_rru(cell.hidden_size),)
    return tuple(np.zeros(cell.hidden_size) for _ in cell.state_names)


def assert_same(actual, wanted, tolerance=1e-10):
    for one, other in zip(state_parts(actual), state_parts(wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
