"""Malicious and damaged archives raise an error that names them, and write nothing."""

import gzip
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from rru import data
from rru.data.tar import tar_files
from tests.attacks.hostile import prepare
from tests.data import samples


class TestTar:
    def test_path_traversal_and_links_are_skipped_and_write_nothing(self, tmp_path):
        folder = tmp_path / "data"
        secret = samples.write(tmp_path, "secret.txt", b"secret")
        hostile = [
            ("../escaped.txt", b"escaped"),
            (str(tmp_path / "absolute.txt"), b"escaped"),
            ("aclImdb/train/pos/../../../../escaped.txt", b"escaped"),
            ("/aclImdb/train/pos/99_9.txt", b"escaped"),
        ]
        for number, kind in enumerate((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)):
            member = tarfile.TarInfo(f"aclImdb/train/pos/{900 + number}_9.txt")
            member.type, member.linkname = kind, str(secret)
            hostile.append((member, b""))
        samples.write(folder, "aclImdb_v1.tar.gz", samples.tar_bytes([*hostile, *samples.reviews(), *hostile]))
        before = sorted(tmp_path.rglob("*"))
        made = prepare("imdb", folder)
        assert sorted(tmp_path.rglob("*")) == before
        assert [len(made.arrays[f"{split}_labels"]) for split in ("train", "valid", "test")] == [16, 4, 8]
        assert not {"secret", "escaped"} & set(made.about["vocabulary"]["tokens"])

    @pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
    @pytest.mark.parametrize("packed", [True, False])
    def test_truncated(self, form, packed, tmp_path):
        content = samples.tar_bytes(samples.reviews(), packed, form)
        for share in (0.01, 0.3, 0.5, 0.7):
            samples.write(tmp_path, "aclImdb.tar.gz", content[: int(len(content) * share)])
            with pytest.raises(data.DataError, match=r"aclImdb.tar.gz"):
                prepare("imdb", tmp_path)

    def test_wrong_checksum_at_the_end_of_gzip(self, tmp_path):
        content = samples.tar_bytes(samples.reviews())
        samples.write(tmp_path, "aclImdb.tar.gz", content[:-8] + bytes((content[-8] ^ 1,)) + content[-7:])
        with pytest.raises(data.DataError, match="CRC check failed"):
            prepare("imdb", tmp_path)

    @pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    def test_long_names_are_read(self, form, tmp_path):
        names = ["a" * 90 + "/" + "b" * 90, "aclImdb/" + "c" * 200, "./short", "ü/" + "é" * 120]
        path = samples.write(
            tmp_path, "some.tar", samples.tar_bytes([(name, name.encode()) for name in names], form=form)
        )
        read = [(name, member.read(1000).decode()) for name, member in tar_files(path)]
        assert read == [(name.removeprefix("./"), name) for name in names]

    @pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
    def test_name_of_gigabytes(self, kind, tmp_path, little_memory):
        member = tarfile.TarInfo("name")
        member.type, member.size = kind, 1 << 32
        samples.write(tmp_path, "aclImdb.tar", member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
        with pytest.raises(data.DataError, match=r"at most 65536 bytes|not octal"):
            prepare("imdb", tmp_path)

    def test_sparse_file_with_a_map_of_a_million_parts(self, tmp_path, little_memory):
        sparse_map = b"1000000\n" + b"1\n" * 2_000_000
        member = tarfile.TarInfo("sparse")
        member.size = len(sparse_map)
        member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1"}
        content = samples.tar_bytes([(member, sparse_map)], form=tarfile.PAX_FORMAT)
        path = samples.write(tmp_path, "some.tar.gz", content)
        assert [name for name, _ in tar_files(path)] == ["sparse"]

    def test_review_of_megabytes(self, tmp_path, little_memory):
        members = [*samples.reviews(), ("aclImdb/train/pos/99_9.txt", b"a" * 5_000_000)]
        samples.write(tmp_path, "aclImdb.tar.gz", samples.tar_bytes(members))
        with pytest.raises(data.DataError, match=r"train/pos/99_9.txt: has more than 1048576 bytes in a review"):
            prepare("imdb", tmp_path)

    def test_same_review_twice(self, tmp_path):
        samples.write(tmp_path, "aclImdb.tar.gz", samples.tar_bytes([*samples.reviews(), *samples.reviews()]))
        with pytest.raises(data.DataError, match="same review twice"):
            prepare("imdb", tmp_path)

    def test_link_instead_of_the_treebank(self, tmp_path):
        member = tarfile.TarInfo("simple-examples/data/ptb.train.txt")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        samples.write(tmp_path, "simple-examples.tgz", samples.tar_bytes([(member, b"")]))
        with pytest.raises(data.DataError, match=r"member data/ptb.train.txt: the archive has no such member"):
            prepare("ptb-words", tmp_path)

    def test_text_that_is_not_utf8(self, tmp_path):
        members = [*samples.reviews(), ("aclImdb/train/pos/99_9.txt", b"good \xff")]
        samples.write(tmp_path, "aclImdb.tar.gz", samples.tar_bytes(members))
        with pytest.raises(data.DataError, match=r"train/pos/99_9.txt, line 1, offset 5: is not UTF-8"):
            prepare("imdb", tmp_path)


class TestCompressedText:
    @pytest.mark.parametrize("form", ["zip", "gz"])
    def test_decompression_stops_at_the_size_of_the_data_set(self, form, tmp_path):
        bomb = bytes(101_000_000)
        content = samples.zip_bytes("enwik8", bomb) if form == "zip" else gzip.compress(bomb, 1)
        samples.write(tmp_path, f"enwik8.{form}", content)
        with pytest.raises(data.DataError, match=rf"enwik8.{form}.*more .*limit of 100000000"):
            prepare("enwik8", tmp_path, verify=True)

    @pytest.mark.parametrize(("declared", "problem"), [(0xFFFFFFF0, "declares 4294967280 bytes"), (100, "")])
    def test_zip_that_declares_another_size(self, declared, problem, tmp_path, little_memory):
        content = samples.zip_bytes("text8", b"abc" * 1000)
        at = content.index(b"PK\x01\x02")
        samples.write(tmp_path, "text8.zip", content[: at + 24] + struct.pack("<I", declared) + content[at + 28 :])
        with pytest.raises(data.DataError, match=rf"text8.zip, member text8: {problem}"):
            prepare("text8", tmp_path)

    def test_zip_without_the_text(self, tmp_path):
        samples.write(tmp_path, "text8.zip", samples.zip_bytes("../text8", b"abc" * 1000))
        with pytest.raises(data.DataError, match="the archive has no such member"):
            prepare("text8", tmp_path)

    @pytest.mark.parametrize("form", ["zip", "gz"])
    def test_truncated(self, form, tmp_path):
        text = np.random.default_rng(0).bytes(10_000)
        content = samples.zip_bytes("enwik8", text) if form == "zip" else gzip.compress(text)
        for share in (0.0, 0.1, 0.5, 0.99):
            samples.write(tmp_path, f"enwik8.{form}", content[: int(share * len(content))])
            with pytest.raises(data.DataError, match=f"enwik8.{form}"):
                prepare("enwik8", tmp_path)

    def test_lzma_in_a_zip_is_rejected(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "text8.zip", "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("text8", b"abc" * 1000)
        with pytest.raises(data.DataError, match="compression must be deflate, got method 14"):
            prepare("text8", tmp_path)

    @pytest.mark.parametrize("name", ["enwik8", "enwik8.gz", "enwik8.zip", "JSB_Chorales.mat", "JSB Chorales.pickle"])
    def test_file_of_terabytes_is_rejected_before_hashing(self, name, tmp_path, little_memory):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
        of = "enwik8" if "enwik8" in name else "jsb"
        for read in (lambda: data.load(of, tmp_path), lambda: prepare(of, tmp_path)):
            with pytest.raises(data.DataError, match=f"{name}: has 1099511627776 bytes, more than"):
                read()

    def test_truncated_raw_text(self, tmp_path):
        with (tmp_path / "enwik8").open("wb") as file:
            file.truncate(50_000_000)
        with pytest.raises(data.DataError, match="is truncated or modified: has 50000000 bytes, must have 100000000"):
            prepare("enwik8", tmp_path, verify=True)
