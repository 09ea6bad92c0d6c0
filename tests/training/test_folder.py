"""A run's folder: what is in it, that it is written whole, and that it may be moved."""

import errno
import json
import math
import os
import shutil
import tomllib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rru
from rru.files import FileError, atomic
from rru.settings import toml
from rru.training import RunError
from rru.training.folder import Run
from tests.training.toy import CONFIG, outcome, train_in

_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_PLAIN = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), _TEXT)
_TABLE = st.dictionaries(_TEXT, st.one_of(_PLAIN, st.lists(_PLAIN)))


class TestConfig:
    def test_round_trip(self, tmp_path):
        Run.create(tmp_path / "run", CONFIG)
        assert Run(tmp_path / "run").config == CONFIG
        assert "[schedule]\npatience = 3\nepochs = 4\n" in (tmp_path / "run" / "config.toml").read_text()

    @given(st.dictionaries(_TEXT, st.one_of(_PLAIN, _TABLE)))
    def test_any_plain_values_survive_with_their_types(self, config):
        assert toml.same(tomllib.loads(toml.dumps(config)), config)

    def test_int_and_float_stay_distinct(self):
        assert (
            toml.dumps({"a": {"b": 1, "c": 1.0, "d": True, "e": 1e-7}}) == "[a]\nb = 1\nc = 1.0\nd = true\ne = 1e-07\n"
        )

    @pytest.mark.parametrize("value", [None, {"deeper": {}}, (1, 2), 1j, b"bytes"])
    def test_non_plain_value_is_refused_by_name(self, value):
        with pytest.raises(TypeError, match=r"model\.size must be a string, number, bool or a list of these"):
            toml.dumps({"model": {"size": value}})

    def test_lone_surrogate_is_refused(self):
        with pytest.raises(ValueError, match="surrogates not allowed"):
            toml.dumps({"model": {"name": "\ud800"}})

    def test_broken_file_is_named(self, tmp_path):
        (tmp_path / "config.toml").write_text("[task\n")
        with pytest.raises(RunError, match=r"config\.toml: cannot be read"):
            Run(tmp_path)

    def test_folder_without_config_is_no_run(self, tmp_path):
        with pytest.raises(RunError, match=r"is not a run: it has no config\.toml"):
            Run(tmp_path)

    def test_unknown_setting_is_named(self, tmp_path):
        run = Run.create(tmp_path / "run", CONFIG)
        file = run.path / "config.toml"
        file.write_text(file.read_text() + "restarts = 3\n")
        assert Run(run.path).tables["schedule"]["restarts"] == 3
        with pytest.raises(RunError, match=r"run/config\.toml: unknown key 'schedule\.restarts'"):
            _ = Run(run.path).config

    def test_a_run_is_not_overwritten(self, tmp_path):
        Run.create(tmp_path / "run", CONFIG)
        with pytest.raises(RunError, match="already holds a run"):
            Run.create(tmp_path / "run", CONFIG)


def test_the_environment_is_noted(tmp_path):
    Run.create(tmp_path / "run", CONFIG)
    noted = json.loads((tmp_path / "run" / "env.json").read_bytes())
    assert noted["versions"]["rru"] == rru.__version__
    assert noted["threads"] == 1
    assert noted["cpu"]
    assert "commit" in noted


class TestMetrics:
    def test_truncated_line_is_dropped(self, tmp_path):
        run = Run.create(tmp_path / "run", CONFIG)
        first, second = ({"kind": "steps", "epoch": 1, "step": step, "loss": math.nan} for step in (1, 2))
        run.append(first)
        run.append(second)
        with (run.path / "metrics.jsonl").open("ab") as file:
            file.write(b'{"step": 3, "lo')
        assert run.metrics() == [first | {"loss": None}, second | {"loss": None}]
        assert run.keep_lines(0, 5) == (2, [])
        assert (run.path / "metrics.jsonl").read_bytes().endswith(b"null}\n")
        assert run.keep_lines(0, 1) == (1, [])
        assert run.metrics() == [first | {"loss": None}]

    def test_resumed_run_keeps_lines_after_a_damaged_one(self, uninterrupted, tmp_path):
        asked = iter([False] * 11 + [True])
        train_in(tmp_path / "run", stop=lambda: next(asked))
        path = tmp_path / "run" / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([lines[0], "oops\n", *lines[1:]]))
        told = []
        train_in(tmp_path / "run", watch=told.append)
        assert f"{path}: line 2 is damaged and left out" in [getattr(event, "message", "") for event in told]
        assert outcome(tmp_path / "run") == uninterrupted

    def test_garbage_left_by_a_crash_does_not_stop_a_run(self, uninterrupted, tmp_path):
        train_in(tmp_path / "run", stop=lambda: True)
        with (tmp_path / "run" / "metrics.jsonl").open("ab") as file:
            file.write(b'{"kind": "steps"}\n\x00\x00\x00\n{"kind"')
        train_in(tmp_path / "run")
        assert outcome(tmp_path / "run") == uninterrupted


class TestMoving:
    def test_moved_run_resumes(self, uninterrupted, tmp_path):
        asked = iter([False] * 11 + [True])
        train_in(tmp_path / "here", stop=lambda: next(asked))
        shutil.move(tmp_path / "here", tmp_path / "there" / "deeper")
        train_in(tmp_path / "there" / "deeper")
        assert outcome(tmp_path / "there" / "deeper") == uninterrupted

    def test_copy_without_empty_folders_is_a_run(self, uninterrupted, tmp_path):
        run = Run.create(tmp_path / "run", CONFIG)
        (run.path / "checkpoint").rmdir()
        (run.path / "best").rmdir()
        train_in(run.path)
        assert outcome(run.path) == uninterrupted

    def test_no_file_contains_the_folders_path(self, tmp_path):
        train_in(tmp_path / "run")
        for path in (tmp_path / "run").rglob("*"):
            assert path.is_dir() or str(tmp_path).encode() not in path.read_bytes()


