"""Malicious checkpoints with a matching manifest."""

import json
import os
import pickle
import struct

import pytest
import torch

from rru.files import write_folder
from rru.training import RunError
from rru.training.checkpoint import Checkpoint, Checkpoints


def _header(content, length=None):
    header = json.dumps(content).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header


def _tensor(**entry):
    return {"weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **entry}}


class _Trace:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return type(self.path).touch, (self.path,)


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a checkpoint with replaced files and a matching manifest."""
    Checkpoints(tmp_path).save(Checkpoint({"weight": torch.zeros(2)}, {"step": 1, "moment": torch.ones(2)}))

    def write(**replaced):
        files = {path.name: path.read_bytes() for path in (tmp_path / "000001").iterdir()}
        del files["manifest.json"]
        files |= {name.replace("_", "."): content for name, content in replaced.items()}
        write_folder(tmp_path / "000002", files)
        return Checkpoints(tmp_path)

    return write


TENSORS = {
    "nothing": b"",
    "a truncated length": b"\x01\x02",
    "a huge header": _header({}, length=2**63),
    "a header of all memory": _header({}, length=100_000_000) + b" " * 1000,
    "a header of negative length": struct.pack("<q", -1) + b"{}",
    "a huge tensor": _header(_tensor(shape=[2**40], data_offsets=[0, 2**42])),
    "sizes that overflow": _header(_tensor(shape=[2**33, 2**33], data_offsets=[0, 4])) + bytes(4),
    "a negative size": _header(_tensor(shape=[-1])) + bytes(4),
    "offsets past the end": _header(_tensor(data_offsets=[4, 8])) + bytes(4),
    "offsets in the wrong order": _header(_tensor(data_offsets=[4, 0])) + bytes(4),
    "an unknown type": _header(_tensor(dtype="OBJECT")) + bytes(4),
    "not UTF-8": struct.pack("<Q", 4) + b'{"\xff}',
    "deep nesting": struct.pack("<Q", 100_000) + b"[" * 100_000,
}


@pytest.mark.usefixtures("little_memory")
class TestTensors:
    @pytest.mark.parametrize("content", TENSORS.values(), ids=TENSORS)
    def test_malformed_safetensors_are_skipped(self, content, write):
        checkpoint, (damage,) = write(model_safetensors=content).load()
        assert checkpoint.state["step"] == 1
        assert "000002/model.safetensors: is not a safetensors file" in damage

    def test_malformed_safetensors_of_the_state_are_skipped(self, write):
        checkpoint, (damage,) = write(state_safetensors=TENSORS["a huge tensor"]).load()
        assert checkpoint.state["step"] == 1
        assert "000002/state.safetensors: is not a safetensors file" in damage

    def test_pickle_instead_of_safetensors_is_not_run(self, write, tmp_path):
        content = pickle.dumps(_Trace(tmp_path / "trace"))
        assert len(write(model_safetensors=content, state_safetensors=content).load()[1]) == 1
        assert not (tmp_path / "trace").exists()
        pickle.loads(content)  # unpickling does run it
        assert (tmp_path / "trace").exists()


TREES = {
    "nothing": b"",
    "not an object": b"3",
    "a list": b"[]",
    "deep nesting": b'{"list": [' * 50_000,
    "a missing tensor": b'{"dict": [["moment", {"tensor": "elsewhere"}]]}',
    "an unknown kind": b'{"dict": [["moment", {"pickle": "gASVAA=="}]]}',
    "a key that is a list": b'{"dict": [[[], 3]]}',
    "an entry of three": b'{"dict": [[1, 2, 3]]}',
    "not UTF-8": b"\xff\xfe\xfd",
}


@pytest.mark.parametrize("content", TREES.values(), ids=TREES)
def test_malformed_state_is_skipped(content, write):
    checkpoint, (damage,) = write(state_json=content).load()
    assert checkpoint.state["step"] == 1
    assert "000002/state.json: " in damage


MANIFESTS = {
    "nothing": b"",
    "a list": b"[]",
    "deep nesting": b"[" * 100_000,
    "no files": b"{}",
    "a number as entry": b'{"model.safetensors": 3}',
    "a file outside the folder": b'{"../000001/state.json": {"bytes": 3, "sha256": ""}}',
    "an absolute path": b'{"/etc/hostname": {"bytes": 3, "sha256": ""}}',
    "no name": b'{"": {"bytes": 3, "sha256": ""}}',
    "a device": b'{"zero": {"bytes": 0, "sha256": ""}}',
    "infinite bytes": b'{"state.json": {"bytes": 1e999, "sha256": ""}}',
}


@pytest.mark.parametrize("content", MANIFESTS.values(), ids=MANIFESTS)
def test_malformed_manifest_is_skipped(content, write, tmp_path):
    checkpoints = write()
    (tmp_path / "000002" / "zero").symlink_to("/dev/zero")
    (tmp_path / "000002" / "manifest.json").write_bytes(content)
    checkpoint, (damage,) = checkpoints.load()
    assert checkpoint.state["step"] == 1
    assert "000002" in damage


def test_endless_manifest_is_skipped(write, tmp_path):
    checkpoints = write()
    (tmp_path / "000002" / "manifest.json").unlink()
    (tmp_path / "000002" / "manifest.json").symlink_to("/dev/zero")
    checkpoint, (damage,) = checkpoints.load()
    assert checkpoint.state["step"] == 1
    assert "000002/manifest.json: must be a file" in damage


def test_other_folders_are_ignored(write, tmp_path):
    (tmp_path / "000009.bak").mkdir()
    (tmp_path / "99999999999999999999").mkdir()
    checkpoints = write()
    assert checkpoints.load()[1] == []
    checkpoints.save(Checkpoint({}, {}))
    assert (tmp_path / "000003").is_dir()
    assert (tmp_path / "000009.bak").is_dir()


def test_file_instead_of_a_checkpoint_is_skipped(tmp_path):
    (tmp_path / "000001").write_bytes(b"")
    with pytest.raises(RunError, match=r"no readable checkpoint"):
        Checkpoints(tmp_path).load()


@pytest.mark.parametrize("name", ["model.safetensors", "state.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_pipe_or_link_instead_of_a_file_is_neither_waited_for_nor_followed(kind, name, write, tmp_path):
    checkpoints = write()
    path = tmp_path / "000002" / name
    path.rename(tmp_path / "elsewhere")
    os.mkfifo(path) if kind == "pipe" else path.symlink_to(tmp_path / "elsewhere")
    checkpoint, (damage,) = checkpoints.load({"w": torch.zeros(3)})
    assert checkpoint.state["step"] == 1
    assert f"000002/{name}: must be a file, is a link, a pipe or a device" in damage


def test_linked_checkpoint_is_not_followed(write, tmp_path):
    checkpoints = write()
    (tmp_path / "000002").rename(tmp_path / "elsewhere")
    (tmp_path / "000002").symlink_to(tmp_path / "elsewhere")
    checkpoint, (damage,) = checkpoints.load()
    assert checkpoint.state["step"] == 1
    assert "000002: must be a folder, is a link" in damage
    checkpoints.clear()
    assert (tmp_path / "elsewhere" / "state.json").is_file()
