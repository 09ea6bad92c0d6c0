"""Models written for torch's layers run with RRUs in their place, unchanged."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import rru
from tests.variants import assert_same

LAYERS = [nn.LSTM, nn.GRU, nn.RNN]
CELLS = [nn.LSTMCell, nn.GRUCell, nn.RNNCell]


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


def replaced(model, **options):
    rru.replace(model, **options)
    return model


def rrus(model):
    return [module for module in model.modules() if isinstance(module, rru.RRU)]


@pytest.mark.parametrize("hidden", ["same", "equal_parameters"])
def test_a_language_model_with_tied_weights(hidden):
    model = LanguageModel()
    before = rru.count_parameters(model)
    assert rru.replace(model, hidden=hidden).replaced == ("rnns.0", "rnns.1", "rnns.2")
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


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("hidden", ["same", "equal_parameters"])
def test_a_tagger_of_packed_sentences(kind, hidden):
    model = replaced(Tagger(kind), hidden=hidden)
    words, lengths = torch.randint(1, 20, (3, 7)), torch.tensor([4, 7, 2])
    assert model(words, lengths).shape == (3, 7, 4)
    (layer,) = rrus(model)
    assert (layer.num_layers, layer.bidirectional, layer.batch_first, layer.dropout) == (2, True, True, 0.2)
    model.eval()
    alone = model(words[:1, :4], lengths[:1])
    torch.testing.assert_close(model(words, lengths)[:1, :4], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("hidden", ["same", "equal_parameters"])
@pytest.mark.parametrize("shape", [(5, 2, 3), (5, 3)], ids=["batch", "single sequence"])
def test_outputs_and_states_keep_their_shapes(kind, hidden, shape):
    theirs = kind(3, 16, num_layers=2)
    ours, x = replaced(copy.deepcopy(theirs), hidden=hidden, relu_layers=2, dropout=0.1), torch.randn(shape)
    assert (ours.layer.cells[0].relu_layers, ours.dropout) == (2, 0.1)
    wanted, expected = theirs(x)
    output, state = ours(x, expected)
    assert output.shape == wanted.shape
    assert [part.shape for part in state] == [part.shape for part in expected]
    assert type(state) is type(expected)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("hidden", ["same", "equal_parameters"])
@pytest.mark.parametrize("shape", [(2, 3), (3,)], ids=["batch", "single sequence"])
def test_states_of_cells_keep_their_shapes(kind, hidden, shape):
    theirs = kind(3, 16)
    ours, x = replaced(copy.deepcopy(theirs), hidden=hidden, relu_layers=2), torch.randn(shape)
    assert ours.cell.relu_layers == 2
    if hidden == "equal_parameters":
        assert 0.8 < rru.count_parameters(ours) / rru.count_parameters(theirs) <= 1
    expected = theirs(x)
    for state in (ours(x), ours(x, expected)):
        assert [part.shape for part in state] == [part.shape for part in expected]
        assert type(state) is type(expected)


class Captioner(nn.Module):
    """Writes with a cell, or a layer, step by step, from states that it makes of an image (as Show and Tell)."""

    def __init__(self, recurrent):
        super().__init__()
        self.init_h, self.init_c = nn.Linear(5, 8), nn.Linear(5, 8)
        self.recurrent, self.stepwise = recurrent, isinstance(recurrent, nn.LSTMCell)
        self.head = nn.Linear(8, 4)

    def forward(self, image, words):
        state = self.init_h(image), self.init_c(image)
        if self.stepwise:
            outputs = []
            for word in words:
                state = self.recurrent(word, state)
                outputs.append(state[0])
            return self.head(torch.stack(outputs))
        return self.head(self.recurrent(words, tuple(part.unsqueeze(0) for part in state))[0])


@pytest.mark.parametrize("recurrent", [nn.LSTM, nn.LSTMCell])
def test_all_that_makes_h_and_c_is_trained(recurrent):
    model = replaced(Captioner(recurrent(3, 8)))
    image, words, target = torch.randn(2, 5), torch.randn(6, 2, 3), torch.randn(6, 2, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, foreach=False)
    losses = []
    for _ in range(30):  # from the second step on, DistributedDataParallel fails if a parameter has no gradient
        losses.append(F.mse_loss(model(image, words), target))
        optimizer.zero_grad()
        losses[-1].backward()
        assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
        assert all(part.weight.grad.any() for part in (model.init_h, model.init_c))
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("recurrent", [nn.LSTM(3, 8), nn.LSTMCell(3, 8)], ids=["layer", "cell"])
def test_h_and_c_are_distinct_and_continue_the_sequence(recurrent):
    ours = replaced(copy.deepcopy(recurrent))
    x = torch.randn(2, 3) if isinstance(recurrent, nn.LSTMCell) else torch.randn(1, 2, 3)
    state = ours(x) if isinstance(recurrent, nn.LSTMCell) else ours(x)[1]
    before = state[0].clone()
    assert_same(ours.before(state), before)
    state[1].add_(1)
    assert_same(state[0], before)


def test_shared_layer_stays_shared():
    lstm = nn.LSTM(4, 4)
    model = replaced(nn.ModuleList([lstm, nn.ModuleList([lstm])]))
    assert model[0] is model[1][0]


def test_layers_in_plain_containers_and_second_references_are_replaced():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.listed = [nn.LSTM(3, 4), (nn.GRU(3, 4),)]
            self.by_name = {"a": nn.Sequential(nn.LSTM(3, 4))}
            self.registered = nn.LSTM(3, 4)
            self.again = [self.registered, self.listed]

    model = Model()
    model.listed.append(model.listed)  # the search ends
    names = ("registered", "listed[0]", "listed[1][0]", "by_name['a'].0")
    assert rru.replace(model).replaced == names
    assert model.again[0] is model.registered
    for layer in (model.listed[0], model.listed[1][0], model.by_name["a"][0], model.registered):
        assert isinstance(layer.layer, rru.RRU)


def test_hooks_stay_and_can_be_removed():
    model, calls = nn.Sequential(nn.LSTM(3, 4)), []
    handles = [
        model[0].register_forward_hook(lambda module, args, result: calls.append(("after", len(result)))),
        model[0].register_forward_pre_hook(lambda module, args, named: calls.append(("before", 1)), with_kwargs=True),
        model[0].register_full_backward_hook(lambda module, inputs, outputs: calls.append(("backward", 1))),
    ]
    rru.replace(model)
    model(torch.randn(5, 2, 3, requires_grad=True))[0].sum().backward()
    assert calls == [("before", 1), ("after", 2), ("backward", 1)]
    for handle in handles:
        handle.remove()
    model(torch.randn(5, 2, 3))
    assert len(calls) == 3


class Subclass(nn.LSTM):
    pass


def test_report_names_what_was_replaced_and_what_was_not():
    model = nn.ModuleDict({"encoder": nn.LSTM(3, 4), "subclass": Subclass(3, 4), "small": nn.LSTM(3, 4, proj_size=2)})
    model["pruned"] = prune.l1_unstructured(nn.GRUCell(3, 4), "weight_hh", 0.5)
    model["cell"] = nn.RNNCell(3, 4, bias=False)
    report = rru.replace(model)
    assert report.replaced == ("encoder", "cell")
    assert list(report.skipped) == ["subclass", "small", "pruned"]
    assert type(model["subclass"]) is Subclass
    assert str(report) == (
        "replaced with RRUs: encoder, cell\n"
        "not replaced: subclass (Subclass is a subclass of nn.LSTM and may compute something else); "
        "small (it has proj_size=2, and an RRU cannot project its state); "
        "pruned (its weights are computed from others, as by weight norm or pruning: remove that first)"
    )
    assert str(rru.replace(nn.LSTM(3, 4))) == "replaced with RRUs: the model itself"
    with pytest.raises(AttributeError, match=r"returns a report, which has no 'parameters': it changed the model"):
        report.parameters()
    with pytest.raises(TypeError, match="returns a report, which cannot be called: it changed the model"):
        report(torch.randn(1, 2, 3))


def test_an_error_leaves_the_model_unchanged():
    model = nn.ModuleList([nn.LSTM(30, 40), nn.LSTM(3, 4)])
    before = list(model.state_dict())
    with pytest.raises(ValueError, match="expansion must give at least one unit"):
        rru.replace(model, expansion=0.05)  # too little for the second
    assert list(model.state_dict()) == before
    assert model[0](torch.randn(5, 2, 30))[0].shape == (5, 2, 40)


def test_fx_sees_a_replaced_layer_as_one_node():
    model = nn.Sequential(nn.LSTM(3, 4))
    rru.replace(model)
    traced = torch.fx.symbolic_trace(model)
    assert [str(node.target) for node in traced.graph.nodes if node.op == "call_module"] == ["0"]


def test_invalid_replacements_raise():
    with pytest.raises(ValueError, match=r"the model must have an nn\.LSTM, .* of these, got a Linear with none"):
        rru.replace(nn.Linear(3, 4))
    with pytest.raises(ValueError, match=r"nothing in the model can be replaced: the model itself \(it has proj_size"):
        rru.replace(nn.LSTM(3, 4, proj_size=2))
    with pytest.raises(ValueError, match="hidden must be 'same' or 'equal_parameters', got 'small'"):
        rru.replace(nn.LSTM(3, 4), hidden="small")
    with pytest.raises(ValueError, match="expansion must not be given with hidden='equal_parameters'"):
        rru.replace(nn.LSTM(3, 4), hidden="equal_parameters", expansion=1.0)
    with pytest.raises(
        TypeError, match="num_layers must not be given: an RRU takes it from the layer that it replaces"
    ):
        rru.replace(nn.LSTM(3, 4), num_layers=2)
    lstm, x, state = replaced(nn.LSTM(3, 4)), torch.randn(5, 2, 3), torch.zeros(1, 2, 4)
    with pytest.raises(TypeError, match=r"hx must be a pair \(h, c\), got Tensor"):
        lstm(x, state)
    with pytest.raises(ValueError, match=r"hx must be a pair \(h, c\) .*, got \(1, 2, 4\) and .* and .*"):
        lstm(x, (state, state, state))
    with pytest.raises(ValueError, match=r"of tensors of the same shape, got \(1, 2, 4\) and \(1, 1, 4\)"):
        lstm(x, (state, state[:, :1]))
    with pytest.raises(ValueError, match=r"of tensors of the same shape, got NoneType and NoneType"):
        lstm(x, (None, None))
    with pytest.raises(TypeError, match="hx must be a tensor, got tuple"):
        replaced(nn.GRU(3, 4))(x, (state, state))
    with pytest.raises(AttributeError, match=r"LayerAdapter has no weight_hh_l0: its weights are in \.layer\.cells"):
        lstm.weight_hh_l0  # noqa: B018
    with pytest.raises(AttributeError, match=r"CellAdapter has no weight_hh: its weights are in \.cell"):
        replaced(nn.GRUCell(3, 4)).weight_hh  # noqa: B018
