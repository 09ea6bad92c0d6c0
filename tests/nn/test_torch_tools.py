"""Torch's tools for modules work: saving, copying, casting, compiling, exporting."""

import copy
import io
import pickle

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn.utils import prune

import rru
from tests.variants import CELLS, FUSED, NATIVE, VARIANTS, assert_same, randomize, state_parts

every_cell = pytest.mark.parametrize("variant", CELLS, ids=str)
every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)
# each cell, and the variants that have other weights
WEIGHTS = ["rru-three-relu-layers", "rru-unscaled", "gru-reset-after", "mogrifier-low-rank"]
every_set_of_weights = pytest.mark.parametrize(
    "variant", [*CELLS, *(variant for variant in VARIANTS if variant.name in WEIGHTS)], ids=str
)
# each operator, each cell, and the variants that give an operator more or other tensors
GRAPHS = ["rru", "rru-three-relu-layers", "rru-relu-outputs", "gru", "lstm", "mogrifier", "mogrifier-low-rank"]
every_graph = pytest.mark.parametrize(
    "variant", [*CELLS, *(variant for variant in NATIVE + FUSED if variant.name.partition("-")[2] in GRAPHS)], ids=str
)


@every_set_of_weights
def test_state_dict(variant):
    layer, other = (variant.build(num_layers=2, bidirectional=True) for _ in range(2))
    x = torch.randn(4, 2, 3).double()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x)[0], layer(x)[0])


@every_set_of_weights
def test_safetensors(variant, tmp_path):
    layer, other = (variant.build(num_layers=2) for _ in range(2))
    x = torch.randn(4, 2, 3).double()
    safetensors.torch.save_model(layer, str(tmp_path / "layer.safetensors"))
    safetensors.torch.load_model(other, str(tmp_path / "layer.safetensors"))
    assert torch.equal(other(x)[0], layer(x)[0])


@every_set_of_weights
def test_deepcopy_and_pickle(variant):
    layer = variant.build(num_layers=2, dropout=0.5)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    copies = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(file, weights_only=False)
    x = torch.randn(4, 2, 3).double()
    for duplicate in copies:
        assert duplicate.dropout == 0.5
        assert torch.equal(duplicate.eval()(x)[0], layer.eval()(x)[0])
        with torch.no_grad():
            next(duplicate.parameters()).zero_()  # a copy's weights are its own
    assert next(layer.parameters()).any()


@every_set_of_weights
def test_a_saved_layer_loads_safely_with_its_public_classes_allowed(variant):
    layer, file = variant.build(num_layers=2), io.BytesIO()
    x = torch.randn(4, 2, 3).double()
    with torch.no_grad():
        layer.stepper()(x[0])
        outputs, state = layer(x)
    torch.save(layer, file)
    file.seek(0)
    with torch.serialization.safe_globals([variant.layer, variant.layer.cell_class, nn.ModuleList]):
        loaded = torch.load(file, weights_only=True)
    with torch.no_grad():
        assert torch.equal(loaded(x)[0], outputs)
        assert_same(loaded.stepper()(x[0], state), layer.stepper()(x[0], state))


@every_set_of_weights
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_dtypes(variant, dtype):
    double = variant.build(num_layers=2)
    x = torch.randn(4, 2, 3).double()
    expected = double(x)[0]
    layer = copy.deepcopy(double).to(dtype)
    outputs, state = layer(x.to(dtype), lengths=torch.tensor([4, 4]))
    assert {outputs.dtype, *(part.dtype for part in state_parts(state))} == {dtype}
    assert_same(outputs.double(), expected, {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 0.2}[dtype])
    outputs.sum().backward()
    assert all(parameter.grad.dtype == dtype for parameter in layer.parameters())


@every_set_of_weights
def test_meta_device_and_materializing(variant):
    layer = variant.layer(3, 4, device="meta", **variant.options)
    assert layer(torch.zeros(5, 2, 3, device="meta"))[0].shape[:2] == (5, 2)
    layer.to_empty(device="cpu").reset_parameters()
    assert layer(torch.randn(5, 2, 3))[0].isfinite().all()


@every_variant
def test_autocast(variant):
    layer = variant.build(num_layers=2, dtype=torch.float32)
    x, lengths = torch.randn(6, 2, 3), torch.tensor([6, 4])
    expected, _ = layer(x, lengths=lengths)
    with torch.autocast("cpu"):
        outputs, state = layer(x, lengths=lengths)
    for backend in ("native", "fused"):
        whole = copy.deepcopy(layer)
        whole.backend = backend
        with torch.autocast("cpu"):
            assert whole(x, lengths=lengths)[0].dtype == outputs.dtype  # whatever runs it
    outputs.float().sum().backward()
    tolerance = 0.1 * max(1, expected.abs().max().item())
    assert_same(outputs.float(), expected, tolerance)
    with torch.autocast("cpu"):  # 16 bits in, as from a layer before it
        assert_same(layer(x.bfloat16(), lengths=lengths)[0].float(), outputs.float(), tolerance)
    with torch.autocast("cpu"), pytest.raises(TypeError, match="input must be a 32-bit or 16-bit float under autocast"):
        layer(x.double())
    assert all(part.dtype == torch.float32 for part in state_parts(state))  # states add up over time: not rounded
    assert all(parameter.grad.dtype == torch.float32 for parameter in layer.parameters())


