"""Models as ONNX graphs: a cell's own equations, run once on symbols that write down what is done to them.

So there is one definition of every cell, a user's own included. The loop over time is ONNX's Scan, whose body is the
cell's `step`; `project` and `readout` stand before and after it, for all steps at once. Time and batch are free.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from rru.nn import Cell
from rru.tasks import Recurrent, SequenceModel

OPSET = 20
IR_VERSION = 9  # of the ONNX format: what runtimes of 2024 and later read


class Graph:
    """Nodes of a graph under construction; constants all lie in the outermost one, where inner graphs see them."""

    def __init__(self, constants: "dict[str, onnx.TensorProto] | None" = None, prefix: str = "") -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants = {} if constants is None else constants
        self.prefix = prefix

    def add(self, kind: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> list[str]:
        """A new node; the names of its outputs."""
        names = [f"{self.prefix}{kind}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def constant(self, value: NDArray[Any] | Tensor) -> str:
        """A constant's name; the same for the same content."""
        array = np.ascontiguousarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
        known = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        name = f"constant_{known.hexdigest()[:16]}"
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def integers(self, *values: int) -> str:
        """A constant of whole numbers, (count,)."""
        return self.constant(np.array(values, np.int64))


class Symbol:
    """A tensor that is not there yet: what is done to it becomes nodes of a graph.

    **Arguments:** `graph`: where to; `name`: of the value there; `features`: the size of its last dimension.
    """

    def __init__(self, graph: Graph, name: str, features: int) -> None:
        self.graph, self.name, self.features = graph, name, features

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> "Symbol | list[Symbol]":
        name = getattr(function, "__name__", str(function)).strip("_")
        (this, *_) = [value for value in args if isinstance(value, Symbol)]
        if name not in _FUNCTIONS:
            raise ValueError(
                f"{name} has no translation to ONNX; a cell to be exported may use {', '.join(sorted(_FUNCTIONS))}"
            )
        return _FUNCTIONS[name](this.graph, *args, **(kwargs or {}))  # type: ignore[no-any-return]

    def __add__(self, other: Any) -> "Symbol":
        return _pointwise("Add")(self.graph, self, other)

    def __mul__(self, other: Any) -> "Symbol":
        return _pointwise("Mul")(self.graph, self, other)

    def __sub__(self, other: Any) -> "Symbol":
        return _pointwise("Sub")(self.graph, self, other)

    def __rsub__(self, other: Any) -> "Symbol":
        return _pointwise("Sub")(self.graph, other, self)

    __radd__, __rmul__ = __add__, __mul__

    def __getitem__(self, index: Any) -> "Symbol":
        if not (isinstance(index, tuple) and len(index) == 2 and index[0] is ... and isinstance(index[1], slice)):
            raise ValueError(f"a cell to be exported may cut features only, x[..., a:b]; got {index!r}")
        first, last, step = index[1].indices(self.features)
        integers = [self.graph.integers(value) for value in (first, last, -1, step)]
        (name,) = self.graph.add("Slice", [self.name, *integers])
        return Symbol(self.graph, name, len(range(first, last, step)))

    def chunk(self, chunks: int, dim: int = -1) -> "list[Symbol]":
        """As torch's, along features, which must divide evenly."""
        return _chunk(self.graph, self, chunks, dim)


def _pointwise(kind: str) -> Callable[..., Symbol]:
    def apply(graph: Graph, one: Any, other: Any) -> Symbol:
        features = max(value.features if isinstance(value, Symbol) else _last(value) for value in (one, other))
        (name,) = graph.add(kind, [_name(graph, one), _name(graph, other)])
        return Symbol(graph, name, features)

    return apply


def _unary(kind: str) -> Callable[..., Symbol]:
    def apply(graph: Graph, x: Symbol, inplace: bool = False) -> Symbol:
        return Symbol(graph, graph.add(kind, [x.name])[0], x.features)

    return apply


