"""Files that would take much memory or time are rejected cheaply: sizes are checked before content."""

import hashlib
import json
import os
import random
import re
import struct
import sys
import zlib
from pathlib import Path

import pytest

from rru import data
from rru.data.verify import verify
from rru.experiments.search.journal import LIMIT as journal_limit
from rru.experiments.search.proposals import Proposals
from rru.files import FileError
from rru.inference.loading import load
from rru.report.gather import gather
from rru.settings.ranges import Range
from rru.training import Run
from rru.training.checkpoint import MODEL, pack, read_checkpoint
from rru.training.run_files import ABOUT_LIMIT, about_data
from tests.attacks.hostile import prepare
from tests.attacks.measured import refused
from tests.data import samples
from tests.report.samples import preset, write_run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
HUGE = 5 << 30


def _element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def _mat(content: bytes, compressed: bool = True) -> bytes:
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x100) + b"IM"
    if not compressed:
        return head + content
    packed = zlib.compress(content, 9)
    return head + struct.pack("<II", 15, len(packed)) + packed


def _cells(count: int) -> bytes:
    header = (
        _element(6, struct.pack("<II", 1, 0)) + _element(5, struct.pack("<ii", 1, count)) + _element(1, b"traindata")
    )
    return _element(14, header + struct.pack("<II", 14, 0) * count)


class TestMat:
    def test_millions_of_tiny_cells(self, tmp_path):
        (tmp_path / "JSB_Chorales.mat").write_bytes(_mat(_cells(4_800_000)))
        message = refused(lambda: prepare("jsb", tmp_path), data.DataError)
        assert "declares 4800000 cells, more than the limit" in message

    def test_a_bomb(self, tmp_path):
        content = struct.pack("<II", 14, 300 << 20)
        packer = zlib.compressobj(9)
        packed = packer.compress(content)
        for _ in range(300):
            packed += packer.compress(bytes(1 << 20))
        packed += packer.flush()
        (tmp_path / "JSB_Chorales.mat").write_bytes(_mat(b"", False) + struct.pack("<II", 15, len(packed)) + packed)
        assert "decompressed" in refused(lambda: prepare("jsb", tmp_path), data.DataError)

    def test_more_than_is_declared(self, tmp_path):
        packed = zlib.compress(struct.pack("<II", 14, 8) + bytes(200 << 20), 9)
        (tmp_path / "JSB_Chorales.mat").write_bytes(_mat(b"", False) + struct.pack("<II", 15, len(packed)) + packed)
        assert "more than the 16 bytes it declares" in refused(lambda: prepare("jsb", tmp_path), data.DataError)


class TestReviews:
    def test_words_that_are_all_different(self, tmp_path):
        draw = random.Random(0)
        texts = [" ".join(f"{draw.getrandbits(36):x}" for _ in range(20_000)).encode() for _ in range(8)]
        members = [(f"aclImdb/train/pos/{number}_9.txt", texts[number % 8] + b" %d" % number) for number in range(60)]
        many = [(name, bytes(text.replace(b" ", b" %x" % at))) for at, (name, text) in enumerate(members)]
        samples.write(tmp_path, "aclImdb.tar", samples.tar_bytes(many, packed=False))
        assert "different ones" in refused(lambda: prepare("imdb", tmp_path), data.DataError)

    def test_a_sparse_archive(self, tmp_path):
        (tmp_path / "aclImdb.tar").touch()
        os.truncate(tmp_path / "aclImdb.tar", HUGE)
        assert "more than the limit" in refused(lambda: prepare("imdb", tmp_path), data.DataError)


