"""Properties of every cell, at any shape."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from tests.variants import FUSED, NATIVE, VARIANTS, assert_same, random_state, state_parts

any_variant = st.sampled_from([*VARIANTS, *NATIVE, *FUSED])
examples = settings(max_examples=80)  # some for each variant


@st.composite
def cases(draw, bidirectional=None, min_steps=1):
    """Layer arguments, an input (T, B, m) and lengths of which at least one is T."""
    m, n, steps, batch = (draw(st.integers(low, 5)) for low in (1, 1, min_steps, 1))
    arguments = {
        "input_size": m,
        "hidden_size": n,
        "num_layers": draw(st.integers(1, 2)),
        "bidirectional": draw(st.booleans()) if bidirectional is None else bidirectional,
    }
    lengths = draw(
        st.permutations([steps, *draw(st.lists(st.integers(1, steps), min_size=batch - 1, max_size=batch - 1))])
    )
    torch.manual_seed(draw(st.integers(0, 1000)))
    return arguments, torch.randn(steps, batch, m).double(), torch.tensor(lengths)


@examples
@given(variant=any_variant, case=cases())
def test_each_sequence_is_independent_of_its_batch(variant, case):
    arguments, x, lengths = case
    layer = variant.build(**arguments)
    state = random_state(layer, x.shape[1])
    outputs, last = layer(x, state, lengths=lengths)
    for b, length in enumerate(lengths.tolist()):
        start = tuple(part[:, b] for part in state_parts(state))
        alone, alone_last = layer(x[:length, b], layer.cells[0].public_state(start))  # unbatched, cut to its length
        assert_same(outputs[:length, b], alone)
        assert not outputs[length:, b].any()
        assert_same(tuple(part[:, b] for part in state_parts(last)), state_parts(alone_last))


@examples
@given(variant=any_variant, case=cases(), data=st.data())
def test_order_of_the_batch_does_not_matter(variant, case, data):
    arguments, x, lengths = case
    layer = variant.build(**arguments)
    order = data.draw(st.permutations(range(x.shape[1])))
    outputs, state = layer(x, lengths=lengths)
    permuted_outputs, permuted_state = layer(x[:, order], lengths=lengths[order])
    assert_same(permuted_outputs, outputs[:, order])
    assert_same(permuted_state, tuple(part[:, order] for part in state_parts(state)))


@examples
@given(variant=any_variant, case=cases(), enforce_sorted=st.booleans())
def test_packed_sequences_match_lengths(variant, case, enforce_sorted):
    arguments, x, lengths = case
    if enforce_sorted:
        lengths = lengths.sort(descending=True).values
    layer = variant.build(**arguments)
    state = random_state(layer, x.shape[1])
    outputs, last = layer(x, state, lengths=lengths)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
    packed_outputs, packed_last = layer(packed, state)
    assert torch.equal(packed_outputs.batch_sizes, packed.batch_sizes)
    assert packed_outputs.sorted_indices is packed.sorted_indices
    assert_same(pad_packed_sequence(packed_outputs)[0], outputs)
    assert_same(packed_last, last)


@examples
@given(variant=any_variant, case=cases())
def test_padding_is_ignored_and_gets_no_gradients(variant, case):
    arguments, x, lengths = case
    layer = variant.build(**arguments)
    expected, expected_state = layer(x, lengths=lengths)
    padding = torch.arange(len(x)).unsqueeze(1) >= lengths
    spoiled = x.masked_fill(padding.unsqueeze(2), float("nan")).requires_grad_()
    outputs, state = layer(spoiled, lengths=lengths)
    assert_same(outputs, expected)
    assert_same(state, expected_state)
    (outputs.sum() + sum(part.sum() for part in state_parts(state))).backward()
    assert not spoiled.grad[padding].any()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@examples
@given(variant=any_variant, case=cases(bidirectional=True))
def test_both_directions_are_two_layers_and_a_flip(variant, case):
    arguments, x, lengths = case
    arguments["num_layers"] = 1
    both = variant.build(**arguments)
    forward, backward = (variant.build(**arguments | {"bidirectional": False}) for _ in range(2))
    forward.cells[0].load_state_dict(both.cells[0].state_dict())
    backward.cells[0].load_state_dict(both.cells[1].state_dict())

    def flip(sequences):
        pieces = [sequences[:length, b].flip(0) for b, length in enumerate(lengths.tolist())]
        return pad_sequence(pieces)

    outputs, state = both(x, lengths=lengths)
    forward_outputs, forward_state = forward(x, lengths=lengths)
    backward_outputs, backward_state = backward(flip(x), lengths=lengths)
    assert_same(outputs, torch.cat([forward_outputs, flip(backward_outputs)], dim=-1))
    parts = zip(state_parts(forward_state), state_parts(backward_state), strict=True)
    assert_same(state, tuple(torch.cat(pair) for pair in parts))


@examples
@given(variant=any_variant, case=cases(bidirectional=False))
def test_stepping_the_cells_matches_the_layer(variant, case):
    arguments, x, _ = case
    layer = variant.build(**arguments)
    outputs, last = layer(x)
    states = [None] * len(layer.cells)
    for t, step in enumerate(x):
        for index, cell in enumerate(layer.cells):
            step, states[index] = cell(step, states[index])
        assert_same(step, outputs[t])
    parts = zip(*map(state_parts, states), strict=True)
    assert_same(tuple(map(torch.stack, parts)), state_parts(last))


@examples
@given(variant=any_variant, case=cases(bidirectional=False, min_steps=2), data=st.data())
def test_two_halves_match_the_whole_sequence(variant, case, data):
    arguments, x, _ = case
    layer = variant.build(**arguments)
    cut = data.draw(st.integers(1, len(x) - 1))
    outputs, state = layer(x)
    first, between = layer(x[:cut])
    second, last = layer(x[cut:], between)
    assert_same(torch.cat([first, second]), outputs)
    assert_same(last, state)


@examples
@given(variant=any_variant, case=cases())
def test_batch_first_only_transposes(variant, case):
    arguments, x, lengths = case
    layer = variant.build(**arguments)
    outputs, state = layer(x, lengths=lengths)
    layer.batch_first = True
    exchanged, same_state = layer(x.transpose(0, 1), lengths=lengths)
    assert_same(exchanged.transpose(0, 1), outputs)
    assert_same(same_state, state)
