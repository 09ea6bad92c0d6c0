"""Forged run folders: every command prints one line about the problem, and still shows the good runs."""

import random

import pytest
from typer.testing import CliRunner

from rru.cli.commands import app
from rru.files import FileError
from tests.attacks.forging import forged_checkpoints, forgeries, resume_forged
from tests.report.samples import preset, write_run

CHOSEN = 20  # of thousands; `make fuzz` tries others


def test_a_forged_checkpoint_is_an_error_or_trained_on(tmp_path):
    for forgery in random.Random(0).sample(forged_checkpoints(tmp_path / "run"), CHOSEN):
        error = resume_forged(tmp_path / "run", forgery)
        assert error is None or str(error)


def test_commands_show_the_good_run_next_to_a_forged_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = write_run(tmp_path / "runs", preset("bach", "gru", "smoke"), 8.5)
    forged = write_run(tmp_path / "runs", preset("bach", "rru", "smoke"), 7.8)
    plan = ["plan", "table1", "--preset", "smoke", "--tasks", "bach", "--cells", "rru,gru"]
    for forgery in random.Random(0).sample(forgeries(forged), CHOSEN):
        what, whole = str(forgery), forgery.file.read_bytes()
        forgery.file.write_bytes(forgery.content() or b"")
        for arguments in (["runs"], plan, ["resume", str(forged)]):
            ended = CliRunner().invoke(app, arguments)
            assert isinstance(ended.exception, SystemExit | None), (what, arguments, ended.exception)
            assert "\x1b" not in ended.output, (what, arguments)
            if arguments != ["resume", str(forged)]:
                assert ended.exit_code == 0, (what, arguments, ended.output)
                assert ("8.5" if arguments == ["runs"] else "GRU") in ended.output, (what, arguments)
        forgery.file.write_bytes(whole)
    assert good.is_dir()


@pytest.mark.parametrize("name", ["tensorboard", "vocabulary.json"])
def test_links_lead_nowhere(name, tmp_path):
    from rru.inference.loading import load
    from rru.training import tensorboard
    from rru.training.events import Started

    folder = write_run(tmp_path / "runs", preset())
    (folder / "best" / "epoch-0003").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    (folder / name).symlink_to(tmp_path / "mine")
    with pytest.raises(FileError, match=f"{name}: must be a (file|folder), is a link"):
        load(folder) if name.endswith("json") else tensorboard(folder, lambda event: None)(
            Started(0, 0, 1, 1, 1, 1.0, "nll")
        )
    assert not list((tmp_path / "mine").iterdir())
