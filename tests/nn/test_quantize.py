"""`rru.quantize`: int8 layers match layers with rounded weights, and reject what they do not support."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import rru
from rru.scan.native import library
from tests.scan.case import using
from tests.variants import VARIANTS, Variant, assert_same, randomize, state_parts

pytestmark = pytest.mark.skipif(not library.BUILT, reason="the native library is not built")

QUANTIZABLE = [
    Variant(v.name, v.layer, {**v.options, "backend": "auto"}) for v in VARIANTS if "mogrifier" not in v.name
]
every_variant = pytest.mark.parametrize("variant", QUANTIZABLE, ids=str)


def build(variant, **arguments):
    return variant.build(13, 21, dtype=torch.float32, **arguments).eval()


def rounded(layer):
    """The float layer with every weight matrix rounded as `quantize` does: by rows of [W_x, W_h] and the others."""
    layer = copy.deepcopy(layer)
    with torch.no_grad():
        for cell in layer.cells:
            # with reset_after, the GRU's two products are apart, and so are their scales
            apart = isinstance(cell, rru.GRUCell) and cell.reset_after
            groups = [[cell.weight_x], [cell.weight_h]] if apart else [[cell.weight_x, cell.weight_h]]
            groups += [
                [w] for name, w in cell.named_parameters() if w.dim() == 2 and name not in ("weight_x", "weight_h")
            ]
            for group in groups:
                scale = torch.cat(group, 1).abs().amax(1, keepdim=True) / 127
                for weight in group:
                    weight.copy_((weight / scale).round() * scale)
    return layer


@every_variant
@pytest.mark.parametrize("instruction_set", library.INSTRUCTION_SETS)
def test_quantized_layer_matches_rounded_weights(variant, instruction_set):
    layer = build(variant, num_layers=2, bidirectional=True)
    x, lengths = torch.randn(6, 5, 13), torch.tensor([6, 1, 3, 6, 2])
    with torch.no_grad(), using(instruction_set):
        for given in (None, lengths):
            outputs, state = rru.quantize(layer)(x, lengths=given)
            expected, expected_state = rounded(layer)(x, lengths=given)
            for one, other in zip(
                [outputs, *state_parts(state)], [expected, *state_parts(expected_state)], strict=True
            ):
                torch.testing.assert_close(one, other, rtol=0, atol=2e-3 * max(1.0, other.abs().max().item()))


@every_variant
def test_steps_streams_and_cells_match_the_layer(variant):
    layer = rru.quantize(build(variant))
    x = torch.randn(4, 3, 13)
    with torch.no_grad():
        expected, last = layer(x)
        stepper, state = layer.stepper(), None
        stream = rru.stream(layer)
        stream.open("abc")
        cell, cell_state = layer.cells[0], None
        for t in range(4):
            output, state = stepper(x[t], state)
            assert torch.equal(output, expected[t])
            assert torch.equal(stream.step("abc", x[t]), expected[t])
            output, cell_state = cell(x[t], cell_state)
            assert torch.equal(output, expected[t])
    assert all(map(torch.equal, state_parts(state), state_parts(last)))


def test_the_numbers_are_the_same_for_every_instruction_set_and_batch():
    layer, x = rru.quantize(randomize(rru.RRU(13, 40, normalize=False))), torch.randn(1, 9, 13)
    outputs = []
    for instruction_set in library.INSTRUCTION_SETS:
        with using(instruction_set):
            outputs.append(layer(x)[0])
    for other in outputs[1:]:
        torch.testing.assert_close(other, outputs[0], rtol=1e-6, atol=1e-6)
    alone = torch.cat([layer(x[:, b : b + 1])[0] for b in range(9)], 1)
    assert torch.equal(alone, layer(x)[0])


def test_quantizing_leaves_other_layers_and_the_original_unchanged():
    model = nn.ModuleDict({"rnn": rru.LSTM(8, 32), "head": nn.Linear(32, 2)})
    before = {name: value.clone() for name, value in model.state_dict().items()}
    small = rru.quantize(model)
    assert torch.equal(small["head"].weight, model["head"].weight)
    assert isinstance(small["rnn"], rru.LSTM)
    assert list(small["rnn"].parameters()) == []
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert not small.training


def test_it_takes_a_quarter_of_the_memory():
    layer = rru.RRU(64, 256)
    size = sum(parameter.nbytes for parameter in layer.parameters())
    assert sum(buffer.nbytes for buffer in rru.quantize(layer).buffers()) < 0.27 * size


def test_it_can_be_copied_saved_and_loaded():
    layer, x = rru.quantize(randomize(rru.GRU(5, 7))), torch.randn(4, 2, 5)
    expected = layer(x)[0]
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = rru.quantize(rru.GRU(5, 7))
    other.load_state_dict(torch.load(file))
    for duplicate in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(duplicate(x)[0], expected)


def test_the_initial_state_is_a_copy():
    cell = rru.quantize(rru.RRUCell(13, 21))
    (first,) = cell.initial_state(1)
    expected = first.clone()
    first.zero_()
    assert_same(cell.initial_state(1)[0], expected)


def test_zero_rows_and_zero_inputs_are_exact():
    layer = rru.LSTM(4, 3)
    with torch.no_grad():
        layer.cells[0].weight_x.zero_()
        layer.cells[0].weight_h.zero_()
    outputs, _ = rru.quantize(layer)(torch.zeros(3, 2, 4))
    torch.testing.assert_close(outputs, layer(torch.zeros(3, 2, 4))[0].detach())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_sequence_does_not_affect_others(value):
    layer, x = rru.quantize(randomize(rru.RRU(4, 6))), torch.randn(3, 2, 4)
    x[1, 0, 2] = value
    outputs, _ = layer(x)
    assert outputs[1:, 0].isnan().all()
    assert outputs[:, 1].isfinite().all()
    assert outputs[0].isfinite().all()


class TestErrors:
    """Unsupported uses of a quantized layer raise an error that names the alternative."""

    layer, x = rru.quantize(rru.RRU(4, 6)), torch.randn(3, 2, 4)

    def test_training(self):
        with pytest.raises(RuntimeError, match="a quantized RRUCell cannot be trained: train the float model"):
            self.layer.train()

    def test_conversion(self):
        with pytest.raises(TypeError, match="a quantized LSTM cannot be converted: convert the float layer"):
            rru.quantize(rru.LSTM(3, 4)).to_torch()

    def test_gradients(self):
        with pytest.raises(RuntimeError, match="a quantized layer has no gradients: train the float model"):
            self.layer(self.x.clone().requires_grad_())

    def test_export(self):
        with pytest.raises(RuntimeError, match="cannot be compiled, exported or transformed: use the float model"):
            torch.export.export(self.layer, (self.x,))

    def test_other_types(self):
        with pytest.raises(RuntimeError, match=r"runs on the CPU in float32, its scales are torch\.float64"):
            copy.deepcopy(self.layer).double()(self.x.double())
        with pytest.raises(TypeError, match=r"RRUCell must have float32 weights on the CPU, got torch\.float64"):
            rru.quantize(rru.RRU(4, 6, dtype=torch.float64))

    def test_cells_without_a_quantized_scan(self):
        with pytest.raises(TypeError, match="MogrifierLSTMCell cannot be quantized: RRUCell, GRUCell and LSTMCell can"):
            rru.quantize(rru.MogrifierLSTM(4, 6))

    def test_model_without_a_layer_raises(self):
        with pytest.raises(ValueError, match="must hold a layer of rru with float weights, got a Linear"):
            rru.quantize(nn.Linear(2, 3))
        with pytest.raises(ValueError, match="must hold a layer of rru with float weights, got a RRU"):
            rru.quantize(self.layer)

    def test_non_finite_weights_are_rejected(self):
        layer = rru.LSTM(4, 6)
        with torch.no_grad():
            layer.cells[0].weight_h[0, 0] = float("nan")
        with pytest.raises(ValueError, match="LSTMCell has infinite or NaN weights"):
            rru.quantize(layer)

    def test_inputs_of_another_size(self):
        with pytest.raises(ValueError, match="input must have input_size=4 features, got 5"):
            self.layer(torch.randn(3, 2, 5))
        with pytest.raises(ValueError, match="state h must have shape"):
            self.layer.cells[0](self.x[0], torch.zeros(1, 6))