def gradients(layer, run, x):
    x = x.clone().requires_grad_()
    layer.zero_grad()
    outputs, state = run(x)
    (outputs.sin().sum() + sum(part.cos().sum() for part in state_parts(state))).backward()
    return outputs, state, [x.grad, *(parameter.grad for parameter in layer.parameters())]


@every_graph
@pytest.mark.parametrize("autocast", [False, True])
def test_compiled_graph_matches_eager(variant, autocast):
    torch.compiler.reset()
    layer = variant.build(bidirectional=True, dtype=torch.float32)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x, lengths = torch.randn(6, 3, 3), torch.tensor([6, 2, 1])

    def run(module):
        def call(x):
            with torch.autocast("cpu", enabled=autocast):
                return module(x, lengths=lengths)

        return call

    outputs, state, found = gradients(layer, run(compiled), x)
    wanted_outputs, expected_state, expected = gradients(layer, run(layer), x)
    tolerance = 0.02 if autocast else 1e-5
    assert_same(outputs, wanted_outputs, tolerance)
    assert_same(state, expected_state, tolerance)
    for gradient, wanted_gradient in zip(found, expected, strict=True):
        largest = wanted_gradient.abs().max().item()
        torch.testing.assert_close(gradient, wanted_gradient, rtol=tolerance, atol=tolerance * largest + 1e-6)


@every_cell
def test_compile_with_dropout_draws_a_new_mask_each_time_and_one_for_both_passes(variant):
    torch.compiler.reset()
    layer = variant.build(dropout=0.5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(6, 3, 3).double()
    assert not torch.equal(compiled(x)[0], compiled(x)[0])

    def seeded(module):
        def call(x):
            torch.manual_seed(3)
            return module(x)

        return call

    outputs, _, found = gradients(layer, seeded(compiled), x)
    wanted_outputs, _, expected = gradients(layer, seeded(layer), x)
    assert_same(outputs, wanted_outputs)
    assert_same(tuple(found), tuple(expected))


def test_compile_two_layers_with_the_default_compiler():
    torch.compiler.reset()
    model = nn.Sequential(rru.RRU(3, 4, num_layers=2), First(), nn.Linear(4, 2))
    x = torch.randn(6, 3, 3)
    compiled = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))
    compiled(x).sum().backward()


class First(nn.Module):
    def forward(self, pair):
        return pair[0]


def graph_size(layer, x):
    """How many nodes the graph has that torch.compile makes."""
    torch.compiler.reset()
    sizes = []

    def backend(graph, example_inputs):
        sizes.append(len(graph.graph.nodes))
        return graph.forward

    torch.compile(layer, fullgraph=True, backend=backend)(x)
    return sizes


@every_cell
def test_the_compiled_graph_does_not_grow_with_the_sequence(variant):
    layer = variant.build(num_layers=2)
    short, long = (graph_size(layer, torch.randn(steps, 3, 3).double()) for steps in (6, 2000))
    assert short == long


def test_lengths_are_checked_in_a_compiled_graph_too():
    torch.compiler.reset()
    compiled = torch.compile(rru.RRU(3, 4), fullgraph=True, backend="aot_eager")
    with pytest.raises(ValueError, match="lengths must be from 1 to 6, the steps of the input; got 7"):
        compiled(torch.randn(6, 2, 3), lengths=torch.tensor([6, 7]))


