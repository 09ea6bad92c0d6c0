"""Links in folders from others are not followed: no command reads, writes or removes anything outside."""

import shutil

import pytest
from typer.testing import CliRunner

from rru.cli.commands import app
from rru.experiments.search.study import Study
from rru.files import FileError
from rru.settings import presets
from rru.settings.cells import PAPER_CELLS
from rru.training import run_folder, train_config
from tests.report.samples import change_result, write_run


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder of the user outside, with what a command could remove or replace; checked at the end."""
    monkeypatch.chdir(tmp_path)
    for name in ("000001", "000000123456", "epoch-0001", "epoch-0003"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        (tmp_path / "mine" / name / "model.safetensors").write_bytes(b"mine")
    for name in ("chorale.mid", "chorale.png", "chorale.wav", "study.journal", "importance.svg", "result.json"):
        (tmp_path / "mine" / name).write_bytes(b"mine")
    before = sorted(path.relative_to(tmp_path) for path in (tmp_path / "mine").rglob("*"))
    yield tmp_path / "mine"
    assert sorted(path.relative_to(tmp_path) for path in (tmp_path / "mine").rglob("*")) == before
    assert all(path.read_bytes() == b"mine" for path in (tmp_path / "mine").rglob("*") if path.is_file())


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """Write the runs of `rru demo`: one is trained, the others are made up. Return the folder of the best."""
    few = ["task.limit=2", "task.evaluation_limit=2"]
    load = presets.load
    monkeypatch.setattr(presets, "load", lambda task, cell, preset: presets.override(load(task, cell, "smoke"), few))
    configs = {cell: presets.load("bach", cell, "demo") for cell in PAPER_CELLS}
    best = run_folder(configs["rru"], tmp_path / "runs")
    train_config(configs["rru"], best)
    change_result(best, test={"nll": 1.0})
    for cell in PAPER_CELLS[1:]:
        write_run(tmp_path / "runs", configs[cell], 9.0)
    return best


class TestDemo:
    def test_writes_no_music_through_a_link(self, mine, demo):
        (demo / "music").symlink_to(mine)
        ended = CliRunner().invoke(app, ["demo"])
        assert ended.exit_code == 1, ended.output
        assert "music: must be a folder, is a link" in ended.output

    def test_shows_runs_without_a_score(self, mine, demo):
        others = [folder for folder in demo.parents[1].glob("*/*") if folder != demo]
        for folder, scores in zip(others, ({"nll": None}, {}, {"loss": 1.0}), strict=True):
            change_result(folder, test=scores)
        ended = CliRunner().invoke(app, ["demo"])
        assert ended.exit_code == 0, ended.exception
        assert "1.000" in ended.output


@pytest.mark.parametrize("linked", ["checkpoint", "best"])
@pytest.mark.parametrize("ended", [True, False])
def test_resuming_removes_nothing(mine, tmp_path, linked, ended):
    config = presets.load("bach", "rru", "smoke")
    folder = write_run(tmp_path / "runs", config, 8.0 if ended else None)
    shutil.rmtree(folder / linked, ignore_errors=True)
    (folder / linked).symlink_to(mine)
    result = CliRunner().invoke(app, ["resume", str(folder)])
    assert ended or f"{linked}: must be a folder, is a link" in result.output
    for command in (["runs"], ["report"], ["evaluate", str(folder)], ["compose", str(folder)]):
        assert isinstance(CliRunner().invoke(app, command).exception, SystemExit | None)


@pytest.mark.parametrize("part", ["", "claims"])
def test_study_is_not_written_through_a_link(mine, tmp_path, part):
    folder = Study("bach", "rru", "smoke", root=tmp_path / "runs").folder
    linked = folder / part if part else folder.parent
    linked.parent.mkdir(parents=True)
    linked.symlink_to(mine)
    with pytest.raises(FileError, match=f"{linked.name}: must be a folder, is a link"):
        Study("bach", "rru", "smoke", root=tmp_path / "runs")


def test_the_report_embeds_nothing_from_a_linked_folder(mine, tmp_path):
    folder = write_run(tmp_path / "runs", presets.load("bach", "rru", "smoke"))
    (folder / "music").symlink_to(mine)
    (mine / "chorale.png").write_bytes(b"mine")
    assert CliRunner().invoke(app, ["report"]).exit_code == 0
    assert "data:image/png" not in (tmp_path / "runs" / "report.html").read_text()


def test_the_report_is_not_written_through_a_link(mine, tmp_path):
    write_run(tmp_path / "runs", presets.load("bach", "rru", "smoke"))
    (tmp_path / "runs" / "report.html").symlink_to(mine / "result.json")
    assert CliRunner().invoke(app, ["report"]).exit_code == 0
    assert not (tmp_path / "runs" / "report.html").is_symlink()


def test_linked_runs_are_not_listed(mine, tmp_path):
    outside = write_run(tmp_path / "outside", presets.load("bach", "rru", "smoke"), 8.5)
    write_run(tmp_path / "runs", presets.load("bach", "gru", "smoke"), 7.5)
    (tmp_path / "runs" / "other").symlink_to(outside)
    listed = CliRunner().invoke(app, ["runs"]).output
    assert "7.5000" in listed
    assert "8.5000" not in listed
