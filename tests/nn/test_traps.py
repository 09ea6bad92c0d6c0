"""Pitfalls for code written for torch's layers: it works, or an error says what to do."""

import inspect
import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

import rru
from tests.timeouts import TIMEOUT
from tests.variants import CELLS, FUSED, NATIVE, assert_same, randomize

every_cell = pytest.mark.parametrize("variant", CELLS, ids=str)


@every_cell
def test_third_argument_is_num_layers(variant):
    assert variant.layer(3, 4, 2).num_layers == 2
    with pytest.raises(TypeError, match="positional"):
        variant.layer.cell_class(3, 4, 2)


@every_cell
def test_further_positional_arguments_raise_and_are_named(variant):
    message = (
        rf"{variant.layer.__name__} takes 3 arguments by position \(input_size, hidden_size, num_layers\), got 5: pass "
        "the others by name; in torch's order they are bias=True, batch_first=False"
    )
    with pytest.raises(TypeError, match=message):
        variant.layer(3, 4, 2, True, False)


@every_cell
def test_torch_defaults_are_accepted(variant):
    layer = variant.layer(3, 4, bias=True, proj_size=0)
    assert layer.cells[0].options == variant.layer(3, 4).cells[0].options
    assert layer(torch.randn(5, 2, 3))[0].shape == (5, 2, 4)
    assert variant.layer.cell_class(3, 4, bias=True)(torch.randn(2, 3))[0].shape == (2, 4)


