"""Reading run folders that may hold anything: what is damaged is named, and the rest is read."""

import ast
import json
import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rru
from rru.data.own.columns import Layout
from rru.data.own.data_json import SeriesFacts
from rru.data.own.resampling import MAX_SERIES
from rru.data.own.scaling import Scaling
from rru.experiments import plans
from rru.experiments.running import run_state
from rru.experiments.search.proposals import Proposals
from rru.experiments.search.pruning import epoch_values
from rru.files import FileError
from rru.report.gather import gather
from rru.settings.ranges import Range
from rru.training import Result, Run, RunError, find_runs, run_files, run_folder
from rru.training.run_files import ABOUT_DATA, LINE_LIMIT, METRICS_LIMIT, about_content, about_data
from tests.report.samples import preset, result_of, write_run

FORGED = [None, 5, -1, True, 1e999, 10**400, 2**70, "", "\x1b[2J", [], {}, [[]], {"nll": None}, {"": {}}, "a" * 9000]
NAMES = {value for value in vars(run_files).values() if isinstance(value, str) and re.fullmatch(r"\w+\.[a-z]+", value)}
OPENERS = {"open", "read_bytes", "read_text", "fdopen", "memmap"}
MAY_OPEN = {  # outside rru.files and rru.data, and what they open
    "experiments/search/journal.py": "the journal of a study, checked to be a file of limited size",
    "inference/sound.py": "a sound, in memory",
    "kinds/images.py": "a picture, from bytes",
    "settings/user_cells.py": "the cells that the user names",
    "training/environment.py": "/proc/cpuinfo",
}


class TestOnlyOneReader:
    def test_no_other_module_names_the_files_of_a_run(self):
        root = Path(rru.__file__).parent
        for path in root.rglob("*.py"):
            if path.name in ("run_files.py", "safe_read.py") and path.parts[-2] in ("training", "files"):
                continue
            tree = ast.parse(path.read_text())
            found = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in NAMES}
            assert not found, f"{path}: use rru.training.run_files instead of {found}"

    def test_no_other_module_opens_files(self):
        """Everything else that is opened is in the package, or read by `rru.files` and `rru.data`."""
        root = Path(rru.__file__).parent
        assert len(NAMES) >= 10
        for path in root.rglob("*.py"):
            name = path.relative_to(root).as_posix()
            if name in MAY_OPEN or name.startswith(("files/", "data/")):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                called = node.func if isinstance(node, ast.Call) else None
                what = getattr(called, "attr", getattr(called, "id", None))
                inside = ast.unparse(called).startswith(("resources.files", "_FOLDER.joinpath")) if called else False
                assert what not in OPENERS or inside, f"{path}, line {node.lineno}: use rru.files"

    def test_no_other_module_walks_folders(self):
        root = Path(rru.__file__).parent
        for path in root.rglob("*.py"):
            if path.parts[-2] in ("files", "data"):  # data folders are not run folders
                continue
            used = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
            assert not used & {"rglob", "scandir", "walk", "listdir"}, path


