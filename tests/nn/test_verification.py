"""`rru.verify` runs every path, says why one cannot run, and sees wrong results."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import rru
from rru.nn.verification import paths as all_paths
from rru.nn.verification.case import Bound, Case
from rru.nn.verification.paths import Path
from rru.nn.verification.table import DIFFERENT, NOT_RUN, SAME
from rru.nn.verification.verifying import checked, truth
from rru.scan.native.library import INSTRUCTION_SETS

QUICK = ["reference", *(f"native {name}" for name in INSTRUCTION_SETS), "fused", "stepper", "bfloat16", "int8"]
EVERY = [*QUICK, "torch.compile", "torch.export", "ONNX"]


class Tagger(nn.Module):
    """Two layers between an embedding and a head, with a state that users see."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.first, self.second = rru.RRU(6, 10, batch_first=True), rru.LSTM(10, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        outputs, _ = self.first(self.embedding(tokens))
        outputs, (h, _) = self.second(outputs)
        return {"logits": self.head(outputs), "state": h}


class Silent(rru.RRU):
    """A layer that returns nothing."""

    def forward(self, input):
        super().forward(input)


@pytest.fixture(scope="module")
def report():
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:  # the default compiler takes many seconds
        patch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
        return rru.verify(Tagger(), torch.randint(20, (3, 7)))


def test_every_path_runs_and_agrees(report):
    assert report.ok
    assert {checked.path: checked.verdict for checked in report.paths} == dict.fromkeys(EVERY, SAME)
    assert [checked.path for checked in report.paths if not checked.has_gradients] == [
        name
        for name in (path.name for path in all_paths.paths())
        if name in ("stepper", "torch.export", "ONNX", "int8")
    ]


def test_the_table_has_a_line_for_each_path(report):
    *about, heading = repr(report).splitlines()[:3]
    assert about[0].startswith(f"rru {rru.__version__}, torch {torch.__version__}")
    assert about[1] == "RRU 10, LSTM 8, torch.float32 on cpu, input (3, 7)"
    assert heading.split() == ["path", "largest", "difference", "tolerance", "time", "verdict"]
    lines = repr(report).splitlines()[3:-1]
    assert len(lines) == len(EVERY)
    assert all(" ms " in line and " same" in line for line in lines)
    assert repr(report).splitlines()[-1] == f"no path of {len(EVERY)} differs"


def test_paths_that_cannot_run_say_why():
    torch.manual_seed(0)
    layer, x = rru.MogrifierLSTM(3, 4, bidirectional=True), torch.randn(5, 2, 3)
    report = rru.verify(layer, x, only=QUICK)
    assert report.ok
    assert report["int8"].verdict == report["stepper"].verdict == NOT_RUN
    assert "MogrifierLSTMCell cannot be quantized" in repr(report)
    assert "stepper" in repr(report)
    assert "not run: bidirectional must be False to run step by step" in repr(report)
    double = rru.verify(layer.double(), x, only=["native avx2", "bfloat16"] if "avx2" in INSTRUCTION_SETS else None)
    assert double["bfloat16"].reason == "autocast is for float32 weights, these are torch.float64"
    assert double["native avx2"].difference < 1e-12


def test_a_path_that_drops_a_weight_is_seen():
    torch.manual_seed(0)
    layer = rru.LSTM(3, 4, num_layers=2)

    def forget(case):
        model = case.on("reference")
        with torch.no_grad():
            model.cells[1].bias[0] += 0.5
        return lambda: case.outputs_and_gradients(model)

    def nothing(case):
        return lambda: {}

    def not_a_number(case):
        return lambda: {name: value * float("nan") for name, value in case.outputs(case.on("reference")).items()}

    case = Case(layer, (torch.randn(5, 2, 3),))
    for prepare in (forget, nothing, not_a_number):
        found = checked(Path("broken", prepare), case, truth(case))
        assert found.verdict == DIFFERENT
        report = rru.nn.Verification((found,))
        assert not report.ok
        assert "broken: different results" in repr(report)


def test_the_model_is_left_as_it_was():
    layer = rru.RRU(3, 4, dropout=0.5)
    before = {name: weight.clone() for name, weight in layer.state_dict().items()}
    x = torch.randn(5, 2, 3, requires_grad=True)
    rru.verify(layer, (x, layer.initial_state(2)), only=["reference", "int8"])
    assert layer.training
    assert layer.backend == "auto"
    assert x.grad is None
    assert all(torch.equal(weight, before[name]) for name, weight in layer.state_dict().items())
    assert all(parameter.grad is None for parameter in layer.parameters())


def test_arguments_by_name_reach_every_path():
    torch.manual_seed(0)
    layer, x, starts = rru.LSTM(3, 4, num_layers=2, batch_first=True), torch.randn(5, 4, 3), torch.rand(5, 4) < 0.4
    report = rru.verify(layer, x, only=[*QUICK, "torch.export", "ONNX"], resets=starts)
    assert {checked.path: checked.verdict for checked in report.paths} == dict.fromkeys(
        [path.name for path in all_paths.paths() if path.name != "torch.compile"], SAME
    )
    state = rru.LSTM(3, 4, num_layers=2).initial_state(5)
    assert rru.verify(layer, x, only="stepper", resets=starts, reset_state=state)["stepper"].verdict == SAME
    lengths = rru.verify(layer, x, only=["reference", "stepper"], lengths=torch.tensor([4, 1, 2, 3, 4]))
    assert lengths["reference"].verdict == SAME
    assert "lengths or packed sequences" in lengths["stepper"].reason


def test_gradients_have_the_names_of_the_model():
    bound = Case(Bound(rru.RRU(3, 4), ("resets",)), (torch.randn(5, 2, 3), torch.rand(5, 2) < 0.5))
    assert "gradient of cells.0.weight_x" in truth(bound)


def test_packed_sequences_are_compared_with_their_outputs():
    torch.manual_seed(0)
    packed = pack_padded_sequence(torch.randn(5, 2, 3), torch.tensor([5, 2]))
    report = rru.verify(rru.RRU(3, 4), packed, only=["reference", "fused", "int8"])
    assert {checked.verdict for checked in report.paths} == {SAME}
    assert truth(Case(rru.RRU(3, 4), (packed,)))["output 0"].shape == (7, 4)


def test_a_verification_in_which_nothing_ran_does_not_pass():
    report = rru.verify(rru.RRU(3, 4, bidirectional=True), torch.randn(5, 2, 3), only="stepper")
    assert not report.ok
    assert repr(report).splitlines()[-1] == "no path ran: nothing was compared"


def test_errors_name_what_is_right():
    with pytest.raises(ValueError, match="only must name at least one of reference, "):
        rru.verify(rru.RRU(2, 2), torch.randn(3, 1, 2), only=[])
    with pytest.raises(ValueError, match="the model must not be quantized yet: int8 weights are one of the paths"):
        rru.verify(rru.quantize(rru.RRU(2, 2)), torch.randn(3, 1, 2))
    with pytest.raises(TypeError, match="the model must return tensors"):
        rru.verify(Silent(2, 2), torch.randn(3, 1, 2))
    with pytest.raises(ValueError, match="the model must hold a layer of rru, got a Linear without"):
        rru.verify(nn.Linear(2, 2), torch.randn(3, 2))
    with pytest.raises(ValueError, match=r"only must be among reference, .*; got 'onnx'"):
        rru.verify(rru.RRU(2, 2), torch.randn(3, 1, 2), only=["onnx"])
