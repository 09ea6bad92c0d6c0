"""`rru verify` on runs and exports: the files of an export are compared with the model they were made from."""

import shutil

import numpy as np
import pytest

import rru
from rru.inference import export, load, verifying
from rru.inference.engine.folder import compiler
from rru.inference.verifying import exported_paths, random_inputs, verify_folder


@pytest.fixture(scope="module")
def onnx_folder(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "onnx"
    export(trained, folder, "onnx")
    return folder


def test_a_run_takes_every_path_of_its_model(chorales, monkeypatch):
    asked = []
    monkeypatch.setattr(verifying, "verify", lambda model, x: asked.append((model, x)))
    verify_folder(chorales)
    ((model, x),) = asked
    assert isinstance(model, rru.inference.loading.tasks.Recurrent)
    assert x.shape == (12, 3, 88)
    assert x.float().std() > 0


def test_an_export_to_onnx_is_compared_with_its_run(onnx_folder, chorales):
    report = verify_folder(onnx_folder, chorales)
    assert [checked.path for checked in report.paths] == ["sequence.onnx", "step.onnx"]
    assert report.ok
    assert all(checked.difference < 1e-5 for checked in report.paths)


def test_an_export_of_other_weights_is_different(onnx_folder, untrained_run):
    other = untrained_run("bach", changes=["budget=100k", "model.output_size=32", "output=independent"])
    report = verify_folder(onnx_folder, other)
    assert {checked.verdict for checked in report.paths} == {"DIFFERENT"}


def test_a_wrong_initial_state_is_different(onnx_folder, chorales, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in onnx_folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    with np.load(copy / "initial_state.npz") as stored:
        changed = {name: stored[name] + 1 for name in stored.files}
    np.savez(copy / "initial_state.npz", **changed)
    report = verify_folder(copy, chorales)
    assert report["sequence.onnx"].verdict == "same"
    assert report["step.onnx"].verdict == "DIFFERENT"


def test_an_export_for_other_runtimes_needs_its_run(onnx_folder):
    with pytest.raises(ValueError, match="give --made-from, the run it was made from"):
        verify_folder(onnx_folder)


def test_no_program_of_torch_is_loaded_because_it_could_run_code(chorales, tmp_path):
    (tmp_path / "model.pt2").write_bytes(b"anything")
    report = verify_folder(tmp_path, chorales)
    assert "can run code" in report["model.pt2"].reason


def test_a_safetensors_export_has_no_other_runtimes(trained, tmp_path):
    export(trained, tmp_path / "model", "safetensors")
    assert exported_paths(tmp_path / "model") == []
    assert random_inputs(load(tmp_path / "model").model).shape == (12, 3, 88)


@pytest.mark.parametrize("int8", [False, True])
def test_an_export_to_c_is_run_in_c_and_in_webassembly(trained, chorales, tmp_path, int8):
    export(trained, tmp_path / "c", "c", int8=int8)
    report = verify_folder(tmp_path / "c", chorales)
    assert [checked.path for checked in report.paths] == ["model.rru in C", "model.rru in WebAssembly"]
    assert report.ok == bool(shutil.which("node") or compiler())  # not if nothing could run
    if shutil.which("node"):
        assert report["model.rru in WebAssembly"].verdict == "same"
    if compiler():
        assert report["model.rru in C"].verdict == "same"
    (tmp_path / "c" / "model.rru").write_bytes((tmp_path / "c" / "model.rru").read_bytes()[:-1] + b"\7")
    damaged = verify_folder(tmp_path / "c", chorales)
    assert not compiler() or "checksum" in damaged["model.rru in C"].reason
    assert not shutil.which("node") or "checksum" in damaged["model.rru in WebAssembly"].reason


def test_music_with_one_network_for_all_keys_is_run_in_c(untrained_run, tmp_path):
    run = untrained_run("bach", "lstm", None, ["output=tied", "bar=5"])
    export(load(run), tmp_path / "c", "c")
    report = verify_folder(tmp_path / "c", run)
    if compiler():
        assert report["model.rru in C"].verdict == "same"
