"""`rru verify` prints the table of a verification, and its exit code says whether all paths agree."""

import math

import pytest
from typer.testing import CliRunner

from rru.cli import verify as module
from rru.cli.commands import app
from rru.nn.verification import Checked, Verification

SAME = Checked("ONNX", 2e-3, 1e-6, "output 0", 0.002)
MISSING = Checked("int8", 1e-1, reason="no native library")


@pytest.fixture
def verify(tmp_path, monkeypatch):
    """Run the command on a folder; what it finds there is given."""

    def run(*found, arguments=()):
        given = []
        monkeypatch.setattr(
            module, "verify_folder", lambda folder, made_from: given.append((folder, made_from)) or Verification(found)
        )
        done = CliRunner().invoke(app, ["verify", str(tmp_path), *arguments])
        return done.exit_code, done.output, given

    return run


def test_paths_that_agree_or_cannot_run(verify, tmp_path):
    code, output, given = verify(SAME, MISSING)
    assert code == 0
    assert given == [(tmp_path, None)]
    heading, onnx, int8, end = output.splitlines()
    assert heading.split() == ["path", "largest", "difference", "tolerance", "time", "verdict"]
    assert onnx.split() == ["ONNX", "1.0e-06", "2e-03", "2.0", "ms", "same,", "forward", "only"]
    assert int8.split(maxsplit=1) == ["int8", "not run: no native library"]
    assert end == "no path of 1 differs"


@pytest.mark.parametrize("difference", [0.5, math.nan, math.inf])
def test_a_path_that_does_not_agree_fails(verify, difference):
    wrong = Checked("fused", 2e-3, difference, "gradient of weight", 0.001, has_gradients=True)
    code, output, _ = verify(SAME, wrong)
    assert code == 1
    assert "DIFFERENT: gradient of weight" in output
    assert output.splitlines()[-1] == "fused: different results"


def test_nothing_that_ran_fails(verify):
    code, output, _ = verify(MISSING)
    assert code == 1
    assert output.splitlines()[-1] == "no path ran: nothing was compared"


def test_the_run_of_an_export(verify, tmp_path):
    other = tmp_path / "run"
    other.mkdir()
    _, _, given = verify(SAME, arguments=["--made-from", str(other)])
    assert given == [(tmp_path, other)]


def test_a_folder_that_is_no_run(tmp_path):
    done = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert done.exit_code == 1
    assert "config.toml" in done.output


def test_a_run_is_made_from_nothing(tmp_path):
    (tmp_path / "model.safetensors").touch()
    done = CliRunner().invoke(app, ["verify", str(tmp_path), "--made-from", str(tmp_path)])
    assert done.exit_code != 0
    assert "--made-from is for exports to other runtimes" in " ".join(done.output.split())
