"""A run's folder carried elsewhere: it goes on there to the same result, and no file of it can end up outside."""

import itertools

import pytest

from rru.experiments.running import transfer
from rru.experiments.running.attempt import attempt
from rru.experiments.running.transfer import Changes, Sender
from rru.files import FileError
from rru.training import Run, RunError, Stepped
from tests.experiments.chorales import folder, outcomes, planned, trained


def test_run_transferred_every_three_steps_gives_the_same_result(tmp_path):
    """As a cluster does: trained in one folder, kept in another, gone on with in a third."""
    (entry,) = planned("rru")
    expected = trained([entry], tmp_path / "expected")
    kept = folder(entry, tmp_path / "kept")
    Run.create(kept, entry.config)
    for number in range(100):
        place = tmp_path / str(number)
        place.mkdir()
        given = transfer.contents(kept)
        transfer.write(place, Changes(given, frozenset(given)))
        sender, steps = Sender(place), []

        def watch(event, steps=steps):
            steps.append(isinstance(event, Stepped))

        outcome = attempt(entry, place, watch=watch, stop=lambda steps=steps: sum(steps) == 3)
        transfer.write(kept, sender.changes())
        if outcome.status == "finished":
            break
    assert number == 3  # ten steps, in four places
    assert outcomes([entry], tmp_path / "kept") == expected


def test_only_changes_are_sent_and_deletions_applied(tmp_path):
    place, kept = tmp_path / "place", tmp_path / "kept"
    for path in (place / "checkpoint" / "000001", kept):
        path.mkdir(parents=True)
    (place / "metrics.jsonl").write_bytes(b"{}\n")
    (kept / "config.toml").write_bytes(b"kept")
    (kept / "lock").touch()
    sender = Sender(tmp_path / "nothing")
    sender.folder = place
    (place / "checkpoint" / "000001" / "state.json").write_bytes(b"1")
    transfer.write(kept, sender.changes())
    assert sender.changes().files == {}
    (place / "checkpoint" / "000001" / "state.json").unlink()
    (place / "checkpoint" / "000002").mkdir()
    (place / "checkpoint" / "000002" / "state.json").write_bytes(b"2")
    changes = sender.changes()
    assert dict(changes.files) == {"checkpoint/000002/state.json": b"2"}
    transfer.write(kept, changes)
    assert sorted(path.name for path in (kept / "checkpoint").iterdir()) == ["000002"]
    assert sorted(path.name for path in kept.iterdir()) == ["checkpoint", "config.toml", "lock", "metrics.jsonl"]
    assert (kept / "config.toml").read_bytes() == b"kept"


@pytest.mark.parametrize(
    "name",
    [
        "../result.json",
        "/etc/passwd",
        "checkpoint/../../result.json",
        "checkpoint/000001/../../../x",
        "checkpoint//x",
        "..",
        ".",
        "",
        ".hidden",
        "checkpoint/.unfinished-1",
        "a/b/c/d",
        "config.toml",
        "lock",
        "back\\slash",
        "line\nend",
        "nul\0",
    ],
)
def test_file_name_outside_the_folder_is_refused(tmp_path, name):
    kept = tmp_path / "a" / "run"
    kept.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    for changes in (Changes({name: b"x"}, frozenset([name])), Changes({}, frozenset([name]))):
        with pytest.raises(RunError, match="received a file named"):
            transfer.write(kept, changes)
    assert sorted(tmp_path.rglob("*")) == before


def test_users_files_are_neither_sent_nor_removed(tmp_path):
    (tmp_path / "music").mkdir()
    for name in ("notes.txt", "music/chorale.mid", "best.zip", "metrics.jsonl"):
        (tmp_path / name).write_bytes(b"mine")
    assert list(transfer.contents(tmp_path)) == ["metrics.jsonl"]
    transfer.write(tmp_path, Changes({"env.json": b"{}"}, frozenset(["env.json"])))
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["best.zip", "env.json", "music/chorale.mid", "notes.txt"]


@pytest.mark.parametrize("part", ["checkpoint", "best"])
def test_links_are_not_written_through(tmp_path, part):
    (tmp_path / "run").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "run" / part).symlink_to(tmp_path / "mine")
    with pytest.raises(FileError, match=f"{part}: must be a folder, is a link"):
        transfer.write(tmp_path / "run", Changes({f"{part}/000001/state.json": b"1"}, frozenset()))
    assert not list((tmp_path / "mine").iterdir())


@pytest.mark.parametrize("steps", [8, None], ids=["stopped", "ended"])
def test_killed_writer_leaves_a_resumable_run(steps, tmp_path, monkeypatch):
    """Every file of a run is written in turn; up to each of them, the run goes on to the same result."""
    (entry,) = planned("gru")
    expected = trained([entry], tmp_path / "whole")
    if steps:
        made = itertools.count(1)
        attempt(entry, folder(entry, tmp_path / "sent"), stop=lambda: next(made) > steps)
    given = transfer.contents(folder(entry, tmp_path / ("sent" if steps else "whole")))
    writers = {name: getattr(transfer, name) for name in ("write_file", "write_folder")}
    for moment in range(100):
        left = moment

        class Died(BaseException):
            pass

        def dies(*arguments, writer):
            nonlocal left
            if not left:
                raise Died
            left -= 1
            writer(*arguments)

        for name, writer in writers.items():
            monkeypatch.setattr(transfer, name, lambda *arguments, writer=writer: dies(*arguments, writer=writer))
        root = tmp_path / str(moment)
        Run.create(folder(entry, root), entry.config)
        try:
            transfer.write(folder(entry, root), Changes(given, frozenset(given)))
            break
        except Died:
            assert attempt(entry, folder(entry, root)).status == "finished"
            assert outcomes([entry], root) == expected
    assert moment >= 4
