"""The cache of prepared data sets: memory-mapped, complete and up to date."""

import os
from dataclasses import replace

import numpy as np
import pytest

from rru import data
from rru.data import text
from rru.data.own.formats import FORMATS
from tests.data import samples
from tests.timeouts import TIMEOUT


@pytest.fixture
def loads(tmp_path, monkeypatch):
    """Return a function that loads a small text8 and counts how often it was prepared."""
    samples.write(tmp_path, "text8", b"abcd" * 100)
    calls = []
    counting = replace(FORMATS["bytes"], prepare_set=lambda *given: calls.append(1) or text.prepare_bytes(*given))
    monkeypatch.setitem(FORMATS, "bytes", counting)

    def load():
        return data.load("text8", tmp_path, verify=False), len(calls)

    return load


def _folder(cache):
    (folder,) = cache.glob("text8-*")
    return folder


def test_second_load_uses_memory_mapped_cache(loads):
    first, _ = loads()
    again, count = loads()
    assert count == 1
    assert isinstance(again.train, np.memmap)
    assert again.vocabulary == first.vocabulary
    np.testing.assert_array_equal(again.train, first.train)


def test_changed_source_is_prepared_again(loads, tmp_path):
    loads()
    samples.write(tmp_path, "text8", b"abce" * 100)
    changed, count = loads()
    assert count == 2
    assert "e" in changed.vocabulary.ids


def test_touched_source_is_not_prepared_again(loads, tmp_path):
    loads()
    os.utime(tmp_path / "text8", (1, 1))
    assert loads()[1] == 1


def test_new_cache_version_prepares_again(loads, monkeypatch):
    loads()
    monkeypatch.setattr("rru.data.cache.VERSION", "next")
    assert loads()[1] == 2


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *(("train.npy", damage) for damage in ("truncated", "changed", "empty", "missing", "objects")),
        *(("index.json", damage) for damage in ("truncated", "changed", "missing")),
    ],
)
def test_damaged_cache_is_detected_and_rebuilt(file, damage, loads, cache):
    first, _ = loads()
    path = _folder(cache) / file
    content = path.read_bytes()
    objects = samples.io.BytesIO()
    np.save(objects, np.array([print], dtype=object), allow_pickle=True)
    changed = content[:-2] + bytes((content[-2] ^ 1,)) + content[-1:]
    path.unlink()
    if damage != "missing":
        truncated = content[: len(content) // 2]
        damaged = {"truncated": truncated, "changed": changed, "empty": b"", "objects": objects.getvalue()}
        path.write_bytes(damaged[damage])
    again, count = loads()
    assert count == 2
    np.testing.assert_array_equal(again.train, first.train)
    assert loads()[1] == 2
    assert [entry.name for entry in cache.iterdir() if entry.name.startswith(".")] == []


def test_changed_vocabulary_is_detected(loads, cache):
    first, _ = loads()
    index = _folder(cache) / "index.json"
    index.write_bytes(index.read_bytes().replace(b'"c"', b'"z"'))
    again, count = loads()
    assert count == 2
    assert again.vocabulary == first.vocabulary


def test_damage_anywhere_in_an_array_header_is_detected(loads, cache):
    first, _ = loads()
    path = _folder(cache) / "valid.npy"
    content = path.read_bytes()
    for at in range(0, 128, 3):
        path.write_bytes(content[:at] + bytes((content[at] ^ 4,)) + content[at + 1 :])
        again, _ = loads()
        np.testing.assert_array_equal(again.valid, first.valid)


def test_temporary_folders_are_removed_after_a_day(loads, cache):
    samples.write(cache / ".text8-old.x", "train.npy", b"half")
    samples.write(cache / ".text8-new.x", "train.npy", b"another process is at work")
    os.utime(cache / ".text8-old.x", (1, 1))
    loads()
    assert not (cache / ".text8-old.x").exists()
    assert (cache / ".text8-new.x").exists()


def test_full_disk_leaves_nothing_in_the_cache_and_the_data_set_still_loads(loads, cache, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rru.data.cache.flush_file", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        loaded, _ = loads()
    assert len(loaded.train) == 360
    assert [path for path in cache.iterdir() if path.name != "sources"] == []


def test_failed_preparation_leaves_nothing(cache, tmp_path):
    samples.write(tmp_path, "text8", b"too short")
    with pytest.raises(data.DataError, match="at least 20 bytes"):
        data.load("text8", tmp_path, verify=False)
    assert [path for path in cache.iterdir() if path.name != "sources"] == []


def _load_in_process(folder, cache, answers):
    os.environ["RRU_CACHE_DIR"] = str(cache)
    loaded = data.load("text8", folder, verify=False)
    answers.put((int(loaded.train.sum()), len(loaded.vocabulary)))


def test_two_processes_can_load_at_once(processes, tmp_path, cache):
    samples.write(tmp_path, "text8", b"abcd" * 1_000_000)
    answers = processes.Queue()
    both = [processes.Process(target=_load_in_process, args=(tmp_path, cache.parent, answers)) for _ in range(2)]
    for process in both:
        process.start()
    got = [answers.get(timeout=TIMEOUT) for _ in both]
    for process in both:
        process.join()
    assert got[0] == got[1] == (3_600_000 * 7 // 2, 6)
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []
    assert np.load(_folder(cache) / "train.npy").shape == (3_600_000,)
