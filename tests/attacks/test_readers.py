"""Hostile and broken files: each is answered with an error that names it; nothing is run, nothing written."""

import gzip
import os
import pickle
import struct
import tarfile
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from rru import data
from tests.attacks.hostile import prepare
from tests.data import samples

MIB = 1 << 20


@pytest.fixture
def little_memory():
    """The test may not take much memory, whatever a file promises."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 * MIB


class _Command:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


class TestPickle:
    @pytest.mark.parametrize("protocol", range(6))
    def test_one_that_would_run_a_command_runs_nothing(self, protocol, tmp_path):
        trace = tmp_path / "trace"
        content = pickle.dumps({"train": [], "valid": [], "test": _Command(f"touch {trace}")}, protocol)
        samples.write(tmp_path, "JSB Chorales.pickle", content)
        with pytest.raises(data.DataError, match=r"JSB Chorales.pickle, offset \d+: \w+ is refused"):
            prepare("jsb", tmp_path)
        assert not trace.exists()
        pickle.loads(content)  # it would have
        assert trace.exists()

    @pytest.mark.parametrize(
        "value",
        [np.int64(60), None, {1, 2}, b"bytes", bytearray(3), 1j, range(3), True],
        ids=lambda value: type(value).__name__,
    )
    def test_nothing_but_lists_tuples_dicts_strings_and_numbers(self, value, tmp_path):
        samples.write(tmp_path, "Nottingham.pickle", pickle.dumps({"train": [[[value]]], "valid": [], "test": []}, 4))
        with pytest.raises(data.DataError, match=r"Nottingham.pickle"):
            prepare("nottingham", tmp_path)

    @pytest.mark.parametrize(
        "content",
        [
            *(
                b"",
                b".",
                b"N.",
                b"]",
                b"a.",
                b"u.",
                b"t.",
                b"(.",
                b"\x80\x02",
                b"cos\nsystem\n.",
                b"g7\n.",
                b"(1",
                b"}(u0.",
            ),
            *(
                b"\x8a\xff",
                b"\x8b\xff\xff\xff\x7f",
                b"X\xff\xff\xff\xff",
                b"\x8d" + b"\xff" * 8,
                b"I1_0\n.",
                b"I" + b"9" * 9999 + b"\n.",
            ),
            *(
                b"](e",
                b"\x85.",
                b"I1\n\x86.",
                b"I1\nI2\na.",
                b"}I1\nI2\ns.",
                b"S'open\n.",
                b"\x95" + b"\xff" * 8 + b"].",
            ),
        ],
    )
    def test_broken_ones(self, content, tmp_path):
        samples.write(tmp_path, "MuseData.pickle", content)
        with pytest.raises(data.DataError, match=r"MuseData.pickle"):
            prepare("musedata", tmp_path)

    def test_lists_that_name_each_other_do_not_multiply(self, tmp_path, little_memory):
        notes = [60] * 1000
        pieces = [[notes] * 1000] * 1000  # a billion notes in a few kilobytes
        content = pickle.dumps({"train": pieces, "valid": [], "test": []}, 2)
        assert len(content) < 20_000
        samples.write(tmp_path, "MuseData.pickle", content)
        with pytest.raises(data.DataError, match="holds more than"):
            prepare("musedata", tmp_path)

    def test_a_list_within_itself(self, tmp_path):
        loop: list = []
        loop.append(loop)
        samples.write(tmp_path, "MuseData.pickle", pickle.dumps({"train": loop, "valid": loop, "test": loop}, 2))
        with pytest.raises(data.DataError, match="a note must be a number from 21 to 108, got list"):
            prepare("musedata", tmp_path)


class TestTar:
    def test_names_that_climb_and_links_write_nothing_and_are_passed_over(self, tmp_path):
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
    def test_cut_anywhere(self, form, packed, tmp_path):
        content = samples.tar_bytes(samples.reviews(), packed, form)
        for share in (0.01, 0.3, 0.5, 0.7):
            samples.write(tmp_path, "aclImdb.tar.gz", content[: int(len(content) * share)])
            with pytest.raises(data.DataError, match=r"aclImdb.tar.gz"):
                prepare("imdb", tmp_path)

    @pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
    def test_a_name_of_gigabytes(self, kind, tmp_path, little_memory):
        member = tarfile.TarInfo("name")
        member.type, member.size = kind, 1 << 32
        samples.write(tmp_path, "aclImdb.tar", member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
        with pytest.raises(data.DataError, match=r"at most 65536 are allowed|not octal"):
            prepare("imdb", tmp_path)

    def test_a_review_of_megabytes(self, tmp_path, little_memory):
        members = [*samples.reviews(), ("aclImdb/train/pos/99_9.txt", b"a" * 5_000_000)]
        samples.write(tmp_path, "aclImdb.tar.gz", samples.tar_bytes(members))
        with pytest.raises(data.DataError, match=r"train/pos/99_9.txt: holds more than 1048576 bytes in a review"):
            prepare("imdb", tmp_path)

    def test_the_same_review_twice(self, tmp_path):
        samples.write(tmp_path, "aclImdb.tar.gz", samples.tar_bytes([*samples.reviews(), *samples.reviews()]))
        with pytest.raises(data.DataError, match="same review twice"):
            prepare("imdb", tmp_path)

    def test_the_treebank_as_a_link(self, tmp_path):
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


class TestPackedText:
    @pytest.mark.parametrize("form", ["zip", "gz"])
    def test_a_bomb_is_cut_off_at_the_size_of_the_set(self, form, tmp_path):
        bomb = bytes(101_000_000)
        content = samples.zip_bytes("enwik8", bomb) if form == "zip" else gzip.compress(bomb, 1)
        samples.write(tmp_path, f"enwik8.{form}", content)
        with pytest.raises(data.DataError, match=rf"enwik8.{form}.*more than the 100000000"):
            prepare("enwik8", tmp_path, verify=True)

    def test_a_zip_that_promises_terabytes(self, tmp_path, little_memory):
        content = samples.zip_bytes("text8", b"abc" * 100)
        at = content.index(b"PK\x01\x02")
        samples.write(tmp_path, "text8.zip", content[: at + 24] + struct.pack("<I", 0xFFFFFFF0) + content[at + 28 :])
        with pytest.raises(data.DataError, match=r"text8.zip, member text8: promises 4294967280 bytes"):
            prepare("text8", tmp_path)

    def test_a_zip_that_promises_less_than_it_holds(self, tmp_path):
        content = samples.zip_bytes("text8", b"abc" * 1000)
        at = content.index(b"PK\x01\x02")
        samples.write(tmp_path, "text8.zip", content[: at + 24] + struct.pack("<I", 100) + content[at + 28 :])
        with pytest.raises(data.DataError, match=r"text8.zip, member text8"):
            prepare("text8", tmp_path)

    def test_a_zip_without_the_text(self, tmp_path):
        samples.write(tmp_path, "text8.zip", samples.zip_bytes("../text8", b"abc" * 1000))
        with pytest.raises(data.DataError, match="the archive has no such member"):
            prepare("text8", tmp_path)

    @pytest.mark.parametrize("form", ["zip", "gz"])
    @pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
    def test_cut(self, form, share, tmp_path):
        text = np.random.default_rng(0).bytes(10_000)
        content = samples.zip_bytes("enwik8", text) if form == "zip" else gzip.compress(text)
        samples.write(tmp_path, f"enwik8.{form}", content[: int(share * len(content))])
        with pytest.raises(data.DataError, match=f"enwik8.{form}"):
            prepare("enwik8", tmp_path)

    def test_a_zip_packed_in_a_way_that_may_ask_for_any_memory(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "text8.zip", "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("text8", b"abc" * 1000)
        with pytest.raises(data.DataError, match="is packed by method 14, only deflate is read"):
            prepare("text8", tmp_path)

    @pytest.mark.parametrize("name", ["enwik8", "enwik8.gz", "enwik8.zip", "JSB_Chorales.mat", "JSB Chorales.pickle"])
    def test_a_file_of_terabytes_is_not_even_hashed(self, name, tmp_path, little_memory):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
        of = "enwik8" if "enwik8" in name else "jsb"
        for read in (lambda: data.load(of, tmp_path), lambda: prepare(of, tmp_path)):
            with pytest.raises(data.DataError, match=f"{name}: has 1099511627776 bytes, more than"):
                read()

    def test_raw_text_cut_in_half(self, tmp_path):
        with (tmp_path / "enwik8").open("wb") as file:
            file.truncate(50_000_000)
        with pytest.raises(data.DataError, match="is cut or changed: sha256 of its 50000000 bytes"):
            prepare("enwik8", tmp_path, verify=True)


class TestTreebank:
    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "is empty"),
            (b" \n \n", "no words"),
            (b" the cat \n sat \xc3\x28 \n", "line 2, offset 15: is not UTF-8"),
        ],
    )
    def test_a_text_that_is_none(self, content, reason, tmp_path):
        for split in ("train", "valid", "test"):
            samples.write(tmp_path, f"ptb.{split}.txt", content if split == "valid" else b" the cat \n")
        with pytest.raises(data.DataError, match=rf"ptb.valid.txt.*{reason}"):
            prepare("ptb-words", tmp_path)


class TestIdx:
    @pytest.fixture
    def mnist(self, tmp_path):
        images, labels = samples.digits(3)
        for stem in ("train", "t10k"):
            samples.write(tmp_path, f"{stem}-images-idx3-ubyte", samples.idx_bytes(images))
            samples.write(tmp_path, f"{stem}-labels-idx1-ubyte", samples.idx_bytes(labels))
        return tmp_path

    def _fails(self, folder, content, reason):
        (folder / "train-images-idx3-ubyte").unlink()
        for name, given in (
            ("train-images-idx3-ubyte.gz", gzip.compress(content)),
            ("train-images-idx3-ubyte", content),
        ):
            samples.write(folder, name, given)
            with pytest.raises(data.DataError, match=rf"{name}.*{reason}"):
                prepare("mnist", folder)

    @pytest.mark.parametrize("count", [4, 300_000, 2**31, 2**32 - 1])
    def test_more_images_promised_than_there_are(self, count, mnist, little_memory):
        header = bytes((0, 0, 8, 3)) + struct.pack(">3I", count, 28, 28)
        self._fails(mnist, header + bytes(3 * 784), "promises")

    def test_sizes_that_would_overflow(self, mnist, little_memory):
        header = bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**31, 2**31, 4)
        self._fails(mnist, header, r"items must have shape \(28, 28\)")

    @pytest.mark.parametrize("magic", [b"\x00\x00\x08\x01", b"\x00\x00\x0d\x03", b"\x89PNG", b"<htm"])
    def test_another_magic_number(self, magic, mnist):
        self._fails(
            mnist, magic + struct.pack(">3I", 3, 28, 28) + bytes(3 * 784), "offset 0: magic number must be 00000803"
        )

    def test_cut_empty_or_longer(self, mnist):
        content = (mnist / "train-images-idx3-ubyte").read_bytes()
        self._fails(mnist, content[: len(content) // 2], "header promises 2352 bytes, the file has 1168")
        self._fails(mnist, content + b"-", "header promises 2352 bytes, the file has more")
        self._fails(mnist, content[:7], "header ends after 7 bytes")
        self._fails(mnist, b"", "magic number")

    def test_a_folder_or_pipe_of_that_name_is_not_a_file(self, mnist):
        (mnist / "train-images-idx3-ubyte").unlink()
        os.mkfifo(mnist / "train-images-idx3-ubyte")
        with pytest.raises(data.MissingData):
            prepare("mnist", mnist)


def _element(kind, content):
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def _matrix(kind, shape, content, name=b"", flags=0):
    dims = struct.pack(f"<{len(shape)}i", *shape)
    header = _element(6, struct.pack("<II", kind | flags, 0)) + _element(5, dims) + _element(1, name)
    return _element(14, header + content)


def _mat(content, name=b"traindata", shape=(1, 1)):
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + _matrix(1, shape, content, name)


class TestMat:
    def _fails(self, folder, content, reason=""):
        samples.write(folder, "JSB_Chorales.mat", content)
        with pytest.raises(data.DataError, match=rf"JSB_Chorales.mat.*{reason}"):
            prepare("jsb", folder)

    @pytest.mark.parametrize("compressed", [True, False])
    def test_cut(self, compressed, tmp_path):
        content = samples.mat_bytes(samples.pieces(), compressed=compressed)
        self._fails(tmp_path, content[: len(content) // 2])
        self._fails(tmp_path, content[:-1], "bytes are left|promises|early")
        self._fails(tmp_path, content[:64], "is not a MATLAB 5 file")
        self._fails(tmp_path, b"", "is empty")

    def test_wrong_magic(self, tmp_path):
        self._fails(tmp_path, b"\x89HDF\r\n\x1a\n" + bytes(500), "offset 0")
        self._fails(tmp_path, b"MATLAB 7.3 MAT-file".ljust(126) + b"XX", "is not a MATLAB 5 file")

    def test_a_bomb(self, tmp_path):
        packed = zlib.compress(bytes((1 << 28) + 100), 1)
        content = _mat(b"")[:128] + struct.pack("<II", 15, len(packed)) + packed
        self._fails(tmp_path, content, "holds more than 268435456 bytes, unpacked")

    @pytest.mark.parametrize("shape", [(2**31 - 1, 2**31 - 1), (2**16, 88), (-1, 88), (3, 88, 1)])
    def test_dimensions_that_promise_more_than_there_is(self, shape, tmp_path, little_memory):
        self._fails(tmp_path, _mat(_matrix(9, shape, _element(2, bytes(88)))))
        self._fails(tmp_path, _mat(_matrix(9, (1, 88), _element(2, bytes(88))), shape=shape))

    @pytest.mark.parametrize("kind", [1, 2, 3, 4, 5, 16, 17])
    def test_cells_of_anything_but_numbers(self, kind, tmp_path):
        self._fails(tmp_path, _mat(_matrix(kind, (1, 88), _element(2, bytes(88)))), "must be a matrix of numbers")

    def test_cells_within_cells_within_cells(self, tmp_path):
        content = _matrix(9, (1, 88), _element(2, bytes(88)))
        for _ in range(2000):
            content = _matrix(1, (1, 1), content)
        self._fails(tmp_path, _mat(content), "must be a matrix of numbers")

    def test_complex_numbers_unknown_types_and_other_values(self, tmp_path):
        number = _element(2, bytes(88))
        self._fails(tmp_path, _mat(_matrix(9, (1, 88), number, flags=0x0800)), "complex")
        self._fails(tmp_path, _mat(_matrix(9, (1, 88), _element(99, bytes(88)))), "unknown type 99")
        self._fails(tmp_path, samples.mat_bytes([[np.full((2, 88), 7)], [], []]), "keys must be 0 or 1")
        self._fails(
            tmp_path, samples.mat_bytes([[np.full((2, 88), np.nan)], [], []], np.float64), "keys must be 0 or 1"
        )
        self._fails(tmp_path, samples.mat_bytes([[np.ones((2, 87))], [], []]), "must have 88 keys")

    def test_the_right_file_passes(self, tmp_path):
        samples.write(tmp_path, "JSB_Chorales.mat", samples.mat_bytes(samples.pieces()))
        assert prepare("jsb", tmp_path).arrays["train_offsets"][-1] > 0
