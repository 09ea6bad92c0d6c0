"""The bar of `rru.fit`."""

import io
import sys
import types

import pytest
import torch
import torch.nn.functional as F

import rru
from rru.inference.progress import in_notebook


class Terminal(io.StringIO):
    """Standard error, if it is a terminal."""

    def isatty(self):
        return True


def fit(folder, **more):
    batches = [(torch.ones(4, 3), torch.ones(4, 1))] * 2
    return rru.fit(
        torch.nn.Linear(3, 1), batches, batches, loss=F.mse_loss, folder=folder, settings={"epochs": 2}, **more
    )


def test_a_bar_is_shown_in_a_terminal_and_removed_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "150")
    fit(tmp_path / "run")
    lines = sys.stderr.getvalue().replace("\r", "\n").splitlines()
    assert any(line.startswith("Linear [##########----------] epoch 1.0 of 2, 0:00  loss ") for line in lines)
    assert lines[-1].startswith("Linear: finished, all 2 epochs are done; best loss ")
    assert lines[-1].endswith(str(tmp_path / "run"))


@pytest.mark.parametrize(("progress", "shown"), [(None, False), (False, False), (True, True)])
def test_elsewhere_it_is_quiet_unless_asked_for(tmp_path, capsys, progress, shown):
    fit(tmp_path / "run", progress=progress)
    captured = capsys.readouterr()
    assert ("epoch 2.0 of 2" in captured.err) == shown
    assert bool(captured.err) == shown
    assert not captured.out


def test_a_notebook_shows_it_as_output(tmp_path, monkeypatch, capsys):
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    fit(tmp_path / "run")
    assert "epoch 2.0 of 2" in capsys.readouterr().out


def test_an_error_leaves_no_bar_behind(tmp_path, capsys):
    def fail(epoch):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(tmp_path / "run", progress=True, on_epoch=fail)
    assert capsys.readouterr().err.endswith(" \r")
