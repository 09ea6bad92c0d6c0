"""Malicious and damaged files raise an error that names them, run no code and write nothing."""

import gzip
import os
import pickle
import struct
import zlib

import numpy as np
import pytest

from rru import data
from tests.attacks.hostile import prepare
from tests.data import samples


class _Command:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


class TestPickle:
    @pytest.mark.parametrize("protocol", [0, 2, 4])
    def test_command_is_not_run(self, protocol, tmp_path):
        trace = tmp_path / "trace"
        content = pickle.dumps({"train": [], "valid": [], "test": _Command(f"touch {trace}")}, protocol)
        samples.write(tmp_path, "JSB Chorales.pickle", content)
        with pytest.raises(data.DataError, match=r"JSB Chorales.pickle, offset \d+: \w+ is not allowed"):
            prepare("jsb", tmp_path)
        assert not trace.exists()
        pickle.loads(content)  # unpickling does run it
        assert trace.exists()

    @pytest.mark.parametrize(
        "value",
        [np.int64(60), None, {1, 2}, b"bytes", bytearray(3), 1j, range(3), True],
        ids=lambda value: type(value).__name__,
    )
    def test_other_types_are_rejected(self, value, tmp_path):
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
    def test_malformed_pickles(self, content, tmp_path):
        samples.write(tmp_path, "MuseData.pickle", content)
        with pytest.raises(data.DataError, match=r"MuseData.pickle"):
            prepare("musedata", tmp_path)

    def test_shared_lists_do_not_multiply(self, tmp_path, little_memory):
        notes = [60] * 1000
        pieces = [[notes] * 1000] * 1000  # a billion notes in a few kilobytes
        content = pickle.dumps({"train": pieces, "valid": [], "test": []}, 2)
        assert len(content) < 20_000
        samples.write(tmp_path, "MuseData.pickle", content)
        with pytest.raises(data.DataError, match="has more than 2000000 steps or 20000000 notes"):
            prepare("musedata", tmp_path)

    @pytest.mark.parametrize("content", [b"]", b"}", b"K\x01\x85", b"U\x02ab", b"M\xff\xff", b"]\x94"])
    def test_too_many_objects(self, content, tmp_path, monkeypatch):
        monkeypatch.setattr("rru.data.pickles.OBJECT_LIMIT", 50_000)
        samples.write(tmp_path, "MuseData.pickle", b"\x80\x04" + content * 60_000 + b".")
        with pytest.raises(data.DataError, match="more than 50000 objects"):
            prepare("musedata", tmp_path)

    def test_list_that_contains_itself(self, tmp_path):
        loop: list = []
        loop.append(loop)
        samples.write(tmp_path, "MuseData.pickle", pickle.dumps({"train": loop, "valid": loop, "test": loop}, 2))
        with pytest.raises(data.DataError, match="notes must be whole numbers from 21 to 108, got list"):
            prepare("musedata", tmp_path)


class TestTreebank:
    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "is empty"),
            (b" \n \n", "must have at least one word"),
            (b" the cat \n sat \xc3\x28 \n", "line 2, offset 15: is not UTF-8"),
        ],
    )
    def test_invalid_text(self, content, reason, tmp_path):
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
    def test_header_declares_too_many_images(self, count, mnist, little_memory):
        header = bytes((0, 0, 8, 3)) + struct.pack(">3I", count, 28, 28)
        self._fails(mnist, header + bytes(3 * 784), "declares")

    def test_sizes_that_overflow(self, mnist, little_memory):
        header = bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**31, 2**31, 4)
        self._fails(mnist, header, r"items must have shape \(28, 28\)")

    @pytest.mark.parametrize("magic", [b"\x00\x00\x08\x01", b"\x00\x00\x0d\x03", b"\x89PNG", b"<htm"])
    def test_wrong_magic_number(self, magic, mnist):
        self._fails(
            mnist, magic + struct.pack(">3I", 3, 28, 28) + bytes(3 * 784), "offset 0: magic number must be 00000803"
        )

    def test_truncated_empty_or_too_long(self, mnist):
        content = (mnist / "train-images-idx3-ubyte").read_bytes()
        self._fails(mnist, content[: len(content) // 2], "header declares 2352 bytes, file has 1168")
        self._fails(mnist, content + b"-", "header declares 2352 bytes, file has more")
        self._fails(mnist, content[:7], "header ends after 7 bytes")
        self._fails(mnist, b"", "magic number")

    def test_pipe_is_not_a_file(self, mnist):
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
    def test_truncated(self, compressed, tmp_path):
        content = samples.mat_bytes(samples.pieces(), compressed=compressed)
        self._fails(tmp_path, content[: len(content) // 2])
        self._fails(tmp_path, content[:-1], "remain|truncated")
        self._fails(tmp_path, content[:64], "is not a MATLAB 5 file")
        self._fails(tmp_path, b"", "is empty")

    def test_wrong_magic(self, tmp_path):
        self._fails(tmp_path, b"\x89HDF\r\n\x1a\n" + bytes(500), "offset 0")
        self._fails(tmp_path, b"MATLAB 7.3 MAT-file".ljust(126) + b"XX", "is not a MATLAB 5 file")

    def test_decompression_bomb(self, tmp_path):
        packed = zlib.compress(bytes((1 << 28) + 100), 1)
        content = _mat(b"")[:128] + struct.pack("<II", 15, len(packed)) + packed
        self._fails(tmp_path, content, "has more than the 8 bytes it declares")

    @pytest.mark.parametrize("shape", [(2**31 - 1, 2**31 - 1), (2**16, 88), (-1, 88), (3, 88, 1)])
    def test_dimensions_larger_than_the_file(self, shape, tmp_path, little_memory):
        self._fails(tmp_path, _mat(_matrix(9, shape, _element(2, bytes(88)))))
        self._fails(tmp_path, _mat(_matrix(9, (1, 88), _element(2, bytes(88))), shape=shape))

    @pytest.mark.parametrize("kind", [1, 2, 4, 17])
    def test_cells_that_are_not_numeric(self, kind, tmp_path):
        self._fails(tmp_path, _mat(_matrix(kind, (1, 88), _element(2, bytes(88)))), "must be a numeric matrix")

    def test_deeply_nested_cells(self, tmp_path):
        content = _matrix(9, (1, 88), _element(2, bytes(88)))
        for _ in range(2000):
            content = _matrix(1, (1, 1), content)
        self._fails(tmp_path, _mat(content), "must be a numeric matrix")

    def test_complex_numbers_unknown_types_and_other_values(self, tmp_path):
        number = _element(2, bytes(88))
        self._fails(tmp_path, _mat(_matrix(9, (1, 88), number, flags=0x0800)), "complex")
        self._fails(tmp_path, _mat(_matrix(9, (1, 88), _element(99, bytes(88)))), "unknown number type 99")
        self._fails(tmp_path, samples.mat_bytes([[np.full((2, 88), 7)], [], []]), "keys must be 0 or 1")
        self._fails(
            tmp_path, samples.mat_bytes([[np.full((2, 88), np.nan)], [], []], np.float64), "keys must be 0 or 1"
        )
        self._fails(tmp_path, samples.mat_bytes([[np.ones((2, 87))], [], []]), "must have 88 keys")

    def test_valid_file_is_read(self, tmp_path):
        samples.write(tmp_path, "JSB_Chorales.mat", samples.mat_bytes(samples.pieces()))
        assert prepare("jsb", tmp_path).arrays["train_offsets"][-1] > 0