@every_cell
@pytest.mark.parametrize(
    ("argument", "instead"),
    [
        ({"bias": False}, "biases cannot be turned off"),
        ({"proj_size": 2}, "use output_size with rru.RRU"),
        ({"nonlinearity": "relu"}, "the cell's equations fix its activations"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_torch_only_arguments_raise_and_name_alternatives(variant, argument, instead):
    ((name, value),) = argument.items()
    for kind in (variant.layer, variant.layer.cell_class):
        with pytest.raises(TypeError, match=f"{kind.__name__} takes no argument {name}={value!r}: {instead}"):
            kind(3, 4, **argument)


@every_cell
def test_unknown_argument_error_lists_known_ones(variant):
    for kind in (variant.layer, variant.layer.cell_class):
        known = ", ".join(inspect.signature(kind).parameters)
        with pytest.raises(TypeError, match=f"no argument 'dropuot'; did you mean 'dropout'\\? Known: {known}"):
            kind(3, 4, dropuot=0.5)


@every_cell
def test_signature_and_docstring_list_every_argument(variant):
    for kind in (variant.layer, variant.layer.cell_class):
        parameters = inspect.signature(kind).parameters
        assert {"input_size", "hidden_size", "dropout", "device", "dtype"} < parameters.keys()
        assert not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters.values())
        assert all(f"- `{name}`: " in kind.__doc__ for name in parameters)
        module = kind(3, 4)
        assert list(inspect.signature(module.forward).parameters)[:2] == ["input", "state"]
        assert not hasattr(module, "__signature__")  # calling a module is not making one


@every_cell
def test_hx_is_an_alias_of_state(variant):
    layer, x = variant.layer(3, 4), torch.randn(5, 2, 3)
    _, state = layer(x)
    assert_same(layer(x, hx=state)[0], layer(x, state)[0])
    cell, step = layer.cells[0], x[0]
    _, state = cell(step)
    assert_same(cell(step, hx=state)[0], cell(step, state)[0])
    for module, given in ((cell, step), (layer, x)):
        with pytest.raises(TypeError, match="state and hx are the same argument"):
            module(given, state, hx=state)


def test_unpacking_the_state_gives_layers_and_directions_as_with_gru():
    layer, x = rru.RRU(3, 4, 2), torch.randn(5, 2, 3)
    _, state = layer(x)
    _, (first, second) = layer(x)  # not (h, c): see docs/migrating.md
    assert_same(torch.stack((first, second)), state)
    _, (_forward, _backward) = rru.GRU(3, 4, bidirectional=True)(x)
    lstm = nn.LSTM(3, 4, 2)
    rru.replace(lstm)
    _, (_h, _c) = lstm(x)
    with pytest.raises(ValueError, match=r"not enough values to unpack \(expected 2, got 1\)"):
        _, (_h, _c) = rru.RRU(3, 4)(x)


def test_pair_as_initial_state_raises():
    layer, x = rru.RRU(3, 4, 2), torch.randn(5, 2, 3)
    _, state = layer(x)
    for pair in ((state, state), [state, state]):
        with pytest.raises(TypeError, match=r"RRU has one state h, not a pair \(h, c\)"):
            layer(x, pair)
        with pytest.raises(TypeError, match=r"RRUCell has one state h, not a pair \(h, c\)"):
            layer.cells[0](x[0], pair)


def _forget_bias(model):
    for name, parameter in model.named_parameters():
        if "bias" in name:
            size = len(parameter)
            parameter.data[size // 4 : size // 2] = 1


def _uniform(model):
    for parameter in model.parameters():
        parameter.data.uniform_(-0.1, 0.1)


@pytest.mark.parametrize(
    ("loop", "changed"),
    [
        (_forget_bias, {"bias_j", "bias_c", "bias_o"}),
        (_uniform, set(rru.RRUCell(3, 4).weight_shapes)),
    ],
    ids=["forget bias", "uniform"],
)
@pytest.mark.parametrize("build", [rru.RRU, nn.LSTM], ids=["RRU", "replaced"])
def test_loops_that_set_initial_values_are_undone_by_reset_parameters(build, loop, changed):
    model = build(3, 8)
    if build is not rru.RRU:
        rru.replace(model)
    torch.manual_seed(0)
    model.reset_parameters()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loop(model)
    differ = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.rpartition(".")[2] for name in differ} == changed
    torch.manual_seed(0)
    model.reset_parameters()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@every_cell
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0_reverse", "bias_hh_l1", "all_weights", "_all_weights"])
def test_torch_weight_names_raise_and_name_ours(variant, name):
    with pytest.raises(AttributeError, match=f"has no {name}: its weights are in .cells, in named_parameters()"):
        getattr(variant.layer(3, 4), name)


@pytest.mark.parametrize("kind", [rru.RRU, rru.RRUCell])
def test_scripting_raises_and_names_alternatives(kind):
    with pytest.raises(RuntimeError, match=rf"torch\.jit\.script cannot compile {kind.__name__}: use torch\.export"):
        torch.jit.script(nn.Sequential(kind(3, 4)))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("variant", NATIVE, ids=str)
@pytest.mark.parametrize("with_gradients", [False, True])
def test_traced_layer_runs_and_trains_on_other_sizes(variant, with_gradients):
    layer = variant.build(num_layers=2)
    with torch.set_grad_enabled(with_gradients):  # TensorBoard's add_graph traces with gradients
        traced = torch.jit.trace(layer, (torch.randn(20, 2, 3).double(),))
    x, gradients = torch.randn(30, 5, 3).double(), []
    for module in (traced, layer):
        outputs = module(x)[0]
        gradients.append(torch.autograd.grad(outputs.sin().sum(), layer.parameters()))
        assert_same(outputs, layer(x)[0])
    assert_same(*gradients)


@pytest.mark.parametrize("variant", [*CELLS, *(v for v in NATIVE + FUSED if v.name.count("-") == 1)], ids=str)
def test_padding_gets_no_gradient_even_from_nan_weights(variant):
    layer = variant.build()
    with torch.no_grad():
        layer.cells[0].weight_x.fill_(torch.nan)
    x = torch.randn(20, 2, 3).double().requires_grad_()
    layer(x, lengths=torch.tensor([20, 5]))[0].sum().backward()
    assert (x.grad[5:, 1] == 0).all()
    assert x.grad[:5, 1].isnan().all()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_merged_bias_is_trainable_if_either_was(kind):
    ours = {nn.LSTM: rru.LSTM, nn.GRU: rru.GRU}[kind]
    theirs = kind(3, 4)
    theirs.bias_hh_l0.requires_grad_(False)
    (cell,) = ours.from_torch(theirs).cells
    assert cell.bias.requires_grad
    if kind is nn.GRU:
        assert not cell.bias_h.requires_grad
    theirs.bias_ih_l0.requires_grad_(False)
    (cell,) = ours.from_torch(theirs).cells
    assert not cell.bias.requires_grad
    theirs.bias_hh_l0.requires_grad_(True)
    if kind is nn.LSTM:
        assert ours.from_torch(theirs).cells[0].bias.requires_grad
    else:  # half of ours would be learned, half not
        with pytest.raises(ValueError, match="bias_ih must be learned where bias_hh is"):
            ours.from_torch(theirs)


@pytest.mark.parametrize("variant", [*CELLS, *(v for v in NATIVE + FUSED if v.name.count("-") == 1)], ids=str)
def test_activation_checkpointing(variant):
    layer = variant.build(dropout=0.5)
    x = torch.randn(20, 2, 3).double()
    gradients = []
    for run in (lambda x: layer(x)[0], lambda x: checkpoint(layer, x, use_reentrant=False)[0]):
        torch.manual_seed(0)
        layer.zero_grad()
        run(x).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in layer.parameters()])
    assert_same(tuple(gradients[0]), tuple(gradients[1]))


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.spectral_norm])
@pytest.mark.parametrize("variant", [*CELLS, *(v for v in NATIVE + FUSED if v.name.count("-") == 1)], ids=str)
def test_weight_and_spectral_norm(variant, norm):
    layer = randomize(variant.layer(3, 4, backend=variant.options["backend"]))
    norm(layer.cells[0], "weight_h")
    x = torch.randn(20, 2, 3)
    layer(x)[0].sum().backward()
    trained = [p for name, p in layer.named_parameters() if "original" in name]
    assert trained
    assert all(p.grad.any() for p in trained)
    assert_same(layer.eval()(x)[0][0], layer.cells[0](x[0])[0], 1e-5)