class _Disk:
    """Is full at the n-th write, half of which is still written."""

    def __init__(self, full_at, write_all):
        self.left = full_at
        self.write_all = write_all

    def __call__(self, file, content):
        self.left -= 1
        if self.left == 0:
            file.write(content[: len(content) // 2])
            file.flush()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.write_all(file, content)


class TestFullDisk:
    def test_crash_at_any_write_loses_nothing(self, uninterrupted, tmp_path, monkeypatch):
        counting = _Disk(0, atomic.write_all)
        with monkeypatch.context() as patch:
            patch.setattr(atomic, "write_all", counting)
            train_in(tmp_path / "counted")
        for full_at in [1, 2, 3, 5, 6, *range(8, -counting.left, 31), -counting.left]:
            folder = tmp_path / str(full_at)
            with monkeypatch.context() as patch:
                patch.setattr(atomic, "write_all", _Disk(full_at, atomic.write_all))
                with pytest.raises(FileError, match=r"could not be written \(No space left on device\)"):
                    train_in(folder)
            assert not list(folder.rglob(".unfinished*"))
            train_in(folder)
            assert outcome(folder) == uninterrupted

    def test_read_only_folder_is_named(self, tmp_path):
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(FileError, match=r"file/run: could not be written \(Not a directory\)"):
            Run.create(tmp_path / "file" / "run", CONFIG)


class TestResult:
    def test_ended_run_is_not_trained_again(self, tmp_path):
        first = train_in(tmp_path / "run")
        assert train_in(tmp_path / "run", stop=pytest.fail) == first
        assert Run(tmp_path / "run").status == "finished"

    @pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"[" * 100_000])
    def test_broken_file_is_named(self, content, tmp_path):
        run = Run.create(tmp_path / "run", CONFIG)
        (run.path / "result.json").write_bytes(content)
        with pytest.raises(RunError, match=r"result\.json: .*remove it, then `rru resume`"):
            run.result()

    def test_removed_result_is_made_again(self, uninterrupted, tmp_path):
        train_in(tmp_path / "run")
        (tmp_path / "run" / "result.json").unlink()
        train_in(tmp_path / "run")
        assert outcome(tmp_path / "run") == uninterrupted


class TestAFolderFromElsewhere:
    """A link in it would lead out of it, a pipe would keep whoever reads it waiting."""

    @pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
    def test_links_are_not_written_through(self, name, tmp_path):
        run = Run.create(tmp_path / "run", CONFIG)
        (tmp_path / "mine").write_text("kept")
        (run.path / name).symlink_to(tmp_path / "mine")
        with pytest.raises(FileError, match=rf"run/{name}: "):
            train_in(run.path)
        assert (tmp_path / "mine").read_text() == "kept"

    @pytest.mark.parametrize("ended", [False, True])
    @pytest.mark.parametrize("name", ["checkpoint", "best"])
    def test_nothing_behind_a_linked_folder_is_removed(self, name, ended, tmp_path):
        run = Run.create(tmp_path / "run", CONFIG)
        if ended:
            train_in(run.path)
        for folder in ("000012", "20261116", "epoch-0001"):
            (tmp_path / "mine" / folder / "work").mkdir(parents=True)
        shutil.rmtree(run.path / name)
        (run.path / name).symlink_to(tmp_path / "mine")
        with pytest.raises(FileError, match=rf"run/{name}: must be a folder, is a link"):
            train_in(run.path)
        for folder in ("000012", "20261116", "epoch-0001"):
            assert (tmp_path / "mine" / folder / "work").is_dir()

    @pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "lock"])
    def test_pipes_do_not_block(self, name, tmp_path):
        run = Run.create(tmp_path / "run", CONFIG)
        os.mkfifo(run.path / name)
        for ask in (run.result, run.metrics, lambda: run.status):
            with suppress(FileError):
                ask()
        with pytest.raises(FileError, match=rf"{name}: must be a file, is a link, a pipe or a device"):
            train_in(run.path)


class TestProvenance:
    def test_changed_environment_is_recorded_and_reported(self, tmp_path, monkeypatch):
        asked = iter([False] * 3 + [True])
        train_in(tmp_path / "run", stop=lambda: next(asked))
        before = json.loads((tmp_path / "run" / "env.json").read_bytes())
        now = before | {"threads": 7, "versions": before["versions"] | {"torch": "9.9"}}
        monkeypatch.setattr("rru.training.folder.environment", lambda: now)
        told = []
        train_in(tmp_path / "run", watch=told.append)
        noted = json.loads((tmp_path / "run" / "env.json").read_bytes())
        (entry,) = noted.pop("history")
        assert noted == before
        assert entry == {"epoch": 0, "step": 4, "threads": 7, "versions": now["versions"]}
        assert any("resuming with different versions" in getattr(event, "message", "") for event in told)

    def test_the_same_environment_is_noted_once(self, tmp_path):
        asked = iter([False] * 3 + [True])
        train_in(tmp_path / "run", stop=lambda: next(asked))
        train_in(tmp_path / "run")
        assert "history" not in json.loads((tmp_path / "run" / "env.json").read_bytes())

    def test_damaged_environment_does_not_stop_a_run(self, uninterrupted, tmp_path):
        asked = iter([False] * 3 + [True])
        train_in(tmp_path / "run", stop=lambda: next(asked))
        (tmp_path / "run" / "env.json").write_text("[")
        train_in(tmp_path / "run", watch=lambda event: None)
        assert outcome(tmp_path / "run") == uninterrupted
