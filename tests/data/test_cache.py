"""Prepared forms: made once, memory-mapped, never half, never stale."""

import multiprocessing
import os

import numpy as np
import pytest

from rru import data
from rru.data import text
from tests.data import samples


@pytest.fixture
def loads(tmp_path, monkeypatch):
    """Loads a small text8, and counts how often it was prepared."""
    samples.write(tmp_path, "text8", b"abcd" * 100)
    calls = []
    prepare = text.prepare_bytes
    monkeypatch.setitem(data._PREPARE, "bytes", (lambda *given: calls.append(1) or prepare(*given), text.from_prepared))

    def load():
        return data.load("text8", tmp_path, verify=False), len(calls)

    return load


def _folder(cache):
    (folder,) = cache.glob("text8-*")
    return folder


def test_the_second_time_nothing_is_prepared_and_memory_is_mapped(loads):
    first, _ = loads()
    again, count = loads()
    assert count == 1
    assert isinstance(again.train, np.memmap)
    assert again.vocabulary == first.vocabulary
    np.testing.assert_array_equal(again.train, first.train)


def test_a_changed_source_is_prepared_anew(loads, tmp_path):
    loads()
    samples.write(tmp_path, "text8", b"abce" * 100)
    changed, count = loads()
    assert count == 2
    assert "e" in changed.vocabulary.ids


def test_a_source_that_was_only_touched_is_not_prepared_anew(loads, tmp_path):
    loads()
    os.utime(tmp_path / "text8", (1, 1))
    assert loads()[1] == 1


def test_other_code_prepares_anew(loads, monkeypatch):
    loads()
    monkeypatch.setattr("rru.data.cache.VERSION", "next")
    assert loads()[1] == 2


@pytest.mark.parametrize("file", ["train.npy", "index.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "gone", "objects"])
def test_a_damaged_form_is_found_out_and_made_again(file, damage, loads, cache):
    first, _ = loads()
    path = _folder(cache) / file
    content = path.read_bytes()
    objects = samples.io.BytesIO()
    np.save(objects, np.array([print], dtype=object), allow_pickle=True)
    changed = content[:-2] + bytes((content[-2] ^ 1,)) + content[-1:]
    path.unlink()
    if damage != "gone":
        damaged = {"cut": content[: len(content) // 2], "changed": changed, "empty": b"", "objects": objects.getvalue()}
        path.write_bytes(damaged[damage])
    again, count = loads()
    assert count == 2
    np.testing.assert_array_equal(again.train, first.train)
    assert loads()[1] == 2
    assert [entry.name for entry in cache.iterdir() if entry.name.startswith(".")] == []


def test_a_changed_vocabulary_is_found_out(loads, cache):
    first, _ = loads()
    index = _folder(cache) / "index.json"
    index.write_bytes(index.read_bytes().replace(b'"c"', b'"z"'))
    again, count = loads()
    assert count == 2
    assert again.vocabulary == first.vocabulary


def test_a_damaged_header_is_found_out_wherever_it_is(loads, cache):
    first, _ = loads()
    path = _folder(cache) / "valid.npy"
    content = path.read_bytes()
    for at in range(0, 128, 3):
        path.write_bytes(content[:at] + bytes((content[at] ^ 4,)) + content[at + 1 :])
        again, _ = loads()
        np.testing.assert_array_equal(again.valid, first.valid)


def test_a_process_killed_while_writing_leaves_no_half_form(loads, cache):
    loads()
    (_folder(cache) / "index.json").unlink()  # what is written last
    assert loads()[1] == 2


def test_what_a_killed_process_left_is_removed_in_time(loads, cache):
    samples.write(cache / ".text8-old.x", "train.npy", b"half")
    samples.write(cache / ".text8-new.x", "train.npy", b"another process is at work")
    os.utime(cache / ".text8-old.x", (1, 1))
    loads()
    assert not (cache / ".text8-old.x").exists()
    assert (cache / ".text8-new.x").exists()


def test_a_failure_while_writing_leaves_nothing_and_the_set_still_loads(loads, cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rru.data.cache._flush", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        loaded, _ = loads()
    assert len(loaded.train) == 360
    assert [path for path in cache.iterdir() if path.name != "sources"] == []


def test_a_failed_preparation_leaves_nothing(cache, tmp_path):
    samples.write(tmp_path, "text8", b"too short")
    with pytest.raises(data.DataError, match="at least 20 bytes"):
        data.load("text8", tmp_path, verify=False)
    assert [path for path in cache.iterdir() if path.name != "sources"] == []


def _load_in_process(folder, answers):
    loaded = data.load("text8", folder, verify=False)
    answers.put((int(loaded.train.sum()), len(loaded.vocabulary)))


def test_two_processes_at_once_both_get_the_set(tmp_path, cache):
    samples.write(tmp_path, "text8", b"abcd" * 1_000_000)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    both = [context.Process(target=_load_in_process, args=(tmp_path, answers)) for _ in range(2)]
    for process in both:
        process.start()
    got = [answers.get(timeout=60) for _ in both]
    for process in both:
        process.join()
    assert got[0] == got[1] == (3_600_000 * 7 // 2, 6)
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []
    assert np.load(_folder(cache) / "train.npy").shape == (3_600_000,)