class TestZip:
    @pytest.mark.parametrize("zip64", [False, True])
    def test_an_archive_that_is_all_list_of_members(self, zip64, tmp_path):
        entry = b"PK\1\2" + bytes(24) + struct.pack("<HHHHHII", 1, 0, 0, 0, 0, 0, 0) + b"a"
        listed = entry * 1_000_000
        locator = b""
        if zip64:
            end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 10**6, 10**6, len(listed), 0)
            locator = end + struct.pack("<4sLQL", b"PK\6\7", 0, len(listed), 1)
        end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF if zip64 else len(listed), 0, 0)
        samples.write(tmp_path, "text8.zip", listed + locator + end)
        assert "list of members" in refused(lambda: prepare("text8", tmp_path), data.DataError)


class TestVerify:
    @pytest.mark.parametrize("name", ["enwik8", "enwik8.gz", "enwik8.zip"])
    def test_a_sparse_file_of_a_hundred_gigabytes(self, name, tmp_path):
        (tmp_path / "enwik8").mkdir()
        path = tmp_path / "enwik8" / name
        path.touch()
        os.truncate(path, 100 << 30)

        def check():
            for verdict in verify(data.data_set("enwik8"), tmp_path):
                raise data.DataError(verdict.path, f"{verdict.state}: {verdict.detail}")

        assert "wrong" in refused(check, data.DataError) or name != "enwik8"


