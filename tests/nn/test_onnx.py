"""Modules that contain our layers, exported as users do and run in onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._pytree import tree_leaves

import rru
from tests.variants import VARIANTS, randomize

pytestmark = pytest.mark.filterwarnings("ignore:# The axis name:UserWarning")  # two inputs share the batch
STEPS, BATCH = torch.export.Dim("steps"), torch.export.Dim("batch")
SIZES = [(1, 1), (1, 5), (7, 3), (40, 2)]  # steps and batch; exported with 7 and 3


class Classifier(nn.Module):
    """Says what kind of text each one of a padded batch is, from the state at its own end."""

    def __init__(self, recurrent, **options):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.recurrent = recurrent(8, 12, batch_first=True, **options)
        self.head = nn.Linear(12, 3)

    def forward(self, tokens, lengths):
        _, state = self.recurrent(self.embedding(tokens), lengths=lengths)
        return self.head(state[-1])


class Forecaster(nn.Module):
    """Reads a series with one layer, hands its state to another, which goes on from its own forecasts."""

    def __init__(self, recurrent, horizon=4):
        super().__init__()
        self.encoder = recurrent(2, 12)
        self.decoder = recurrent(2, 12)
        self.head = nn.Linear(12, 2)
        self.horizon = horizon

    def forward(self, series, state):
        _, state = self.encoder(series, state)
        step, forecasts = series[-1:], []
        for _ in range(self.horizon):
            output, state = self.decoder(step, state)
            step = self.head(output)
            forecasts.append(step)
        return torch.cat(forecasts), state


class Tagger(nn.Module):
    """Gives every word a tag, from both directions."""

    def __init__(self, recurrent):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.recurrent = recurrent(8, 6, num_layers=2, bidirectional=True)
        self.head = nn.Linear(12, 5)

    def forward(self, tokens, lengths):
        output, state = self.recurrent(self.embedding(tokens), lengths=lengths)
        return F.log_softmax(self.head(output), dim=-1), state


def check(module, inputs_of, dynamic_shapes, file):
    """Export a module and compare it with itself in onnxruntime, on inputs of every size; return the graph."""
    randomize(module).eval()
    torch.onnx.export(module, inputs_of(7, 3), file, dynamic_shapes=dynamic_shapes, verbose=False)
    session = onnxruntime.InferenceSession(file)
    names = [value.name for value in session.get_inputs()]
    for steps, batch in SIZES:
        inputs = inputs_of(steps, batch)
        given = dict(zip(names, (tensor.numpy() for tensor in tree_leaves(inputs)), strict=True))
        with torch.no_grad():
            expected = tree_leaves(module(*inputs))
        for found, wanted in zip(session.run(None, given), expected, strict=True):
            np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-5)
    return onnx.load(file).graph


def lengths_of(steps, batch):
    return torch.randint(1, steps + 1, (batch,))


class Packed(Classifier):
    """The same, with a packed sequence."""

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.recurrent(packed)[1][-1])


@pytest.mark.parametrize(
    "module", [Classifier(rru.RRU), Packed(rru.RRU, num_layers=2, bidirectional=True)], ids=["lengths", "packed"]
)
def test_a_text_classifier(module, tmp_path):
    check(
        module,
        lambda steps, batch: (torch.randint(0, 50, (batch, steps)), lengths_of(steps, batch)),
        ({0: BATCH, 1: STEPS}, {0: BATCH}),
        tmp_path / "m.onnx",
    )


def test_forecaster_that_passes_its_state_on(tmp_path):
    def inputs_of(steps, batch):
        return torch.randn(steps, batch, 2), (torch.randn(1, batch, 12), torch.randn(1, batch, 12))

    state = {1: BATCH}
    shapes = ({0: STEPS, 1: BATCH}, (state, state))
    graph = check(Forecaster(rru.LSTM), inputs_of, shapes, tmp_path / "m.onnx")
    assert sum(node.op_type == "Scan" for node in graph.node) == 1  # single steps need no loop


def test_a_tagger_of_two_layers_and_both_directions(tmp_path):
    graph = check(
        Tagger(rru.RRU),
        lambda steps, batch: (torch.randint(0, 50, (steps, batch)), lengths_of(steps, batch)),
        ({0: STEPS, 1: BATCH}, {0: BATCH}),
        tmp_path / "m.onnx",
    )
    assert sum(node.op_type == "Scan" for node in graph.node) == 4


def test_all_variants_of_the_cells(tmp_path):
    class All(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(variant.build(dtype=torch.float32) for variant in VARIANTS)

        def forward(self, x):
            return [layer(x) for layer in self.layers]

    free = {0: STEPS, 1: BATCH}
    check(All(), lambda steps, batch: (torch.randn(steps, batch, 3),), (free,), tmp_path / "m.onnx")


def test_custom_cell(own_cell, tmp_path):
    free = {0: STEPS, 1: BATCH}
    layer = own_cell["JANET"](3, 4)
    check(layer, lambda steps, batch: (torch.randn(steps, batch, 3),), (free,), tmp_path / "m.onnx")


def test_a_single_step_of_a_cell(tmp_path):
    cell = rru.RRUCell(3, 4)
    shapes = ({0: BATCH}, {0: BATCH})
    check(cell, lambda _, batch: (torch.randn(batch, 3), torch.randn(batch, 4)), shapes, tmp_path / "m.onnx")


@pytest.mark.filterwarnings("ignore:Exporting a model while it is in training mode")
@pytest.mark.parametrize("module", [rru.RRU(3, 4, dropout=0.5), rru.RRUCell(3, 4, dropout=0.5)], ids=["layer", "cell"])
def test_dropout_is_left_out_of_a_model_in_training_mode(module):
    x = torch.randn(7, 2, 3)[slice(None) if isinstance(module, rru.RRU) else 0]
    program = torch.onnx.export(randomize(module).train(), (x,), verbose=False)
    outputs, state = program(x)
    expected, expected_state = module.eval()(x)
    torch.testing.assert_close((outputs, state), (expected, expected_state))


@pytest.mark.filterwarnings("ignore")  # it warns of much else
def test_older_exporter_is_rejected(tmp_path):
    module, inputs = Classifier(rru.RRU).eval(), (torch.ones(3, 7, dtype=torch.long), torch.tensor([7, 3, 2]))
    with pytest.raises(RuntimeError, match="dynamo=False cannot export rru layers: use dynamo=True, the default"):
        torch.onnx.export(module, inputs, tmp_path / "m.onnx", dynamo=False)
