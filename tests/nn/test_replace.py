"""Models written for torch's layers run with RRUs in their place, unchanged."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import rru


class LanguageModel(nn.Module):
    """A stack of single LSTMs, the last as wide as the embedding, whose weights the decoder shares (as AWD-LSTM)."""

    def __init__(self, tokens=20, embedding=12, hidden=16, layers=3):
        super().__init__()
        self.encoder = nn.Embedding(tokens, embedding)
        sizes = [embedding, *[hidden] * (layers - 1), embedding]
        self.rnns = nn.ModuleList(nn.LSTM(one, other) for one, other in itertools.pairwise(sizes))
        self.decoder = nn.Linear(embedding, tokens)
        self.decoder.weight = self.encoder.weight

    def init_hidden(self, batch):
        weight = self.encoder.weight
        return [tuple(weight.new_zeros(1, batch, rnn.hidden_size) for _ in "hc") for rnn in self.rnns]

    def forward(self, tokens, hidden):
        x, after = self.encoder(tokens), []
        for rnn, state in zip(self.rnns, hidden, strict=True):
            rnn.flatten_parameters()
            x, (h, c) = rnn(x, state)
            after.append((h, c))
            mask = x.new_empty(1, *x.shape[1:]).bernoulli_(0.9) / 0.9  # the same for all steps
            x = x * mask if self.training else x
        return self.decoder(x), after


class Tagger(nn.Module):
    """A tag for every word, from both directions, over packed sentences."""

    def __init__(self, kind=nn.LSTM, words=20, embedding=6, hidden=8, tags=4):
        super().__init__()
        self.embedding = nn.Embedding(words, embedding, padding_idx=0)
        self.rnn = kind(embedding, hidden // 2, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
        self.output = nn.Linear(hidden, tags)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths, batch_first=True, enforce_sorted=False)
        padded, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.output(padded)


def rrus(model):
    return [module for module in model.modules() if isinstance(module, rru.RRU)]


@pytest.mark.parametrize("hidden", ["same", "equal_parameters"])
def test_a_language_model_with_tied_weights(hidden):
    model = LanguageModel()
    before = rru.count_parameters(model)
    assert rru.replace(model, hidden=hidden) is model
    assert len(rrus(model)) == 3
    assert not any(isinstance(module, nn.LSTM) for module in model.modules())
    budgets = {"same": (before, 3 * before), "equal_parameters": (0.9 * before, before)}
    assert budgets[hidden][0] <= rru.count_parameters(model) <= budgets[hidden][1]

    tokens = torch.arange(21).remainder(7).repeat(4, 1).T  # a song of seven notes
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, foreach=False)
    losses = []
    for _ in range(20):
        logits, _ = model(tokens[:-1], model.init_hidden(4))
        losses.append(F.cross_entropy(logits.flatten(0, 1), tokens[1:].flatten()))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.7 * losses[0]

    model.eval()
    whole, _ = model(tokens, model.init_hidden(4))
    first, state = model(tokens[:9], model.init_hidden(4))
    second, _ = model(tokens[9:], state)
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("hidden", ["same", "equal_parameters"])
def test_a_tagger_of_packed_sentences(kind, hidden):
    model = rru.replace(Tagger(kind), hidden=hidden)
    words, lengths = torch.randint(1, 20, (3, 7)), torch.tensor([4, 7, 2])
    assert model(words, lengths).shape == (3, 7, 4)
    (layer,) = rrus(model)
    assert (layer.num_layers, layer.bidirectional, layer.batch_first, layer.dropout) == (2, True, True, 0.2)
    model.eval()
    alone = model(words[:1, :4], lengths[:1])
    torch.testing.assert_close(model(words, lengths)[:1, :4], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("hidden", ["same", "equal_parameters"])
@pytest.mark.parametrize("shape", [(5, 2, 3), (5, 3)], ids=["batch", "single sequence"])
def test_outputs_and_states_keep_their_shapes(kind, hidden, shape):
    theirs = kind(3, 16, num_layers=2)
    ours, x = rru.replace(theirs, hidden=hidden, relu_layers=2, dropout=0.1), torch.randn(shape)
    assert (ours.layer.cells[0].relu_layers, ours.dropout) == (2, 0.1)
    output, state = ours(x, theirs(x)[1])
    wanted, expected = theirs(x)
    assert output.shape == wanted.shape
    assert [part.shape for part in state] == [part.shape for part in expected]
    assert type(state) is type(expected)


def test_shared_layer_stays_shared():
    lstm = nn.LSTM(4, 4)
    model = rru.replace(nn.ModuleList([lstm, nn.ModuleList([lstm])]))
    assert model[0] is model[1][0]


def test_invalid_replacements_raise():
    with pytest.raises(ValueError, match=r"the model must hold an nn\.LSTM or nn\.GRU, got a Linear without one"):
        rru.replace(nn.Linear(3, 4))
    with pytest.raises(ValueError, match=r"proj_size must be 0 to replace an nn\.LSTM, got 2"):
        rru.replace(nn.LSTM(3, 4, proj_size=2))
    with pytest.raises(ValueError, match="hidden must be 'same' or 'equal_parameters', got 'small'"):
        rru.replace(nn.LSTM(3, 4), hidden="small")
    with pytest.raises(ValueError, match="expansion must not be given with hidden='equal_parameters'"):
        rru.replace(nn.LSTM(3, 4), hidden="equal_parameters", expansion=1.0)
    with pytest.raises(TypeError, match=r"hx must be a pair \(h, c\), got Tensor"):
        rru.replace(nn.LSTM(3, 4))(torch.randn(5, 2, 3), torch.zeros(1, 2, 4))
    with pytest.raises(AttributeError, match=r"Replacement has no weight_hh_l0: its weights are in \.layer\.cells"):
        rru.replace(nn.LSTM(3, 4)).weight_hh_l0  # noqa: B018
