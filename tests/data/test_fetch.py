"""fetch downloads only missing files; verify recognises every accepted form."""

import gzip
import hashlib
import io
import pickle
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from rru.data import DataSet, RemoteFile, data_set
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
def text() -> DataSet:
    """A data set published as .zip, with hashes of the file and of its content."""
    published = "sha256:" + hashlib.sha256(b"the published zip").hexdigest()
    content = "md5:" + hashlib.md5(CONTENT).hexdigest()
    file = RemoteFile("text/text.zip", "http://127.0.0.1:1/text.zip", published, 17, content, len(CONTENT))
    return DataSet("text", "A text", "bytes", "", "", "", (file,), {})


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz", ".zip"])
def test_same_content_in_another_compression_is_recognised(text: DataSet, tmp_path: Path, suffix: str) -> None:
    path = put(tmp_path, f"text/text{suffix}", packed(suffix))
    (verdict,) = verify(text, tmp_path)
    assert (verdict.path, verdict.state) == (path, "same content")
    assert verdict.detail == "differs from the published file (content checked: md5 of its 22,000 bytes matches)"


def test_published_file_is_recognised_by_its_hash(text: DataSet, tmp_path: Path) -> None:
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
def test_damaged_file_is_wrong(text: DataSet, tmp_path: Path, suffix: str, damaged) -> None:
    path = put(tmp_path, f"text/text{suffix}", damaged(packed(suffix)))
    (verdict,) = verify(text, tmp_path)
    assert (verdict.path, verdict.state) == (path, "wrong")
    assert verdict.detail.startswith("WRONG: ")


def test_missing_file_is_reported_as_missing(text: DataSet, tmp_path: Path) -> None:
    assert [(verdict.path, verdict.state) for verdict in verify(text, tmp_path)] == [
        (tmp_path / "text" / "text.zip", "missing")
    ]


def test_each_file_of_an_incomplete_data_set_gets_a_verdict(tmp_path: Path) -> None:
    put(tmp_path, "mnist/train-labels-idx1-ubyte.gz", b"?")
    states = {verdict.path.name: verdict.state for verdict in verify(data_set("mnist"), tmp_path)}
    assert states["train-labels-idx1-ubyte.gz"] == "wrong"
    assert sorted(states.values()) == ["missing", "missing", "missing", "wrong"]


def test_archive_with_too_few_reviews_is_wrong(tmp_path: Path) -> None:
    path = put(tmp_path, "imdb/aclImdb.tar.gz", b"")
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("aclImdb/train/pos/0_9.txt")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"good"))
    assert [verdict.state for verdict in verify(data_set("imdb"), tmp_path)] == ["wrong"]


def test_pickle_with_code_is_wrong(tmp_path: Path) -> None:
    put(tmp_path, "music/JSB Chorales.pickle", b"cos\nsystem\n(S'false'\ntR.")
    assert [verdict.state for verdict in verify(data_set("jsb"), tmp_path)] == ["wrong"]


def chorales(counts: list[int], steps: int, total: Sequence[int] = ()) -> bytes:
    """A pickle in the original format, of one chord; the first piece of a split fills it up to its total of steps."""
    pieces = {}
    for index, count in enumerate(counts):
        more = total[index] - steps * count if total else 0
        lengths = [steps + more, *[steps] * (count - 1)]
        pieces[("train", "valid", "test")[index]] = [[(60, 64, 67)] * length for length in lengths]
    return pickle.dumps(pieces)


def test_pickle_is_verified_by_its_counts(tmp_path: Path) -> None:
    steps = data_set("piano-midi").statistics["steps"]
    put(tmp_path, "music/Piano-midi.de.pickle", chorales([87, 12, 25], 3, steps))
    (verdict,) = verify(data_set("piano-midi"), tmp_path)
    assert verdict.state == "same counts"
    assert (
        verdict.detail
        == "differs from the published file (content checked: 87/12/25 pieces, 75,911/8,540/19,036 steps)"
    )


def test_music_with_wrong_counts_is_wrong(tmp_path: Path) -> None:
    put(tmp_path, "music/Piano-midi.de.pickle", chorales([87, 12, 24], 3))
    put(tmp_path, "music/JSB Chorales.pickle", chorales([229, 76, 77], 3))
    (piano,), (jsb,) = verify(data_set("piano-midi"), tmp_path), verify(data_set("jsb"), tmp_path)
    assert (piano.state, jsb.state) == ("wrong", "wrong")
    assert "has [87, 12, 25] pieces in train, valid and test, got [87, 12, 24]" in piano.detail
    assert jsb.detail.endswith("steps in train, valid and test, got [687, 228, 231]")


def test_embedded_data_set_needs_no_files(tmp_path: Path) -> None:
    assert [verdict.state for verdict in verify(data_set("bach"), tmp_path)] == ["embedded"]
    assert fetch(data_set("bach"), tmp_path) == []


@pytest.mark.parametrize("form", ["text/text", "text/text.gz", "text"])
def test_data_set_present_in_any_form_is_not_downloaded(text: DataSet, tmp_path: Path, form: str) -> None:
    put(tmp_path, form, packed(Path(form).suffix))  # a download would fail: nothing listens at its address
    assert fetch(text, tmp_path) == []
