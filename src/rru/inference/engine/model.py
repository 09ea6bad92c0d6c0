"""Describe a model to the C engine: its numbers, and its tensors in the order in which the engine takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rru.data import KEYS, LOWEST_NOTE
from rru.data.own.data_json import SequenceFacts, SeriesFacts
from rru.data.vocabulary import Vocabulary
from rru.inference.engine.blob import Tensors, packed
from rru.kinds import kind_of
from rru.kinds.music import steps_per_beat
from rru.nn import Layer
from rru.scan.kernels import KERNELS, MogrifierOptions, RRUOptions, kernel_of
from rru.scan.matrices import Product
from rru.scan.weights import checked_weights
from rru.tasks import Classifier, Forecaster, LinearJointHead, Recurrent, SequenceModel, TiedModel
from rru.tasks.forecaster import Ensemble
from rru.tasks.joint import ChainHead, NadeHead
from rru.tasks.keys import BELOW, SIDE

if TYPE_CHECKING:
    from rru.inference.trained import Trained

Numbers = dict[str, int]
CELLS = ("rru", "gru", "lstm", "mogrifier")
NO_HEAD, LINEAR, OF_STATE, CHAIN, NADE, FORECASTS, TIED = range(7)
HEADS: dict[type[nn.Module], int] = {nn.Linear: LINEAR, ChainHead: CHAIN, NadeHead: NADE}
"""The heads of sequence models; another one needs a line here, its tensors in `_joint`, and its C. TIED has a model."""
KINDS = {"layers": 0, "compose": 1, "write": 2, "classify": 3, "forecast": 4}
"""`rru_kind` in rru.h, by the main command of a kind of data."""
READINGS = {"words": 2, "words and punctuation": 3, "characters": 4, "code points": 5, "bytes": 6}
"""`rru_reading` in rru.h, by the kind of vocabulary."""
NOTES, LOWER_WORDS = 1, 7


def layer_blob(layer: Layer, *, int8: bool = False) -> bytes:
    """Return the blob of a layer without a head: a step returns the output of the last cell.

    **Arguments:** `int8`: whether weights are rounded to int8.
    """
    tensors = Tensors(int8=int8)
    numbers = _layers(tensors, layer, layer.initial_state(1))
    return packed(numbers | {"kind": KINDS["layers"], "logits": layer.output_size, "members": 1}, tensors)


@torch.no_grad()
def blob(trained: Trained, *, int8: bool = False) -> bytes:
    """Return the blob of a trained model; raise ValueError if the engine cannot run it.

    **Arguments:** `int8`: whether weights are rounded to int8.
    """
    model, kind = trained.model, kind_of(trained.kind)
    main = kind.commands[0]
    head = _head_number(model)
    if head is None or main not in KINDS:
        what = f"{type(model).__name__} with a {type(model.head).__name__}"
        raise ValueError(f"a model of {trained.kind} ({what}) has no head in C; --format onnx or safetensors has it")
    tensors = Tensors(int8=int8)
    numbers: Numbers = {"kind": KINDS[main], "head": head, "logits": model.head.out_features, "members": 1}
    if model.embedding is not None:
        tensors.table("embedding", model.embedding.weight)
        numbers["tokens"] = model.embedding.num_embeddings
    names: list[bytes] = []
    if trained.vocabulary is not None:
        names += _tokens(trained.vocabulary)
        numbers |= {"padding": trained.vocabulary.padding, "unknown": trained.vocabulary.unknown}
        numbers["reading"] = LOWER_WORDS if main == "classify" else READINGS[trained.vocabulary.kind]
    if isinstance(model, Forecaster):
        numbers |= _forecaster(tensors, model, trained.facts)
        assert isinstance(trained.facts, SeriesFacts)
        names += [name.encode() for name in trained.facts.series]
    elif isinstance(model, TiedModel):
        numbers |= _tied(tensors, model)
    else:
        numbers |= _layers(tensors, model.layers, model.initial_state(1))
        tensors.matrix("head", Product(model.head.weight, model.head.bias))
    if main == "compose":
        beat = steps_per_beat(trained.trained_on)
        numbers |= {"keys": KEYS, "reading": NOTES, "first": LOWEST_NOTE, "beat": beat}
        if isinstance(model.head, LinearJointHead):
            _joint(tensors, model.head)
    if isinstance(trained.facts, SequenceFacts):
        numbers["scaled"] = 1
        tensors.doubles("means", trained.facts.scale.mean)
        tensors.doubles("deviations", trained.facts.scale.deviation)
    names += [name.encode() for name in kind.class_names(trained.facts)]
    tensors.names(names)
    return packed(numbers | {"names": len(names)}, tensors)


def _head_number(model: Recurrent) -> int | None:
    """Return the number of a model's head in the engine; None if it has none there."""
    if type(model) in (Forecaster, Ensemble):
        return FORECASTS
    if type(model) is Classifier and type(model.head) is nn.Linear:
        return OF_STATE
    if type(model) is TiedModel:
        return TIED
    return HEADS.get(type(model.head)) if type(model) is SequenceModel else None