def neighbours(folder: Path) -> None:
    """Ask everything that commands ask of run folders. The whole run beside the damaged one is read."""
    root = folder.parents[2]
    assert any(run.test == 8.5 for run in gather([root]))
    for run in find_runs(root, lambda folder, error: None):
        for ask in (run.result, run.epochs, run.environment, lambda run=run: run.status):
            with suppress(FileError):
                ask()
    entry = plans.load("table1", "paper", cells=["rru"], tasks=["jsb"]).runs[0]
    assert run_state(entry, root).status in ("finished", "diverged", "damaged", "stopped", "missing")
    with suppress(FileError):
        epoch_values(folder, "nll")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A run to damage, in the place where a plan looks for it, beside a whole one."""
    root = tmp_path_factory.mktemp("runs")
    write_run(root, preset(cell="gru"), 8.5)
    return write_run(root, preset(), 7.8)


@pytest.fixture(autouse=True)
def _restored(damaged):
    files = {path.name: path.read_bytes() for path in damaged.iterdir() if path.is_file()}
    yield
    for name, content in files.items():
        (damaged / name).write_bytes(content)


VALUES = st.recursive(
    st.sampled_from(FORGED) | st.integers() | st.floats() | st.text(max_size=8) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
RESULT_NAMES = sorted(result_of(preset(), 7.8))


class TestForgedValues:
    @given(name=st.sampled_from(RESULT_NAMES), value=VALUES)
    @settings(max_examples=150, deadline=None)
    def test_damaged_result_hides_no_other_run(self, damaged, name, value):
        (damaged / "result.json").write_text(json.dumps(result_of(preset(), 7.8) | {name: value}))
        neighbours(damaged)

    @given(name=st.sampled_from(["kind", "epoch", "step", "validation", "train_loss"]), value=VALUES, line=VALUES)
    @settings(max_examples=100, deadline=None)
    def test_damaged_metrics_hide_no_other_run(self, damaged, name, value, line):
        good = {"kind": "epoch", "epoch": 1, "step": 10, "validation": {"nll": 8.0}}
        lines = [json.dumps(each) for each in (good, good | {name: value}, line, good)]
        (damaged / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        (damaged / "result.json").unlink(missing_ok=True)
        neighbours(damaged)
        assert Run(damaged).epochs()[0].validation["nll"] == 8.0

    @given(table=st.sampled_from(["task", "model", "optimiser", "schedule"]), value=VALUES)
    @settings(max_examples=60, deadline=None)
    def test_damaged_environment_hides_no_other_run(self, damaged, table, value):
        (damaged / "env.json").write_text(json.dumps({table: value, "history": value}))
        neighbours(damaged)

    @given(
        name=st.sampled_from(["name", "cell", "seed", "num_layers", "budget", "lr", "batch_size", "limit"]),
        value=st.sampled_from(["5", "-1", "1e999", "true", '""', "[]", "{}", '"\\u001b[2J"', "2020-01-01", "9e99"]),
    )
    @settings(max_examples=60, deadline=None)
    def test_damaged_settings_hide_no_other_run(self, damaged, name, value):
        path = damaged / "config.toml"
        whole = path.read_text()
        lines = [f"{name} = {value}" if line.startswith(f"{name} =") else line for line in whole.splitlines()]
        path.write_text("\n".join(lines))
        try:
            neighbours(damaged)
        finally:
            path.write_text(whole)

    @given(content=st.binary(max_size=200), name=st.sampled_from(["config.toml", "env.json", "metrics.jsonl"]))
    @settings(max_examples=60, deadline=None)
    def test_random_bytes_hide_no_other_run(self, damaged, content, name):
        whole = (damaged / name).read_bytes()
        (damaged / name).write_bytes(content)
        try:
            neighbours(damaged)
        finally:
            (damaged / name).write_bytes(whole)

    @pytest.mark.parametrize(
        ("name", "value"), [("status", 5), ("validation", None), ("seconds", {"total": "long"}), ("best_epoch", 1.5)]
    )
    def test_wrong_values_are_named(self, damaged, name, value):
        (damaged / "result.json").write_text(json.dumps(result_of(preset(), 7.8) | {name: value}))
        with pytest.raises(
            RunError, match=rf"result\.json: must have .* as {name}, got .*; remove it, then `rru resume`"
        ):
            Run(damaged).result()

    def test_null_means_a_non_finite_score(self, damaged):
        content = result_of(preset(), 7.8, status="diverged", best=None) | {"test": {"nll": None}}
        (damaged / "result.json").write_text(json.dumps(content))
        assert isinstance(Run(damaged).result(), Result)


class TestMetrics:
    def test_a_damaged_line_is_named_and_the_lines_after_it_are_read(self, damaged):
        path = damaged / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*lines[:3], "{oops\n", "[]\n", *lines[3:]]))
        said: list[str] = []
        assert [epoch.epoch for epoch in Run(damaged).epochs(said)] == [0, 1, 2, 3, 4, 5]
        assert said == [f"{path}: line {number} is damaged and left out" for number in (4, 5)]

    def test_many_damaged_lines_are_counted(self, damaged):
        with (damaged / "metrics.jsonl").open("a") as file:
            file.write("oops\n" * 100)
        said: list[str] = []
        Run(damaged).epochs(said)
        assert len(said) == 4
        assert "97 more lines are damaged" in said[-1]

    def test_an_endless_line_is_not_read(self, damaged):
        with (damaged / "metrics.jsonl").open("a") as file:
            file.write(" " * (LINE_LIMIT + 1) + "\n")
        said: list[str] = []
        assert len(Run(damaged).epochs(said)) == 6
        assert f"line 7 has more than {LINE_LIMIT} bytes" in said[0]

    def test_a_huge_file_is_not_read(self, damaged):
        os.truncate(damaged / "metrics.jsonl", METRICS_LIMIT + 1)
        with pytest.raises(FileError, match=f"at most {METRICS_LIMIT} are allowed"):
            Run(damaged).epochs()


class TestFinding:
    def test_an_export_is_not_a_run(self, tmp_path):
        for name in ("manifest.json", "config.json"):
            folder = write_run(tmp_path, preset(), folder=tmp_path / name)
            (folder / name).write_text("{}")
            with pytest.raises(RunError, match="is an exported model, not a run"):
                Run(folder)
        assert find_runs(tmp_path) == []

    def test_links_are_not_followed(self, tmp_path):
        write_run(tmp_path / "elsewhere", preset())
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
        (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
        assert find_runs(tmp_path / "runs") == []

    def test_temporary_folders_are_skipped(self, tmp_path):
        write_run(tmp_path, preset(), folder=tmp_path / ".unfinished-12-run")
        assert find_runs(tmp_path) == []

    def test_folders_may_vanish_at_any_moment(self, tmp_path, monkeypatch):
        write_run(tmp_path, preset(cell="gru"))
        gone = write_run(tmp_path, preset())
        scan = os.scandir

        def vanishing(folder):
            entries = list(scan(folder))
            if Path(folder) == gone.parent:
                gone.rename(tmp_path / ".unfinished-gone")
            return scan(folder) if Path(folder) != gone.parent else _Entries(entries)

        monkeypatch.setattr(os, "scandir", vanishing)
        assert [run.tables["model"]["cell"] for run in find_runs(tmp_path)] == ["gru"]

    def test_a_config_in_the_root_hides_nothing(self, tmp_path):
        write_run(tmp_path, preset())
        (tmp_path / "config.toml").write_text("x = 1")
        problems = {}
        assert [run.path for run in find_runs(tmp_path, problems.__setitem__)] == [run_folder(preset(), tmp_path)]
        assert list(problems) == [tmp_path]


class _Entries:
    """What os.scandir returned before the folder changed."""

    def __init__(self, entries):
        self.entries = entries

    def __enter__(self):
        return self.entries

    def __exit__(self, *_):
        pass


class TestDamagedJournal:
    """The journal of a study is read by Optuna; what it raises for a damaged one names the file."""

    @pytest.fixture(scope="class")
    @classmethod
    def journal(cls, tmp_path_factory):
        proposals = cls.proposals(tmp_path_factory.mktemp("study"))
        proposals.extend(3)
        proposals.tell(0, 1.5)
        return proposals.folder / "study.journal"

    @staticmethod
    def proposals(folder):
        return Proposals(folder, {"optimiser.lr": Range(1e-4, 1e-2, True)}, 0, False)

    @given(line=st.integers(0, 9), key=st.integers(0, 20), value=VALUES)
    @settings(max_examples=150, deadline=None)
    def test_any_value_changed_is_an_error_that_names_it_or_none(self, journal, line, key, value):
        whole = journal.read_bytes()
        lines = whole.splitlines()
        content = json.loads(lines[line % len(lines)])
        content[sorted(content)[key % len(content)]] = value
        lines[line % len(lines)] = json.dumps(content).encode()
        journal.write_bytes(b"\n".join(lines) + b"\n")
        try:
            self.proposals(journal.parent).trials()
        except FileError as error:
            assert str(journal) in str(error)  # noqa: PT017
        finally:
            journal.write_bytes(whole)

    def test_a_huge_one_is_not_read(self, tmp_path):
        (tmp_path / "study.journal").touch()
        os.truncate(tmp_path / "study.journal", 1 << 36)
        with pytest.raises(FileError, match=r"study\.journal: has 68719476736 bytes; at most"):
            self.proposals(tmp_path).trials()


class TestFactsAboutData:
    def test_as_many_series_as_can_be_read_can_be_kept(self, tmp_path):
        """With names of forty characters, times, and numbers of all their digits."""
        scaling = Scaling(1 / 3, 2 / 3, 1 / 7, 1 / 9, 1 / 11, 100 / 3, 0.0)
        facts = SeriesFacts(
            layout=Layout("load", "day", "shop"),
            series={f"{number:040d}": scaling for number in range(MAX_SERIES)},
            horizon=12,
            season=12,
            starts=("2026-01-31T13:00:00.000000",) * MAX_SERIES,
            splits=((1600, 1800, 2000),) * MAX_SERIES,
            statistics={},
            summary="",
            notes=(),
        ).fields()
        (tmp_path / ABOUT_DATA).write_bytes(about_content(facts))
        assert about_data(tmp_path) == facts

    @pytest.mark.parametrize("limit", ["ABOUT_LIMIT", "ABOUT_VALUES"])
    def test_facts_that_could_not_be_read_again_are_refused(self, monkeypatch, limit):
        monkeypatch.setattr(run_files, limit, 3)
        with pytest.raises(ValueError, match=r"too long names of series or classes: data.json would have \d+ bytes"):
            about_content({"classes": ["a", "b", "c", "d"]})