class TestPickle:
    @pytest.mark.parametrize("filler", [b"h\0", b"K\1", b"]", b"(", b")", b"M\1\1"], ids=repr)
    def test_opcodes_without_end(self, filler, tmp_path):
        content = b"\x80\x02]q\0(" + filler * ((4 << 20) // len(filler))
        samples.write(tmp_path, "JSB Chorales.pickle", content)
        refused(lambda: prepare("jsb", tmp_path), data.DataError)


class TestStudy:
    @pytest.mark.parametrize("more", [0, 1])
    def test_a_journal_of_the_largest_size(self, more, tmp_path):
        ranges = {"optimiser.lr": Range(1e-4, 1e-2, True)}
        Proposals(tmp_path, ranges, 0, False).extend(3)
        journal = tmp_path / "study.journal"
        begin = b'{"op_code":2,"worker_id":"a","study_id":0,"user_attr":{"a":['
        room = journal_limit - journal.stat().st_size - len(begin) - 100
        with journal.open("ab") as file:
            file.write(begin + b"[]," * (room // 3 + 100 * more) + b"0]}}\n")

        def read():
            raise FileError(f"{len(Proposals(tmp_path, ranges, 0, False).trials())} trials")

        assert refused(read, FileError).endswith(f"at most {journal_limit} are allowed" if more else "3 trials")


class TestRunFolder:
    @pytest.fixture
    def folder(self, tmp_path):
        return write_run(tmp_path / "runs", preset())

    @pytest.mark.parametrize("name", ["metrics.jsonl", "config.toml", "env.json", "result.json"])
    def test_a_sparse_file(self, folder, name):
        os.truncate(folder / name, 3 << 30)

        def read():
            (run,) = gather([folder])
            raise FileError("; ".join(run.problems))

        assert f"{name}: has {3 << 30} bytes; at most" in refused(read, FileError)

    @pytest.mark.parametrize("line", [b'{"kind": "epoch", "epoch": 1}\n', b"{}\n", b"[[\n"], ids=repr)
    def test_metrics_that_are_full_of_short_lines(self, folder, line):
        (folder / "metrics.jsonl").write_bytes(line * ((20 << 20) // len(line)))

        def read():
            (run,) = gather([folder])
            raise FileError("; ".join(run.problems))

        refused(read, FileError)

    def test_weights_of_gigabytes_are_not_read(self, folder):
        best = folder / "best" / "epoch-0003"
        best.mkdir(parents=True)
        header = json.dumps({"w": {"dtype": "F32", "shape": [HUGE // 4], "data_offsets": [0, HUGE]}}).encode()
        (best / MODEL).write_bytes(struct.pack("<Q", len(header)) + header)
        size = 8 + len(header) + HUGE
        os.truncate(best / MODEL, size)
        (best / "manifest.json").write_text(json.dumps({MODEL: {"bytes": size, "sha256": "0" * 64}}))
        assert "weights do not fit its settings" in refused(lambda: load(folder), FileError)

    def test_a_checkpoint_of_gigabytes_is_not_read(self, tmp_path):
        import torch

        model = {"w": torch.zeros(3)}
        for name in (MODEL, "state.safetensors"):
            (tmp_path / name).write_bytes(pack(model))
        os.truncate(tmp_path / "state.safetensors", HUGE)
        (tmp_path / "state.json").write_text("{}")
        known = {
            path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(b"").hexdigest()}
            for path in tmp_path.iterdir()
        }
        (tmp_path / "manifest.json").write_text(json.dumps(known))
        assert "fit this model" in refused(lambda: read_checkpoint(tmp_path, model), FileError)
        assert "but its header needs" in refused(lambda: read_checkpoint(tmp_path), FileError)

    def test_pipe_does_not_block(self, folder):
        os.mkfifo(folder / "vocabulary.json")
        (folder / "best" / "epoch-0003").mkdir(parents=True)
        assert "vocabulary.json: must be a file" in refused(lambda: load(folder), data.DataError, FileError)

    @pytest.mark.parametrize("filler", ["[]", "{}", '"%x"', '"a"', '"a,b"'])
    def test_a_vocabulary(self, folder, filler):
        (folder / "best" / "epoch-0003").mkdir(parents=True)
        for size in (10 << 20, 60 << 20):
            tokens = ",".join(filler % number if "%" in filler else filler for number in range(size // 9))
            fields = f'"kind": "words", "padding": 0, "unknown": 1, "tokens": [{tokens}]'
            (folder / "vocabulary.json").write_text(f"{{{fields}}}")
            refused(lambda: load(folder), data.DataError, FileError)

    @pytest.mark.parametrize("filler", [b"[]", b'"w":{}'])
    def test_the_header_of_weights(self, folder, filler):
        best = folder / "best" / "epoch-0003"
        best.mkdir(parents=True)
        header = b'{"a":[' + b"[]," * (5 << 20) + b"0]}" if filler == b"[]" else b"{" + filler + b"," + filler + b"}"
        (best / MODEL).write_bytes(struct.pack("<Q", len(header)) + header)
        size = 8 + len(header)
        (best / "manifest.json").write_text(json.dumps({MODEL: {"bytes": size, "sha256": "0" * 64}}))
        assert "is not a safetensors file" in refused(lambda: load(folder), FileError)

    @pytest.mark.parametrize("filler", ["{}", "[]", '"a"', "0"])
    def test_facts_about_data(self, folder, filler):
        """The largest data.json that is read takes little memory, whatever its content; a larger one is not read."""

        def read():
            raise FileError(f"{len(about_data(folder)['x'])} were read")

        sizes = {2_900_000: "were read", ABOUT_LIMIT - 100: "more than", ABOUT_LIMIT: f"at most {ABOUT_LIMIT} are"}
        for size, message in sizes.items():
            many = size // (len(filler) + 1)
            (folder / "data.json").write_text(f'{{"x": [{f"{filler}," * many}{filler}]}}')
            assert re.search(message, refused(read, FileError))

    def test_a_long_name_in_facts_about_data(self, folder):
        def read():
            raise FileError(f"{len(about_data(folder)['x'])} were read")

        (folder / "data.json").write_text('{"x": "\N{MUSICAL SYMBOL G CLEF}' + "a" * (ABOUT_LIMIT - 100) + '"}')
        assert "were read" in refused(read, FileError)

    def test_more_layers_than_can_be_built(self, folder):
        path = Path(folder / "config.toml")
        path.write_text(path.read_text().replace("num_layers = 1\n", "num_layers = 100000000\n"))
        assert "num_layers must be" in refused(lambda: Run(folder).config.id, FileError)