def _linear(graph: Graph, x: Symbol, weight: Tensor, bias: Tensor | None = None) -> Symbol:
    (name,) = graph.add("MatMul", [x.name, graph.constant(weight.T)])
    if bias is not None:
        (name,) = graph.add("Add", [name, graph.constant(bias)])
    return Symbol(graph, name, weight.shape[0])


def _rms_norm(
    graph: Graph, x: Symbol, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Symbol:
    if tuple(shape) != (x.features,) or weight is not None or eps is None:
        raise ValueError("rms_norm is translated to ONNX over all features, without weights, with an eps")
    (square,) = graph.add("Mul", [x.name, x.name])
    (mean,) = graph.add("ReduceMean", [square, graph.integers(-1)], keepdims=1)
    (shifted,) = graph.add("Add", [mean, graph.constant(np.array(eps, np.float32))])
    (root,) = graph.add("Sqrt", [shifted])
    return Symbol(graph, graph.add("Div", [x.name, root])[0], x.features)


def _chunk(graph: Graph, x: Symbol, chunks: int, dim: int = -1) -> list[Symbol]:
    if dim != -1 or x.features % chunks:
        raise ValueError(f"chunk is translated to ONNX along features, evenly; got {chunks} along {dim}")
    names = graph.add("Split", [x.name], chunks, axis=-1, num_outputs=chunks)
    return [Symbol(graph, name, x.features // chunks) for name in names]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "linear": _linear,
    "rms_norm": _rms_norm,
    "chunk": _chunk,
    "relu": _unary("Relu"),
    "sigmoid": _unary("Sigmoid"),
    "tanh": _unary("Tanh"),
    "add": _pointwise("Add"),
    "mul": _pointwise("Mul"),
    "sub": _pointwise("Sub"),
    "minimum": _pointwise("Min"),
    "maximum": _pointwise("Max"),
    "radd": _pointwise("Add"),
    "rmul": _pointwise("Mul"),
    "rsub": lambda graph, one, other: _pointwise("Sub")(graph, other, one),
}


def _name(graph: Graph, value: Any) -> str:
    if isinstance(value, Symbol):
        return value.name
    return graph.constant(value if isinstance(value, Tensor) else np.array(value, np.float32))


def _last(value: Any) -> int:
    return int(value.shape[-1]) if isinstance(value, Tensor) and value.dim() else 1


def sequence_model(model: Recurrent) -> onnx.ModelProto:
    """A model over whole sequences, from its initial state.

    **Inputs:** `input`, (T, B) tokens or (T, B, m). **Outputs:** `logits`, (T, B, outputs), or (B, outputs) of a
    classifier; and the last state, (layers, B, n) for each part: `h`, and for the LSTMs `c`.
    """
    return _model(model, whole=True)


def step_model(model: Recurrent) -> onnx.ModelProto:
    """One step of a model, its state given and taken.

    **Inputs:** `input`, (B,) tokens or (B, m); the state, (layers, B, n) for each part: `h`, and for the LSTMs `c`.
    **Outputs:** `logits`, (B, outputs); the new state, `h_next`, and for the LSTMs `c_next`.
    """
    return _model(model, whole=False)


def _model(model: Recurrent, *, whole: bool) -> onnx.ModelProto:
    graph = Graph()
    free = ["T", "B"] if whole else ["B"]
    if model.embedding is not None:
        inputs = [helper.make_tensor_value_info("input", TensorProto.INT64, free)]
        (name,) = graph.add("Gather", [graph.constant(model.embedding.weight), "input"])
    else:
        inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, [*free, model.layers.input_size])]
        name = "input"
    x = Symbol(graph, name, model.layers.input_size)
    parts = list(model.layers.cells[0].state_names)
    states = _first_states(graph, model) if whole else _given_states(graph, len(model.layers.cells), parts)
    shape: list[str | int | None] = [len(model.layers.cells), "B", model.layers.hidden_size]
    if not whole:
        inputs += [helper.make_tensor_value_info(part, TensorProto.FLOAT, shape) for part in parts]
    after: list[Sequence[str]] = []
    for number, (cell, state) in enumerate(zip(model.layers.cells, states, strict=True)):
        x, last = (_scan if whole else _step)(graph, cell, x, state, number)
        after.append(last)
    read = x if isinstance(model, SequenceModel) else Symbol(graph, after[-1][0], model.layers.hidden_size)
    logits: Any = F.linear(read, model.head.weight, model.head.bias)  # type: ignore[arg-type]
    graph.nodes.append(helper.make_node("Identity", [logits.name], ["logits"]))
    lead = free if isinstance(model, SequenceModel) else ["B"]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [*lead, model.head.out_features])]
    for index, part in enumerate(parts):
        name = part if whole else f"{part}_next"
        lifted = [graph.add("Unsqueeze", [last[index], graph.integers(0)])[0] for last in after]
        graph.nodes.append(helper.make_node("Concat", lifted, [name], axis=0))
        outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    built = helper.make_graph(graph.nodes, "rru", inputs, outputs, list(graph.constants.values()))
    made = helper.make_model(built, producer_name="rru", opset_imports=[helper.make_opsetid("", OPSET)])
    made.ir_version = IR_VERSION
    onnx.checker.check_model(made, full_check=True)
    return made


