"""Memory that scans keep for later ones."""

import gc
import os
import signal
import threading
import time
from functools import partial

import pytest
import torch

import rru
from rru.scan import thresholds
from rru.scan.native import call, library, scratch

SHAPE = (3, 1000, 1000)  # 12 MB


@pytest.fixture(autouse=True)
def _nothing_is_kept():
    scratch.clear()
    yield
    scratch.clear()


def test_memory_is_used_again_only_when_no_tensor_refers_to_it():
    first = scratch.empty(SHAPE, torch.float32)
    address, view = first.data_ptr(), first[1:, ::2]
    del first
    second = scratch.empty(SHAPE, torch.float32)
    assert second.data_ptr() != address
    assert view.data_ptr() == address + 4 * 1000 * 1000  # still there
    del view
    assert scratch.empty((1000, 3000), torch.float32).data_ptr() == address


def test_other_sizes_get_other_memory():
    address = scratch.empty(SHAPE, torch.float32).data_ptr()
    larger = scratch.empty((4, 1000, 1000), torch.float32)
    assert larger.data_ptr() != address
    assert larger.shape == (4, 1000, 1000)
    assert scratch.empty((3, 500, 1000), torch.float64).data_ptr() == address


def test_nearly_equal_sizes_share_memory():
    address = scratch.empty((3, 1000, 1000), torch.float32).data_ptr()
    assert scratch.empty((3, 950, 1000), torch.float32).data_ptr() == address
    assert scratch.empty((1001, 3000), torch.float32).data_ptr() == address


def test_no_more_is_kept_than_allowed(monkeypatch):
    monkeypatch.setattr(thresholds, "MAX_KEPT_BYTES", 30_000_000)
    tensors = [scratch.empty(SHAPE, torch.float32) for _ in range(5)]
    del tensors
    assert 24_000_000 <= sum(memory.nbytes for memory in scratch._free.values()) < 30_000_000


@pytest.mark.skipif(not library.BUILT, reason="this build has no native library")
@pytest.mark.parametrize("lengths", [torch.tensor([4, 1, 3, 4, 2]), torch.tensor([1, 1, 1, 1, 1])])
def test_rows_past_the_end_are_zeroed_and_no_others(lengths):
    rows = torch.full((2, 4, 5, 3), torch.nan)
    call.zero_padding(rows, lengths)
    past_end = torch.arange(4)[:, None] >= lengths  # (T, B)
    assert (rows[:, past_end] == 0).all()
    assert rows[:, ~past_end].isnan().all()


@pytest.mark.skipif(not library.BUILT, reason="this build has no native library")
@pytest.mark.parametrize(
    "layer",
    [
        partial(rru.RRU, 5, 40),  # narrow
        partial(rru.RRU, 5, 40, relu_layers=2),
        partial(rru.RRU, 5, 130, expansion=8.0, dropout=0.75),  # wide
        *(partial(layer, 5, 40) for layer in (rru.LSTM, rru.GRU, rru.MogrifierLSTM)),
    ],
)
@pytest.mark.parametrize("threshold", [0, thresholds.MIN_PARALLEL_WORK])
def test_sequences_of_many_lengths_give_the_same_in_kept_memory(monkeypatch, layer, threshold):
    monkeypatch.setattr(thresholds, "MIN_PARALLEL_WORK", threshold)
    layer, x = layer(backend="native"), torch.randn(20, 19, 5)
    lengths = torch.arange(19) % 20 + 1

    def results():
        torch.manual_seed(1)
        output, _ = layer(x, lengths=lengths)
        return [output, *torch.autograd.grad(output.square().sum(), [*layer.parameters()])]

    wanted = results()
    monkeypatch.setattr(thresholds, "MIN_KEPT_TENSOR", 1)
    results()
    for memory in list(scratch._free.values()):
        memory.fill_(255)  # NaN
    assert all(map(torch.equal, results(), wanted))


def test_small_tensors_are_not_kept():
    scratch.empty((1, 10, 10), torch.float32)
    assert not scratch._free


def test_threads_never_share_memory():
    def work(number):
        for _ in range(50):
            tensor = scratch.empty((1, 1500, 1000), torch.float32).fill_(number)
            wrong.append((tensor != number).any().item())

    wrong = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 200
    assert not any(wrong)


@pytest.mark.skipif(not library.BUILT, reason="this build has no native library")
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradients_do_not_depend_on_earlier_calls(monkeypatch, dropout):
    monkeypatch.setattr(thresholds, "MIN_KEPT_TENSOR", 1)
    monkeypatch.setattr(thresholds, "MIN_PARALLEL_WORK", 0)
    layer, x = rru.RRU(5, 40, dropout=dropout, backend="native"), torch.randn(6, 9, 5, requires_grad=True)

    def gradients():
        torch.manual_seed(1)
        total = layer(x)[0].square().sum()
        once = torch.autograd.grad(total, [x, *layer.parameters()], retain_graph=True)
        other = layer(2 * x)[0]  # takes memory while that of the first graph is in use
        twice = torch.autograd.grad(total, [x, *layer.parameters()])
        assert all(map(torch.equal, once, twice))
        del other
        return once

    fresh = gradients()
    gc.collect()
    for memory in list(scratch._free.values()):
        memory.fill_(255)  # NaN
    assert all(map(torch.equal, gradients(), fresh))


def test_the_default_device_does_not_matter():
    with torch.device("meta"):
        assert scratch.empty(SHAPE, torch.float32).device.type == "cpu"
        assert scratch.empty((1,), torch.float32).device.type == "cpu"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_does_not_wait_for_a_thread_that_it_lacks():
    def hold():
        with scratch._lock:
            held.set()
            time.sleep(0.2)

    held = threading.Event()
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    if (child := os.fork()) == 0:
        signal.alarm(20)
        scratch.empty(SHAPE, torch.float32)
        os._exit(0)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not library.BUILT, reason="this build has no native library")
@pytest.mark.parametrize("hidden_size", [40, 300])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_no_result_is_in_kept_memory(monkeypatch, hidden_size, dropout):
    monkeypatch.setattr(thresholds, "MIN_KEPT_TENSOR", 1)
    monkeypatch.setattr(thresholds, "MIN_PARALLEL_WORK", 0)
    layer, x = rru.RRU(5, hidden_size, dropout=dropout, backend="native"), torch.randn(6, 19, 5, requires_grad=True)
    outputs, last = layer(x)
    gradients = torch.autograd.grad(outputs.sum(), [x, *layer.parameters()])
    results = [outputs, *(last if isinstance(last, tuple) else [last]), *gradients]
    assert all(result.untyped_storage().resizable() for result in results)
