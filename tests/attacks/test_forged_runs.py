"""Forged run folders: every command says what is wrong in a line, and shows the good run beside the forged one."""

import random
import shutil

import pytest
from typer.testing import CliRunner

from rru.cli.commands import app
from rru.files import FileError
from tests.attacks.forging import forgeries, seal
from tests.report.samples import preset, write_run
from tests.training.toy import train_in

CHOSEN = 20  # of thousands; `make fuzz` tries others


def _some(folder, pattern):
    return random.Random(0).sample(forgeries(folder, pattern), CHOSEN)


def test_a_forged_checkpoint_is_an_error_or_trained_on(tmp_path):
    asked = iter([False] * 10 + [True])
    train_in(tmp_path / "run", stop=lambda: next(asked))
    newest = max((tmp_path / "run" / "checkpoint").iterdir())
    for forgery in _some(tmp_path / "run", f"checkpoint/{newest.name}/state.json"):
        shutil.copytree(tmp_path / "run", tmp_path / "forged")
        target = tmp_path / "forged" / forgery.file.relative_to(tmp_path / "run")
        target.write_bytes(forgery.content() or b"")
        seal(target.parent)
        asked = iter([False, False, True])
        try:
            train_in(tmp_path / "forged", watch=lambda event: None, stop=lambda asked=asked: next(asked))
        except (FileError, ValueError) as error:
            assert str(error)  # noqa: PT017
        except BaseException as error:
            raise AssertionError(str(forgery)) from error
        shutil.rmtree(tmp_path / "forged")


def test_commands_show_the_good_run_beside_a_forged_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = write_run(tmp_path / "runs", preset("bach", "gru", "smoke"), 8.5)
    forged = write_run(tmp_path / "runs", preset("bach", "rru", "smoke"), 7.8)
    plan = ["plan", "table1", "--preset", "smoke", "--tasks", "bach", "--cells", "rru,gru"]
    for forgery in _some(forged, "*"):
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
    from rru.inference.trained import load
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
