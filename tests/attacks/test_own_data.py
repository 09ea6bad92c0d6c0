"""Hostile own data is rejected with little memory and time; one bad file does not hide the others."""

import os
import struct
import sys
import zipfile

import numpy as np
import pytest

from rru import data
from rru.data.own import OwnData, midi, text
from rru.data.own.table import read_table
from tests.attacks.measured import refused
from tests.attacks.test_midi import OFF, ON, file

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")


def _music(folder):
    return OwnData("music", folder, {})


def _piece(number):
    return file(*[ON, OFF] * (4 + number))


@pytest.fixture
def folder(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.mid").write_bytes(_piece(number))
    return tmp_path


class TestMusic:
    def test_a_damaged_archive_is_skipped_and_named(self, folder):
        with zipfile.ZipFile(folder / "bad.zip", "w") as archive:
            archive.writestr("a.mid", _piece(9))
        content = bytearray((folder / "bad.zip").read_bytes())
        content[45] ^= 0xFF  # in the member: its checksum does not fit
        (folder / "bad.zip").write_bytes(content)
        prepared = midi.prepare(_music(folder))
        assert sum(prepared.about["statistics"]["pieces"]) == 4
        assert any("bad.zip" in note for note in prepared.about["notes"])

    def test_pipes_and_links_are_left_out(self, folder):
        os.mkfifo(folder / "pipe.mid")
        (folder / "link.mid").symlink_to("/dev/zero")
        assert sum(midi.prepare(_music(folder)).about["statistics"]["pieces"]) == 4

    def test_members_that_share_their_content_are_counted_each(self, folder, monkeypatch):
        monkeypatch.setattr(midi, "ZIP_LIMIT", 4000)
        with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(20):
                archive.writestr(f"{number}.mid", bytes(1000))
        notes = midi.prepare(_music(folder)).about["notes"]
        assert any("more than 4000 bytes once unpacked" in note for note in notes) or "more files" in notes[-1]


@linux
class TestTables:
    def test_rows_of_millions_of_fields(self, tmp_path):
        (tmp_path / "wide.csv").write_bytes(b"a,b\n" + (b"1," * 1_500_000 + b"\n") * 12)
        message = refused(lambda: read_table(tmp_path / "wide.csv"), data.DataError)
        assert "line 2" in message
        assert "1500001 fields" in message

    def test_a_sample_of_huge_lines(self, tmp_path):
        (tmp_path / "long.csv").write_bytes((b"\xf0\x9f\x98\x80" + b"x" * 3_500_000 + b"\n") * 50)
        refused(lambda: read_table(tmp_path / "long.csv"), data.DataError)

    def test_a_sparse_file(self, tmp_path):
        (tmp_path / "sparse.csv").touch()
        os.truncate(tmp_path / "sparse.csv", 3 << 30)
        assert "binary" in refused(lambda: read_table(tmp_path / "sparse.csv"), data.DataError)

    def test_a_quote_that_never_ends(self, tmp_path):
        (tmp_path / "quote.csv").write_bytes(b'a,b\n1,"' + b"x\n" * 5_000_000)
        refused(lambda: read_table(tmp_path / "quote.csv"), data.DataError)


@linux
class TestParquet:
    """A small file can hold one text a million times, or millions of zeros."""

    @pytest.fixture
    def write(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        def write(column, **options):
            parquet.write_table(pa.table({"a": column}), tmp_path / "some.parquet", **options)
            return tmp_path / "some.parquet"

        return write

    def test_one_text_many_times(self, write):
        import pyarrow as pa

        many = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4000, np.int32)), pa.array(["x" * 1_000_000]))
        assert "bytes of text" in refused(lambda: read_table(write(many)), data.DataError)

    def test_long_texts_that_compress_well(self, write):
        path = write(["a" * 1_000_000 + str(number) for number in range(150)], use_dictionary=False, compression="zstd")
        assert "bytes of text" in refused(lambda: read_table(path), data.DataError)

    def test_more_cells_than_are_read(self, write):
        path = write(np.zeros(61_000_000, np.int8))
        assert "more than 60,000,000 cells" in refused(lambda: read_table(path), data.DataError)

    def test_texts_of_every_kind_are_read(self, write):
        import pyarrow as pa

        texts = [" one", "two ", None, "one"]
        plain = pa.array(texts)
        for column in (plain, plain.cast(pa.large_string()), plain.dictionary_encode()):
            assert read_table(write(column))["a"].texts() == ["one", "two", "", "one"]


@linux
class TestText:
    @pytest.mark.parametrize(
        "content", [b"x" * (20 << 20), bytes(20 << 20), b"a\xff" * (10 << 20)], ids=["x", "0", "a"]
    )
    def test_binary_file_is_rejected(self, content, tmp_path):
        (tmp_path / "text.txt").write_bytes(content)
        own = OwnData("words", tmp_path / "text.txt", {"tokenizer": "spaces"})
        refused(lambda: text.prepare_words(own), data.DataError)


@linux
def test_a_name_that_is_not_text_is_refused(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.txt")
    with open(path, "w") as file:
        file.write("some words " * 100)
    with pytest.raises(data.DataError, match="must have a name in UTF-8"):
        data.from_path(path)


def test_struct_is_not_a_table(tmp_path):
    (tmp_path / "table.csv").write_bytes(struct.pack("<100d", *range(100)))
    with pytest.raises(data.DataError, match="binary"):
        read_table(tmp_path / "table.csv")
