"""The native library: arguments that do not fit are errors, the instruction set can be chosen."""

import os
import subprocess
import sys

import pytest
import torch

from rru.scan.native import call, library
from rru.scan.native import run as native
from rru.scan.native.library import Function, memory_of
from tests.scan.case import Case, every_cell
from tests.timeouts import TIMEOUT


@pytest.fixture
def calls(monkeypatch):
    """The calls of the library that were made: (name, dtype, numbers, tensors) of each."""
    made = []

    class Recorded(Function):
        def __init__(self, *given, single_threaded):
            made.append(list(given))
            super().__init__(*given, single_threaded=single_threaded)

    def recorded_memory(tensors):
        made[-1].append(tensors)
        return memory_of(tensors)

    def gradients_function(name, dtype, numbers, instruction_set, *, single_threaded):
        return Recorded(name, dtype, dict(numbers), single_threaded=single_threaded)

    call.function_of.cache_clear()
    monkeypatch.setattr(call, "Function", Recorded)
    monkeypatch.setattr(call, "cached_function", gradients_function)
    monkeypatch.setattr(call, "memory_of", recorded_memory)
    yield made
    call.function_of.cache_clear()


WRONG = {
    "a number is missing": lambda numbers, tensors: numbers.popitem(),
    "a number too many": lambda numbers, tensors: numbers.update(surplus=1),
    "numbers in another order": lambda numbers, tensors: numbers.update(hidden_size=numbers.pop("hidden_size")),
    "a number out of range": lambda numbers, tensors: numbers.update(hidden_size=0),
    "another size": lambda numbers, tensors: numbers.update(hidden_size=numbers["hidden_size"] + 1),
    "a tensor is missing": lambda numbers, tensors: tensors.pop(),
    "a tensor too many": lambda numbers, tensors: tensors.append(torch.zeros(3)),
    "a tensor too short": lambda numbers, tensors: tensors.append(tensors.pop().flatten()[:-1]),
    "a tensor of another type": lambda numbers, tensors: tensors.append(tensors.pop().float()),
    "lengths out of range": lambda numbers, tensors: tensors.__setitem__(0, torch.tensor([9, 9])),
}


@every_cell
def test_a_call_with_wrong_arguments_is_an_error_that_names_the_function(variant, calls):
    case = Case(variant, m=3, n=4, steps=5, batch=2, lengths=torch.tensor([5, 3]))
    case.run_and_differentiate(native.scan)
    assert [name for name, *_ in calls][:2] == [f"{case.cell.kernel}_forward", f"{case.cell.kernel}_backward"]
    for name, dtype, numbers, tensors in list(calls):
        Function(name, dtype, numbers)(memory_of(tensors))
        for spoil in WRONG.values():
            wrong_numbers, wrong_tensors = dict(numbers), list(tensors)
            spoil(wrong_numbers, wrong_tensors)
            with pytest.raises(RuntimeError, match=f"{name}_f64_.* got wrong arguments"):
                Function(name, dtype, wrong_numbers)(memory_of(wrong_tensors))


def test_a_strided_tensor_is_refused():
    with pytest.raises(ValueError, match=r"contiguous tensors, got strides \(1, 2\)"):
        memory_of([torch.zeros(3, 2).T])


@every_cell
@pytest.mark.usefixtures("each_instruction_set")
def test_an_empty_batch_is_computed_by_the_library_itself(variant, calls):
    case = Case(variant, m=30, n=300, batch=0, lengths=torch.zeros(0, dtype=torch.int64))
    outputs, *_, last_gradient = case.run_and_differentiate(native.scan)
    assert len(calls) >= 2
    assert outputs.shape == (5, 0, 300)
    assert not last_gradient.any()


def test_the_environment_chooses_the_instruction_set():
    ask = "from rru.scan.native import library; print(library.instruction_set)"
    environment = os.environ | {"RRU_ISA": "portable"}
    ran = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    assert ran.stdout == "portable\n", ran.stderr


def test_by_default_it_is_the_best_one(monkeypatch):
    monkeypatch.delenv("RRU_ISA", raising=False)
    assert library._choose_instruction_set(["portable", "avx2"]) == "avx2"


@pytest.mark.parametrize("name", ["avx512", "AVX2"])
def test_one_that_the_processor_does_not_have_is_an_error_that_names_those_it_has(monkeypatch, name):
    monkeypatch.setenv("RRU_ISA", name)
    with pytest.raises(ValueError, match=f"RRU_ISA must be one of portable, avx2 on this processor, got '{name}'"):
        library._choose_instruction_set(["portable", "avx2"])