def _layers(tensors: Tensors, layer: Layer, state: Tensor | tuple[Tensor, ...], prefix: str = "") -> Numbers:
    """Add the weights and initial states (layers, 1, n) of recurrent layers, and return their numbers.

    **Arguments:** `prefix`: begins the names of the tensors.
    """
    first = layer.cells[0]
    kernel, name = kernel_of(first), first.kernel
    if kernel is None or name not in CELLS:
        raise ValueError(f"{first.built_as.__name__} has no C engine: cells of {', '.join(CELLS)} have")
    if layer.bidirectional:
        raise ValueError("a bidirectional layer cannot run step by step, so it has no C engine")
    options = kernel.options.of(first)
    parts = (state,) if isinstance(state, Tensor) else state
    for number, cell in enumerate(layer.cells):
        products, others = KERNELS[name].matrices(checked_weights(cell, cell.weights()), kernel.options.of(cell))
        name_of = f"{prefix}{number}"
        main, *rest = products
        tensors.matrix(f"{name_of} first", main)
        for place, product in enumerate(rest, 1):
            tensors.matrix(f"{name_of} {place}", product)
        if name == "rru":
            *scale, rezero = others
            kept = torch.sigmoid(10 * scale[0]) if scale else rezero.new_ones(cell.hidden_size)
            tensors.floats(f"{name_of} kept", kept)
            tensors.floats(f"{name_of} Z", rezero.expand(cell.hidden_size))
        tensors.floats(f"{name_of} initial", torch.stack([part[number, 0] for part in parts]))  # (parts, n)
    numbers = {
        "cell": CELLS.index(name),
        "layers": len(layer.cells),
        "inputs": layer.input_size,
        "hidden": layer.hidden_size,
        "outputs": layer.output_size,
    }
    if isinstance(options, RRUOptions):
        more = {"option": options.relu_layers, "normalize": options.normalize, "activate": options.activate_outputs}
        return numbers | more
    if isinstance(options, MogrifierOptions):
        return numbers | {"option": options.rounds, "normalize": options.rank}
    return numbers | {"option": getattr(options, "reset_after", 0)}


def _tied(tensors: Tensors, model: TiedModel) -> Numbers:
    """Add the networks over time and over keys, and the head of the second; return their numbers."""
    over_keys, head = model.head.layers, model.head
    numbers = _layers(tensors, model.layers, model.layers.initial_state(1))
    others = _layers(tensors, over_keys, over_keys.initial_state(1), "keys ")
    sizes = ("inputs", "hidden", "outputs")
    if any(numbers[name] != others[name] for name in numbers if name not in sizes):
        raise ValueError("the networks over time and over keys must have the same cell, layers and options for C")
    tensors.matrix("head", Product(head.weight, head.bias))
    own = {"around": SIDE, "below": BELOW, "chord_hidden": others["hidden"], "chord_outputs": others["outputs"]}
    own["bar"] = model.bar or 0
    return numbers | own | {"inputs": KEYS, "logits": KEYS * numbers["outputs"]}


def _joint(tensors: Tensors, head: LinearJointHead) -> None:
    """Add what a joint head has beside the linear map to its conditions."""
    weights = head.sampling()
    tensors.whole("order", weights["order"].numpy())
    if isinstance(head, NadeHead):
        tensors.matrix("to hidden", _without_bias(weights["to_hidden"].t()))
        tensors.matrix("from hidden", _without_bias(weights["from_hidden"].t()))
    else:
        tensors.matrix("between", _without_bias(weights["between"]))


def _without_bias(weight: Tensor) -> Product:
    return Product(weight, weight.new_zeros(len(weight)))


def _forecaster(tensors: Tensors, model: Forecaster, facts: object) -> Numbers:
    """Add the tensors of a forecaster or an ensemble of them, and return its numbers."""
    assert isinstance(facts, SeriesFacts)  # every model of series has them
    members: Sequence[Forecaster] = [model]
    if isinstance(model, Ensemble):
        members = [model, *(other for other in model.others if isinstance(other, Forecaster))]
    numbers: Numbers = {"members": len(members)}
    for member in members:
        numbers |= _layers(tensors, member.layers, member.initial_state(1))
        tensors.matrix("head", Product(member.head.weight, member.head.bias))
        tensors.matrix("change", _without_bias(member.change), exact=True)
        if model.shape.known:
            tensors.matrix("known units", Product(member.known_units.weight, member.known_units.bias))
            tensors.matrix("known head", Product(member.known_head.weight, member.known_head.bias))
    tensors.floats("level", model.level)
    tensors.matrix("start", _without_bias(model.start), exact=True)
    if model.shape.known:
        tensors.floats("effects", model.effects)
    tensors.floats("trust", torch.cat([model.trust.reshape(1), model.widening]))
    tensors.floats("widths", model.widths)
    tensors.doubles(
        "scalings",
        [
            (each.floor or 0.0, each.centre, each.unit, -math.inf if each.least is None else each.least)
            for each in facts.series.values()
        ],
    )
    if facts.layout.size:
        tensors.doubles("means", facts.layout.means)
        tensors.doubles("deviations", facts.layout.deviations)
    shape = model.shape
    sizes = ("context", "horizon", "patch", "season", "past", "known", "series")
    return numbers | {name: getattr(shape, name) for name in sizes}


def _tokens(vocabulary: Vocabulary) -> list[bytes]:
    """Return the tokens of a vocabulary as bytes."""
    if vocabulary.kind != "bytes":
        return [token.encode(errors="replace") for token in vocabulary.tokens]
    return [token.encode("latin-1" if len(token) == 1 else "utf-8") for token in vocabulary.tokens]
