"""Fetching and verifying: what is here is left alone, and every accepted form is told from a wrong one."""

import gzip
import hashlib
import io
import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest

from rru.data import CATALOGUE, Entry, RemoteFile, entry
from rru.data.fetch import fetch
from rru.data.verify import verify

CONTENT = b"a text of a few words " * 1000


def packed(suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(CONTENT, mtime=0)
    if suffix == ".zip":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("text", CONTENT)
        return buffer.getvalue()
    return CONTENT


@pytest.fixture
def text() -> Entry:
    """A set published as a .zip, whose content has a published hash too."""
    published = "sha256:" + hashlib.sha256(b"the published zip").hexdigest()
    content = "md5:" + hashlib.md5(CONTENT).hexdigest()
    file = RemoteFile("text/text.zip", "http://127.0.0.1:1/text.zip", published, 17, content, len(CONTENT))
    return Entry("text", "A text", "bytes", "", "", "", (file,), {})


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz", ".zip"])
def test_the_same_content_in_another_packing_is_recognised(text: Entry, tmp_path: Path, suffix: str) -> None:
    path = put(tmp_path, f"text/text{suffix}", packed(suffix))
    (verdict,) = verify(text, tmp_path)
    assert (verdict.path, verdict.state) == (path, "same content")
    assert "differs from the published file (content checked: 22,000 bytes inside are the original" in verdict.detail


def test_the_published_file_is_recognised_by_its_own_hash(text: Entry, tmp_path: Path) -> None:
    put(tmp_path, "text/text.zip", b"the published zip")
    assert [verdict.detail for verdict in verify(text, tmp_path)] == ["as published (sha256)"]


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def nothing(data: bytes) -> bytes:
    return b""


def longer(data: bytes) -> bytes:
    return data + b"?"


@pytest.mark.parametrize(
    ("suffix", "damaged"),
    [("", half), ("", nothing), ("", longer), (".gz", half), (".gz", nothing), (".gz", longer), (".zip", half)],
)
def test_a_damaged_file_is_wrong_and_the_verdict_says_which(text: Entry, tmp_path: Path, suffix: str, damaged) -> None:
    path = put(tmp_path, f"text/text{suffix}", damaged(packed(suffix)))
    (verdict,) = verify(text, tmp_path)
    assert (verdict.path, verdict.state) == (path, "wrong")
    assert verdict.detail.startswith("WRONG: ")


def test_a_missing_file_is_missing(text: Entry, tmp_path: Path) -> None:
    assert [(verdict.path, verdict.state) for verdict in verify(text, tmp_path)] == [
        (tmp_path / "text" / "text.zip", "missing")
    ]


def test_of_an_incomplete_set_each_file_is_told(tmp_path: Path) -> None:
    put(tmp_path, "mnist/train-labels-idx1-ubyte.gz", b"?")
    states = {verdict.path.name: verdict.state for verdict in verify(entry("mnist"), tmp_path)}
    assert states["train-labels-idx1-ubyte.gz"] == "wrong"
    assert sorted(states.values()) == ["missing", "missing", "missing", "wrong"]


def test_an_archive_of_too_few_reviews_is_wrong(tmp_path: Path) -> None:
    path = put(tmp_path, "imdb/aclImdb.tar.gz", b"")
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("aclImdb/train/pos/0_9.txt")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"good"))
    assert [verdict.state for verdict in verify(entry("imdb"), tmp_path)] == ["wrong"]


def test_music_that_is_not_music_is_wrong(tmp_path: Path) -> None:
    put(tmp_path, "music/JSB Chorales.pickle", b"cos\nsystem\n(S'false'\ntR.")
    assert [verdict.state for verdict in verify(entry("jsb"), tmp_path)] == ["wrong"]


def chorales(counts: list[int], steps: int) -> bytes:
    """A pickle like the original ones, of pieces of one chord."""
    splits = zip(("train", "valid", "test"), counts, strict=True)
    return pickle.dumps({split: [[(60, 64, 67)] * steps for _ in range(count)] for split, count in splits})


def test_music_in_a_pickle_is_told_by_its_counts(tmp_path: Path) -> None:
    put(tmp_path, "music/Piano-midi.de.pickle", chorales([87, 12, 25], 3))
    (verdict,) = verify(entry("piano-midi"), tmp_path)
    assert verdict.state == "same counts"
    assert verdict.detail == "differs from the published file (content checked: 87/12/25 pieces)"


def test_music_with_too_few_pieces_or_steps_is_wrong(tmp_path: Path) -> None:
    put(tmp_path, "music/Piano-midi.de.pickle", chorales([87, 12, 24], 3))
    put(tmp_path, "music/JSB Chorales.pickle", chorales([229, 76, 77], 3))
    (piano,), (jsb,) = verify(entry("piano-midi"), tmp_path), verify(entry("jsb"), tmp_path)
    assert (piano.state, jsb.state) == ("wrong", "wrong")
    assert "[87, 12, 24] pieces" in piano.detail
    assert jsb.detail.endswith("steps in train, valid and test, got [687, 228, 231]")


def test_the_embedded_set_needs_no_files(tmp_path: Path) -> None:
    assert [verdict.state for verdict in verify(entry("bach"), tmp_path)] == ["embedded"]
    assert fetch(entry("bach"), tmp_path) == []


@pytest.mark.parametrize("form", ["text/text", "text/text.gz", "text"])
def test_a_set_that_is_here_in_any_form_is_not_fetched(text: Entry, tmp_path: Path, form: str) -> None:
    put(tmp_path, form, packed(Path(form).suffix))  # its address would refuse: nothing listens there
    assert fetch(text, tmp_path) == []


def test_every_file_of_the_catalogue_can_be_fetched() -> None:
    for this in CATALOGUE.values():
        for file in this.files:
            assert file.url.startswith(("https://", "http://mattmahoney.net/"))
            assert file.hash.partition(":")[0] in ("sha256", "md5")
            assert not Path(file.path).is_absolute()
            assert ".." not in Path(file.path).parts
