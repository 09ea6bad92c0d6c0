"""The weight gradients that all steps of a cell share, in every kind of graph that autograd allows."""

import copy
import gc
import pickle
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from rru.scan.native import library
from tests.scan.case import assert_near
from tests.scan.steps import Steps

pytestmark = pytest.mark.skipif(not library.BUILT, reason="the native library is not built")


@pytest.fixture
def steps():
    return Steps()


def node_of(cell):
    """The node that the next step would share, None if it would make one."""
    return cell.native_step.latest._node()


def test_steps_of_one_graph_share_a_node_that_goes_with_the_graph(steps):
    gc.disable()
    try:
        total = steps.total()
        node = node_of(steps.cell)
        again = steps.total()
        assert node is node_of(steps.cell) is not None
        del node, total
        again.backward()
        assert node_of(steps.cell).shared._sums == {}
        del again
        assert node_of(steps.cell) is None
    finally:
        gc.enable()


def test_parts_of_a_graph_one_after_the_other(steps):
    def compute():
        outputs, last = steps.run()
        for part in (outputs[1].sum(), outputs[4].pow(2).sum(), last.sum()):
            part.backward(retain_graph=True)
        outputs.pow(2).sum().backward()
        results = [tensor.grad for tensor in steps.tensors]
        for tensor in steps.tensors:
            tensor.grad = None
        return results

    steps.assert_like_reference(compute)


def test_two_graphs_with_one_node(steps):
    def compute():
        outputs, last = steps.run()
        others, _ = steps.run(state=last.detach())
        wanted = [*steps.cell.parameters()]
        return [*torch.autograd.grad(others.pow(2).sum(), wanted), *torch.autograd.grad(outputs.pow(2).sum(), wanted)]

    steps.assert_like_reference(compute)


def test_gradients_of_some_tensors_only(steps):
    def compute():
        total = steps.total()
        several = [steps.x], [steps.cell.weight_c], [*steps.state, steps.cell.Z]
        found = [torch.autograd.grad(total, tensors, retain_graph=True) for tensors in several]
        if (node := node_of(steps.cell)) is not None:
            assert node.shared._sums == {}
        return [gradient for gradients in found for gradient in gradients]

    steps.assert_like_reference(compute)


def test_a_graph_that_was_used_up_is_an_error(steps):
    total = steps.total()
    total.backward()
    with pytest.raises(RuntimeError, match="second time"):
        total.backward()


def test_weights_changed_after_a_step_are_an_error(steps):
    total = steps.total()
    with torch.no_grad():
        steps.cell.weight_h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_a_pass_that_failed_leaves_nothing_to_the_next(steps):
    total = steps.total()
    handle = steps.state[0].register_hook(lambda gradient: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        torch.autograd.grad(total, steps.tensors, retain_graph=True)
    handle.remove()
    assert_near(torch.autograd.grad(total, steps.tensors), steps.gradients(), 1e-12)


def test_results_that_are_changed_in_place(steps):
    def compute():
        total, state = 0, steps.state[0]
        for x in steps.x:
            output, state = steps.cell(x, state)
            state[0] = 0  # such as at the end of an episode
            total = total + output.mul_(2).pow(2).sum()
        return torch.autograd.grad(total, steps.tensors)

    steps.assert_like_reference(compute)


def test_gradients_of_gradients(steps):
    steps.cell.dropout = 0.4

    def compute():
        gradients = torch.autograd.grad(steps.total(), steps.tensors, create_graph=True)
        penalty = sum(gradient.pow(2).sum() for gradient in gradients)
        return [*gradients, *torch.autograd.grad(penalty, steps.tensors, materialize_grads=True)]

    steps.assert_like_reference(lambda: [gradient.detach() for gradient in compute()])


def test_many_gradients_at_once(steps):
    def compute():
        outputs, _ = steps.run()
        units = torch.eye(3, dtype=torch.float64)
        return torch.autograd.grad(outputs[:, :, 0].sum(0), steps.tensors, units, is_grads_batched=True)

    steps.assert_like_reference(compute)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_checkpoints(reentrant, whole, steps):
    steps.cell.dropout = 0.4

    def compute():
        def cell(*given):
            return checkpoint(steps.cell, *given, use_reentrant=reentrant)

        if whole:
            outputs, last = checkpoint(lambda x: steps.run(x=x), steps.x, use_reentrant=reentrant)
        else:
            outputs, last = steps.run(cell)
        (outputs.pow(2).sum() + last.pow(2).sum()).backward()
        results = [weight.grad for weight in steps.cell.parameters()] + [steps.x.grad]
        for tensor in steps.tensors:
            tensor.grad = None
        return results

    steps.assert_like_reference(compute)


def test_hooks_get_the_sum_once(steps):
    def compute():
        seen = []
        handles = [
            steps.cell.weight_h.register_hook(lambda gradient: seen.append(gradient.clone())),
            steps.cell.Z.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.grad.clone())),
        ]
        steps.total().backward()
        for handle in handles:
            handle.remove()
        steps.cell.Z.grad = None
        assert len(seen) == 2
        return sorted(seen, key=torch.Tensor.dim)

    steps.assert_like_reference(compute)


def test_backward_passes_in_threads(steps):
    total, found = steps.total(), {}

    def differentiate(factor):
        for _ in range(5):
            found[factor] = torch.autograd.grad(total * factor, steps.tensors, retain_graph=True)

    threads = [threading.Thread(target=differentiate, args=(factor,)) for factor in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = steps.gradients()
    for factor in range(1, 5):
        assert_near(found[factor], [factor * gradient for gradient in wanted], 1e-10)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch reads it of any tensor
def test_a_compiled_backward_pass(steps):
    def compute():
        total = steps.total(x=steps.x.detach()[:2])  # each step takes seconds to compile
        with torch._dynamo.compiled_autograd._enable(lambda graph: torch.compile(graph, backend="eager")):
            total.backward()
        results = [weight.grad for weight in steps.cell.parameters()]
        steps.cell.zero_grad()
        return results

    steps.assert_like_reference(compute)


def test_a_change_of_type_while_a_graph_exists(steps):
    total = steps.total()
    steps.cell.float()
    output, _ = steps.cell(steps.x[0].detach().float(), steps.state[0].detach().float())
    output.sum().backward()
    assert all(weight.grad.dtype == torch.float32 for weight in steps.cell.parameters())
    del total


def test_a_weight_that_was_frozen_while_a_graph_exists(steps):
    steps.cell.weight_h.requires_grad_(False)
    total = steps.total()
    steps.cell.weight_h.requires_grad_(True)
    steps.total().backward()
    assert steps.cell.weight_h.grad is not None
    total.backward()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cell: pickle.loads(pickle.dumps(cell))])
def test_a_copy_has_gradients_of_its_own(copied, steps):
    total = steps.total()
    other = copied(steps.cell)
    steps.total(cell=other).backward()
    wanted = [weight.grad for weight in other.parameters()]
    assert all(weight.grad is None for weight in steps.cell.parameters())
    total.backward()
    assert_near([weight.grad for weight in steps.cell.parameters()], wanted, 1e-12)
