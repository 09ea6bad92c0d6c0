"""Folders that are not as they should be: the page says what is wrong and shows the rest."""

import os

import pytest

from rru import report
from rru.report.gather import gather
from rru.training import RunError
from rru.training.run_files import LIMIT, METRICS_LIMIT
from tests.report.samples import change_result, preset, write_run


@pytest.fixture
def damaged(tmp_path):
    """A run to be damaged, beside one that is whole."""
    write_run(tmp_path / "runs", preset(cell="gru"), 8.5)
    return write_run(tmp_path / "runs", preset(), 7.8)


def shown(tmp_path):
    """What was said of the damaged run, and the page, which shows the whole one in any case."""
    summary = report.write([tmp_path / "runs"], tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert "8.5000" in html
    return "\n".join(summary.problems), html


@pytest.mark.parametrize("name", ["config.toml", "result.json", "env.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[" * 100_000, b"{]", b"[1, 2]", b"1e999", b"null"])
def test_files_may_hold_anything(tmp_path, damaged, name, content):
    (damaged / name).write_bytes(content + b"\n")
    said, html = shown(tmp_path)
    assert f"{damaged / name}" in said or "does not know these settings (config.toml)" in said
    assert name in html


@pytest.mark.parametrize("name", ["config.toml", "result.json", "env.json", "metrics.jsonl"])
def test_a_huge_file_is_not_read(tmp_path, damaged, name):
    os.truncate(damaged / name, METRICS_LIMIT + 1)
    said, _ = shown(tmp_path)
    assert f"{damaged / name}" in said
    assert f"{LIMIT}" in said or f"{METRICS_LIMIT}" in said


@pytest.mark.parametrize("name", ["result.json", "env.json", "metrics.jsonl", "lock"])
def test_pipe_instead_of_a_file_does_not_block(tmp_path, damaged, name):
    (damaged / name).unlink(missing_ok=True)
    os.mkfifo(damaged / name)
    shown(tmp_path)


@pytest.mark.parametrize("name", ["config.toml", "result.json", "env.json", "metrics.jsonl", "lock", "music"])
def test_folder_or_link_instead_of_a_file_is_reported(tmp_path, damaged, name):
    (damaged / name).unlink(missing_ok=True)
    (damaged / name).mkdir()
    shown(tmp_path)
    (damaged / name).rmdir()
    (damaged / name).symlink_to("/dev/zero")
    shown(tmp_path)


def test_a_result_of_an_older_version_counts_if_its_number_is_there(tmp_path, damaged):
    change_result(damaged, remove=["tokens", "untrained_loss"], speed=3)
    said, html = shown(tmp_path)
    assert "result.json is of another version of rru: it lacks tokens, untrained_loss" in said
    assert "it also has speed" in said
    assert "<strong>7.80</strong>" in html


@pytest.mark.parametrize("key", ["status", "test"])
def test_result_without_test_score_does_not_count(tmp_path, damaged, key):
    change_result(damaged, remove=[key])
    said, html = shown(tmp_path)
    assert f"it lacks {key}" in said
    assert "7.80" not in html.partition('id="runs"')[0]


@pytest.mark.parametrize(
    "test", [None, [], "7.8", {"nll": None}, {"nll": "7.8"}, {"nll": True}, {"nll": 1e300}, {"loss": 7.8}]
)
def test_non_numeric_test_score_does_not_count(tmp_path, damaged, test):
    change_result(damaged, test=test, epochs="many", best_epoch=-1, seconds=[1], parameters=10**30)
    said, html = shown(tmp_path)
    assert "has no test.nll, so the run does not count" in said
    assert "GRU" in html


@pytest.mark.parametrize("depth", [300, 700, 900])
def test_files_may_be_nested_deeply(tmp_path, damaged, depth):
    nested = '{"a": ' * depth + "1" + "}" * depth
    for name in ("env.json", "metrics.jsonl"):
        (damaged / name).write_text(nested + "\n")
    (damaged / "result.json").write_text(f'{{"status": {nested}, "reason": {nested}, "test": {nested}}}')
    shown(tmp_path)


def test_names_may_be_of_any_type(tmp_path, damaged):
    folder = write_run(tmp_path / "runs", preset(cell="lstm"), folder=tmp_path / "runs" / os.fsdecode(b"\xff"))
    change_result(folder, reason="\ud800", **{"\udfff": 1})
    said, _ = shown(tmp_path)
    assert "it also has ?" in said
    said.encode()


def test_an_empty_result_is_no_result(tmp_path, damaged):
    (damaged / "result.json").write_text("{}")
    said, _ = shown(tmp_path)
    assert "result.json is of another version of rru: it lacks best, " in said


def test_long_reason_is_truncated(tmp_path, damaged):
    write_run(tmp_path / "runs", preset(seed=1), 7.8, status="diverged", reason="r" * 900_000)
    (damaged / "config.toml").write_text(f'[task]\nname = "{"t" * 900_000}"')
    said, html = shown(tmp_path)
    assert len(said) < 2000
    assert len(html) < 200_000


def test_settings_of_another_version_are_listed(tmp_path, damaged):
    path = damaged / "config.toml"
    path.write_text(path.read_text().replace("[schedule]", "[schedule]\nrestarts = 3"))
    said, html = shown(tmp_path)
    assert "does not know these settings (config.toml): unknown key &#39;schedule.restarts" in html
    assert "unknown key 'schedule.restarts'" in said
    assert "restarts = 3" in html  # its settings are shown as they are


def test_damaged_metrics_line_is_left_out(tmp_path, damaged):
    path = damaged / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], "{oops\n", *lines[3:]]))
    said, _ = shown(tmp_path)
    assert f"{path}: line 4 is damaged and left out" in said


