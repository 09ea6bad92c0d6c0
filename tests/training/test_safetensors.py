"""Files of tensors, byte for byte as the safetensors library writes them."""

import json
import os
import struct
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from rru.files import Damaged
from rru.training.safetensors import declared, pack, unpack

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.float8_e5m2, torch.float8_e4m3fn, torch.int16, torch.uint16]
DTYPES += [torch.float16, torch.bfloat16, torch.int32, torch.uint32, torch.float32, torch.complex64, torch.float64]
DTYPES += [torch.int64, torch.uint64]


@pytest.fixture
def tensors():
    found = {f"of {dtype}": torch.arange(6).to(dtype).reshape(2, 3) for dtype in DTYPES}
    return found | {"a": torch.tensor(3.5), "é": torch.zeros(0, 4), "t": torch.randn(3, 2).T}


def test_as_the_library_writes_and_reads(tensors, tmp_path):
    content = pack(tensors)
    assert content == safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})
    read = unpack(content, tmp_path)
    assert read.keys() == tensors.keys()
    for name, tensor in safetensors.torch.load(content).items():
        assert read[name].dtype == tensor.dtype
        assert read[name].shape == tensor.shape
        assert torch.equal(read[name].view(-1).view(torch.uint8), tensor.view(-1).view(torch.uint8))
    (tmp_path / "a.safetensors").write_bytes(content)
    assert declared(tmp_path / "a.safetensors")["of torch.bfloat16"] == "(2, 3) of bfloat16"


def test_tensors_that_share_memory_are_stored_separately(tmp_path):
    whole = torch.arange(4.0)
    read = unpack(pack({"whole": whole, "part": whole[1:3]}), tmp_path)
    assert read["part"].tolist() == [1, 2]


def _file(header, content):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def _one(**changes):
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (_one(dtype="F33"), "its type must be one of BOOL, .*, got 'F33'"),
        (_one(shape=[3]), r"'a' of shape \(3,\) and type F32 has 8 bytes"),
        (_one(shape=[-2]), "a size must be a whole number from 0, below .*; got -2"),
        (_one(shape=[True, 2]), "got True"),
        (_one(shape=[2**62, 4]), "has 8 bytes"),
        (_one(data_offsets=[4, 8]), "begins at byte 4, not at 0"),
        (_one(data_offsets=[0, 8, 9]), "too many values"),
        (_one() | {"b": _one()["a"]}, "'b' begins at byte 0, not at 8"),
        (_one(shape=[1], data_offsets=[0, 4]), "it has .* bytes, but its header needs"),
        ([], "pop"),
    ],
)
def test_a_header_that_does_not_fit_is_an_error_that_says_why(header, message, tmp_path):
    content = _file(header, bytes(8))
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(Damaged, match=message):
        unpack(content, tmp_path)
    with pytest.raises(Damaged, match=message):
        declared(tmp_path / "a.safetensors")


@pytest.mark.skipif(sys.platform != "linux", reason="limits addresses, from Linux's count of them")
def test_too_little_memory_is_a_memory_error():
    import resource

    large = {"a": torch.zeros(1 << 24)}
    child = os.fork()
    if not child:  # without pytest, which would need memory too
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20),) * 2)
            pack(large)
        except MemoryError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