def _scan(graph: Graph, cell: Cell, x: Symbol, state: Sequence[str], number: int) -> tuple[Symbol, list[str]]:
    """A cell over time: outputs and last state."""
    projected: Any = cell.project(x)  # type: ignore[arg-type]
    body = Graph(graph.constants, f"layer{number}_")
    before = [Symbol(body, f"layer{number}_{part}", cell.hidden_size) for part in cell.state_names]
    now = Symbol(body, f"layer{number}_x", projected.features)
    features, after = _one_step(cell, now, before)
    named = {f"layer{number}_{part}_next": value for part, value in zip(cell.state_names, after, strict=True)}
    named[f"layer{number}_features"] = features
    for name, value in named.items():
        body.nodes.append(helper.make_node("Identity", [value.name], [name]))
    inner = helper.make_graph(
        body.nodes,
        f"layer{number}",
        [_features(symbol.name, symbol.features) for symbol in (*before, now)],
        [_features(name, value.features) for name, value in named.items()],
    )
    *last, stacked = graph.add("Scan", [*state, projected.name], len(named), body=inner, num_scan_inputs=1)
    outputs: Any = cell.readout(Symbol(graph, stacked, features.features))  # type: ignore[arg-type]
    return outputs, last


def _step(graph: Graph, cell: Cell, x: Symbol, state: Sequence[str], number: int) -> tuple[Symbol, list[str]]:
    """A cell's single step: output and new state."""
    before = [Symbol(graph, name, cell.hidden_size) for name in state]
    features, after = _one_step(cell, cell.project(x), before)  # type: ignore[arg-type]
    outputs: Any = cell.readout(features)
    return outputs, [value.name for value in after]


def _one_step(cell: Cell, projected: Any, before: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    with torch.no_grad():
        return cell.step(projected, tuple(before), None)


def _first_states(graph: Graph, model: Recurrent) -> list[list[str]]:
    """The initial state of each layer, as many rows as the input has sequences."""
    state = model.initial_state(1)
    parts = (state,) if isinstance(state, Tensor) else state  # (layers, 1, n) each
    (shape,) = graph.add("Shape", ["input"], start=1, end=2)
    states = []
    for layer in range(len(model.layers.cells)):
        (wanted,) = graph.add("Concat", [shape, graph.integers(model.layers.hidden_size)], axis=0)
        states.append([graph.add("Expand", [graph.constant(part[layer]), wanted])[0] for part in parts])
    return states


def _given_states(graph: Graph, layers: int, parts: Sequence[str]) -> list[list[str]]:
    """The state of each layer, from the model's inputs."""
    split = {part: graph.add("Split", [part], layers, axis=0, num_outputs=layers) for part in parts}
    return [
        [graph.add("Squeeze", [split[part][layer], graph.integers(0)])[0] for part in parts] for layer in range(layers)
    ]


def _features(name: str, size: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", size])