def test_truncated_last_line_is_no_damage(tmp_path, damaged):
    with (damaged / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "ep')
    assert shown(tmp_path)[0] == ""


def test_other_kinds_of_metrics_lines_are_ignored(tmp_path, damaged):
    with (damaged / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "epoch", "epoch": "six", "validation": 3}\n{"epoch": 7}\n{"kind": "epoch", "epoch": 8}\n')
    shown(tmp_path)


def test_stopped_run_is_shown(tmp_path, damaged):
    write_run(tmp_path / "runs", preset(cell="lstm"), None)
    _, html = shown(tmp_path)
    assert "stopped" in html
    (run,) = [run for run in gather([tmp_path / "runs"]) if run.cell == "lstm"]
    assert (run.status, run.epochs, run.best_epoch, run.validation, run.test) == ("stopped", 5, 3, 8.25, None)


def test_only_result_files_are_needed(tmp_path, damaged):
    for name in ("env.json", "metrics.jsonl"):
        (damaged / name).unlink()
    said, html = shown(tmp_path)
    assert "metrics.jsonl: is missing or empty, so there is no learning curve" in said
    assert "<strong>7.80</strong>" in html


def test_music_too_large_is_left_out(tmp_path, damaged):
    (damaged / "music").mkdir()
    (damaged / "music" / "long.wav").touch()
    os.truncate(damaged / "music" / "long.wav", 13 << 20)
    assert "long.wav: has 13631488 bytes; at most" in shown(tmp_path)[1]


def test_linked_music_is_not_read(tmp_path, damaged):
    (tmp_path / "secret").write_text("secret")
    (damaged / "music").mkdir()
    (damaged / "music" / "roll.png").symlink_to(tmp_path / "secret")
    _, html = shown(tmp_path)
    assert "c2VjcmV0" not in html
    assert "roll.png: must be a file" in html


def test_linked_music_folder_is_ignored(tmp_path, damaged):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "roll.png").write_text("secret")
    (damaged / "music").symlink_to(tmp_path / "elsewhere")
    assert "c2VjcmV0" not in shown(tmp_path)[1]


def test_a_missing_folder_is_named_and_the_others_shown(tmp_path, damaged):
    (tmp_path / "empty").mkdir()
    summary = report.write([tmp_path / "runs", tmp_path / "nowhere", tmp_path / "empty"], tmp_path / "page.html")
    assert f"{tmp_path / 'nowhere'}: is not a folder" in summary.problems
    assert f"{tmp_path / 'empty'}: has no runs in it" in summary.problems


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.touch()])
def test_no_runs_is_an_error(tmp_path, make):
    make(tmp_path / "runs")
    with pytest.raises(RunError, match="no runs in"):
        report.write([tmp_path / "runs"], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
