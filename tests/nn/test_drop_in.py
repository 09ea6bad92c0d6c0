"""Code written for torch.nn.LSTM or torch.nn.GRU works with the same shapes and conventions."""

import inspect

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

import rru
from tests.variants import CELLS, NATIVE, assert_same, state_parts

SAME_STATE = {"rru": nn.GRU, "gru": nn.GRU, "lstm": nn.LSTM, "mogrifier": nn.LSTM}  # one tensor, or (h, c)
every_cell = pytest.mark.parametrize("variant", CELLS, ids=str)


def pair(variant, **arguments):
    return variant.layer(3, 5, **arguments), SAME_STATE[variant.name](3, 5, **arguments)


def shapes(result):
    outputs, state = result
    outputs = outputs.data if isinstance(outputs, PackedSequence) else outputs
    return outputs.shape, [part.shape for part in state_parts(state)], type(state)


@every_cell
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("shape", [(7, 4, 3), (7, 3), (1, 1, 3), (7, 0, 3)], ids=str)
def test_shapes_match_torch_with_and_without_a_state(variant, bidirectional, batch_first, num_layers, shape):
    if batch_first and len(shape) == 3:
        shape = (shape[1], shape[0], 3)
    ours, theirs = pair(variant, bidirectional=bidirectional, batch_first=batch_first, num_layers=num_layers)
    x = torch.randn(shape)
    outputs, state = theirs(x)
    assert shapes(ours(x)) == shapes((outputs, state))
    assert shapes(ours(x, state)) == shapes(theirs(x, state))


@every_cell
def test_packed_sequences_match_torch(variant):
    ours, theirs = pair(variant, bidirectional=True)
    sequences = [torch.randn(length, 3) for length in (2, 5, 1, 5)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    outputs, _ = ours(packed)
    expected, _ = theirs(packed)
    assert isinstance(outputs, PackedSequence)
    assert shapes(ours(packed)) == shapes(theirs(packed))
    assert torch.equal(outputs.batch_sizes, expected.batch_sizes)
    assert torch.equal(outputs.sorted_indices, expected.sorted_indices)
    assert torch.equal(outputs.unsorted_indices, expected.unsorted_indices)


@every_cell
def test_attributes_of_torch_layers_exist(variant):
    ours, theirs = pair(variant, num_layers=2, bidirectional=True, batch_first=True)
    for name in ("input_size", "hidden_size", "num_layers", "batch_first", "bidirectional", "dropout"):
        assert getattr(ours, name) == getattr(theirs, name)


@every_cell
def test_flatten_parameters_does_nothing(variant):
    layer, _ = pair(variant)
    x = torch.randn(4, 2, 3)
    before = layer(x)[0]
    layer.flatten_parameters()
    assert torch.equal(layer(x)[0], before)


@every_cell
def test_dropout_acts_in_training_and_never_in_evaluation(variant):
    layer = variant.build(dropout=0.5, dtype=torch.float32)
    plain = variant.build(dtype=torch.float32)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(6, 2, 3)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    assert torch.equal(layer.eval()(x)[0], plain(x)[0])
    step, same = layer.cells[0], plain.cells[0]
    assert torch.equal(step(x[0])[0], same(x[0])[0])
    assert not torch.equal(step.train()(x[0])[0], step(x[0])[0])


@every_cell
def test_dropout_can_be_changed_afterwards(variant):
    layer = variant.build(num_layers=2)
    x = torch.randn(6, 2, 3).double()
    layer.dropout = 0.5
    assert layer.dropout == 0.5
    assert [cell.dropout for cell in layer.cells] == [0.5, 0.5]
    assert not torch.equal(layer(x)[0], layer(x)[0])
    with pytest.raises(ValueError, match="dropout must be a number at least 0 and below 1, got 1"):
        layer.dropout = 1


def test_the_rru_state_and_output_may_differ_in_size():
    layer = rru.RRU(3, 5, output_size=2, num_layers=2, bidirectional=True)
    outputs, state = layer(torch.randn(7, 4, 3))
    assert outputs.shape == (7, 4, 2 * 2)
    assert state.shape == (2 * 2, 4, 5)
    assert layer.cells[2].input_size == 4  # the second layer reads both directions' outputs of the first


@pytest.mark.parametrize("variant", [*CELLS, *NATIVE], ids=str)
def test_lengths_may_be_any_integers(variant):
    layer = variant.build()
    x = torch.randn(5, 3, 3).double()
    expected = layer(x, lengths=torch.tensor([5, 2, 3]))[0]
    strided = torch.tensor([5, 9, 2, 9, 3])[::2]
    for lengths in (strided, strided.to(torch.int32), strided.to(torch.uint8), [5, 2, 3], np.array([5, 2, 3])):
        assert_same(layer(x, lengths=lengths)[0], expected)
    assert_same(layer(x[:, 1], lengths=torch.tensor(2))[0], expected[:, 1])  # a single sequence's
    for none in (torch.tensor([], dtype=torch.int64), [], np.array([])):
        assert layer(x[:, :0], lengths=none)[0].shape == (5, 0, layer.output_size)


@every_cell
def test_lengths_on_a_device_without_values(variant):
    meta = variant.layer(3, 4, device="meta")
    assert meta(torch.zeros(5, 3, 3, device="meta"), lengths=torch.tensor([5, 2, 3]))[0].shape == (5, 3, 4)


@every_cell
def test_cell_and_single_step_layer_draw_the_same_dropout(variant):
    for autocast in (False, True):
        layer = variant.build(dropout=0.5, dtype=torch.float32)
        x = torch.randn(4, 3)
        with torch.autocast("cpu", enabled=autocast):
            torch.manual_seed(1)
            whole = layer(x.unsqueeze(0))[0][0]
            torch.manual_seed(1)
            assert_same(layer.cells[0](x)[0], whole, 1e-6)


@every_cell
def test_layers_and_their_cells_have_the_same_defaults(variant):
    cell = inspect.signature(variant.layer.cell_class).parameters
    layer = inspect.signature(variant.layer).parameters
    shared = cell.keys() & layer.keys() - {"input_size", "hidden_size"}
    assert shared
    assert {name: cell[name].default for name in shared} == {name: layer[name].default for name in shared}


def test_packing_a_batch_first_batch():
    layer = rru.RRU(3, 5, batch_first=True)
    x, lengths = torch.randn(2, 6, 3), torch.tensor([6, 4])
    packed_outputs, state = layer(pack_padded_sequence(x, lengths, batch_first=True))
    outputs, same_state = layer(x, lengths=lengths)
    assert_same(state, same_state, 1e-6)
    assert_same(packed_outputs.data, pack_padded_sequence(outputs, lengths, batch_first=True).data, 1e-6)


def test_lengths_may_change_before_the_backward_pass():
    layer, x, lengths = rru.GRU(3, 4), torch.randn(9, 2, 3, requires_grad=True), np.array([9, 7])
    output, _ = layer(x, lengths=lengths)
    lengths[:] = 2
    output.sum().backward()
    assert x.grad[6].abs().sum() > 0


def test_lengths_are_read_on_the_host_for_any_default_device():
    layer, x = rru.GRU(3, 4), torch.randn(9, 2, 3)
    expected = layer(x, lengths=[9, 7])[0]
    with torch.device("meta"):
        assert_same(layer(x, lengths=[9, 7])[0], expected)