@every_graph
def test_export_with_free_batch_and_time(variant):
    layer = variant.build(num_layers=2, bidirectional=True).eval()
    steps, batch = torch.export.Dim("steps"), torch.export.Dim("batch")
    program = torch.export.export(
        layer,
        (torch.randn(5, 3, 3).double(),),
        {"lengths": torch.tensor([5, 1, 2])},
        dynamic_shapes={"input": {0: steps, 1: batch}, "lengths": {0: batch}},
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    x, lengths = torch.randn(9, 2, 3).double(), torch.tensor([4, 9])
    outputs, state = loaded(x, lengths=lengths)
    wanted_outputs, expected_state = layer(x, lengths=lengths)
    assert_same(outputs, wanted_outputs)
    assert_same(state, expected_state)


@every_cell
def test_the_cell_compiles_and_exports(variant):
    torch.compiler.reset()
    cell = variant.build().cells[0].eval()
    x = torch.randn(3, 3).double()
    assert_same(torch.compile(cell, fullgraph=True, backend="aot_eager")(x)[0], cell(x)[0])
    assert_same(torch.export.export(cell, (x,)).module()(x)[0], cell(x)[0])


@every_cell
@pytest.mark.parametrize("backend", ["reference", "native", "fused"])
def test_parametrized_weights_are_computed_once_per_sequence(variant, backend):
    calls = []

    class Doubled(nn.Module):
        def forward(self, weight):
            calls.append(1)
            return 2 * weight

    layer = randomize(variant.layer(3, 4, backend=backend))
    nn.utils.parametrize.register_parametrization(layer.cells[0], "weight_h", Doubled())
    plain = randomize(variant.layer(3, 4))
    plain.load_state_dict(
        {
            name.replace("parametrizations.weight_h.original", "weight_h"): value
            for name, value in layer.state_dict().items()
        }
    )
    with torch.no_grad():
        plain.cells[0].weight_h *= 2
    x = torch.randn(50, 2, 3)
    calls.clear()
    outputs = layer(x)[0]
    assert len(calls) == 1
    assert_same(outputs, plain(x)[0], 1e-5)
    torch.compiler.reset()
    assert_same(torch.compile(layer, fullgraph=True, backend="aot_eager")(x)[0], outputs, 1e-5)


@every_cell
@pytest.mark.parametrize("backend", ["reference", "native", "fused"])
def test_pruned_weights_stay_pruned_through_training(variant, backend):
    layer = randomize(variant.layer(3, 4, backend=backend))
    prune.l1_unstructured(layer.cells[0], "weight_h", 0.5)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.randn(20, 2, 3)
    for _ in range(2):
        optimizer.zero_grad()
        layer(x)[0].square().sum().backward()
        optimizer.step()
    layer(x)
    assert (layer.cells[0].weight_h == 0).sum() == layer.cells[0].weight_h.numel() // 2


class Decoder(nn.Module):
    """Reads all but the last step with a layer, and the last with its cell."""

    def __init__(self, variant):
        super().__init__()
        self.rnn = variant.build()
        self.head = nn.Linear(self.rnn.output_size, 2, dtype=torch.float64)

    def forward(self, x, lengths):
        outputs, state = self.rnn(x[:-1], lengths=lengths)
        output, after = self.rnn.cells[0](x[-1])
        return self.head(outputs), self.head(output), self.rnn(x, state)[0], after


@every_cell
def test_fx_sees_layers_and_cells_as_single_nodes(variant):
    model, x, lengths = Decoder(variant), torch.randn(6, 2, 3).double(), torch.tensor([5, 3])
    traced = torch.fx.symbolic_trace(model)
    calls = [str(node.target) for node in traced.graph.nodes if node.op == "call_module"]
    assert calls == ["rnn", "rnn.cells.0", "head", "head", "rnn"]
    torch.testing.assert_close(traced(x, lengths), model(x, lengths))
    for module in (model.rnn, model.rnn.cells[0]):
        with pytest.raises(TypeError, match=f"torch.fx cannot trace {type(module).__name__} alone"):
            torch.fx.symbolic_trace(module)


def test_forward_mode_derivatives():
    layer, x = rru.RRU(3, 4), torch.randn(20, 2, 3)
    _, tangent = torch.func.jvp(lambda x: layer(x)[0], (x,), (x,))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        assert_same(torch.autograd.forward_ad.unpack_dual(layer(dual)[0]).tangent, tangent, 1e-5)


@every_cell
def test_functional_transforms(variant):
    layer = variant.build()
    parameters = dict(layer.named_parameters())
    x = torch.randn(4, 3, 3).double()

    def loss(parameters, sequence):
        return torch.func.functional_call(layer, parameters, (sequence,))[0].square().sum()

    per_sequence = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 1))(parameters, x)
    layer.zero_grad()
    layer(x)[0].square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert_same(per_sequence[name].sum(0), parameter.grad)


@every_variant
def test_data_parallel_replica_matches_the_layer(variant):
    """It has no parameters: torch sets copies of them as plain attributes."""
    layer, x = variant.build(3, 4), torch.randn(5, 2, 3, dtype=torch.float64)
    replicas = {module: module._replicate_for_data_parallel() for module in layer.modules()}
    for module, replica in replicas.items():
        replica._modules = {name: replicas[child] for name, child in module._modules.items()}
        for name, weight in module._parameters.items():
            setattr(replica, name, weight.clone())
    assert not list(replicas[layer].parameters())
    assert_same(replicas[layer](x)[0], layer(x)[0])