@every_cell
def test_averaged_models(variant):
    layer = variant.build()
    averaged, x = AveragedModel(layer), torch.randn(5, 2, 3).double()
    first = [parameter.detach().clone() for parameter in layer.parameters()]
    averaged.update_parameters(layer)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(1)
    averaged.update_parameters(layer)
    for before, parameter in zip(first, averaged.parameters(), strict=True):
        torch.testing.assert_close(parameter, before + 0.5)
    assert averaged(x)[0].shape == layer(x)[0].shape


def _distributed(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(rru.RRU(3, 4))
    for _ in range(2):
        model(torch.full((5, 2, 3), rank + 1.0))[1].sum().backward()
    results.put([parameter.grad.tolist() for parameter in model.parameters()])
    results.close()
    results.join_thread()
    dist.barrier()
    os._exit(0)  # torch can deadlock while it frees the model: a thread of gloo waits for the GIL, and is waited for


def test_a_model_that_reads_only_the_state_under_distributed_data_parallel(processes, tmp_path):
    """weight_o and bias_o then have zero gradients, so DistributedDataParallel does not wait for them."""
    results = processes.Queue()
    ranks = [processes.Process(target=_distributed, args=(rank, tmp_path, results)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    first, second = [results.get(timeout=TIMEOUT) for _ in ranks]
    for rank in ranks:
        rank.join()
    assert first == second


def _sharded(folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    mesh, x = init_device_mesh("cpu", (1,)), torch.randn(5, 2, 3)
    layer = rru.RRU(3, 4, num_layers=2)
    fully_shard(layer.cells[1], mesh=mesh)
    try:
        layer(x)
    except TypeError as error:
        results.put(str(error))
    layer = rru.RRU(3, 4)
    expected = layer(x)[0]
    results.put(torch.equal(fully_shard(layer, mesh=mesh)(x)[0], expected))
    results.close()
    results.join_thread()
    os._exit(0)


def test_sharding_a_layer_works_and_sharding_its_cells_raises(processes, tmp_path):
    results = processes.Queue()
    process = processes.Process(target=_sharded, args=(tmp_path, results))
    process.start()
    error, layer_works = [results.get(timeout=TIMEOUT) for _ in range(2)]
    process.join()
    assert error == "the weights in RRU.cells are sharded (DTensor): apply fully_shard to the RRU, not to its cells"
    assert layer_works


@pytest.mark.parametrize("variant", [*CELLS, *NATIVE, *FUSED], ids=str)
def test_outputs_may_be_changed_in_place_before_the_backward_pass(variant):
    layer = variant.build(num_layers=2)
    x = torch.randn(5, 4, 3).double()
    layer(x)[0].mul(3).sum().backward()
    expected = [parameter.grad for parameter in layer.parameters()]
    layer.zero_grad()
    layer(x)[0].mul_(3).sum().backward()
    assert_same([parameter.grad for parameter in layer.parameters()], expected)
