"""Fuzzers of whole folders: users' own data, and runs whose files are forged, read by the commands."""

import io
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from rru import data
from rru.cli.commands import app
from rru.data.own import OwnData, midi, sequences, text, texts
from rru.data.own.table import read_table
from rru.files import FileError
from tests.attacks.forging import forgeries, seal
from tests.attacks.test_fuzz import changed
from tests.attacks.test_midi import OFF, ON, file
from tests.report.samples import preset, write_run
from tests.training.toy import train_in

Fuzzer = Callable[[random.Random], str]

_WORDS = " ".join(f"word{number % 7} , and more ." for number in range(60)).encode()
_TABLE = b"time,load,kind,note\n" + b"".join(
    b"2026-01-%02d,%d.5,%s,text %d\n" % (day, day * 3, b"ab"[day % 2 : day % 2 + 1], day) for day in range(1, 29)
)


def _zipped(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return content.getvalue()


_PIECES = {f"{number}.mid": file(*[ON, OFF] * (3 + number)) for number in range(4)}
_LABELLED = {"text": "note", "label": "kind"}
# file to change, its content, what reads it
OWN: dict[str, tuple[str, bytes, Callable[[Path], object]]] = {
    "table": ("table.csv", _TABLE, lambda path: [column.kind for column in read_table(path)]),
    "labelled texts": ("table.csv", _TABLE, lambda path: texts.prepare(OwnData("texts", path, _LABELLED))),
    "sequences": (
        "table.csv",
        _TABLE,
        lambda path: sequences.prepare(OwnData("sequences", path, {"label": "kind", "sequence": "note"})),
    ),
    "characters": ("text.txt", _WORDS, lambda path: text.prepare_characters(OwnData("characters", path))),
    "words": ("text.txt", _WORDS, lambda path: text.prepare_words(OwnData("words", path, {"tokenizer": "spaces"}))),
    "bytes": ("text.txt", _WORDS, lambda path: text.prepare_bytes(OwnData("bytes", path))),
    "midi files": ("a.zip", _zipped(_PIECES), lambda path: midi.prepare(OwnData("music", path))),
}


def fuzzed_own_data(folder: Path) -> Fuzzer:
    """Returns a fuzzer of the readers of users' own data."""

    def run(draw: random.Random) -> str:
        name = draw.choice(sorted(OWN))
        file_name, content, read = OWN[name]
        kinds = ("bytes", "insert", "delete", "repeat", "cut")
        some = [
            (draw.random(), draw.choice(kinds), draw.randbytes(draw.randint(1, 8))) for _ in range(draw.randint(0, 4))
        ]
        (folder / file_name).write_bytes(changed(content, some))
        try:
            read(folder / file_name)
        except data.DataError:
            return f"own data, {name}, refused"
        return f"own data, {name}, accepted"

    return run


def fuzzed_runs(folder: Path) -> Fuzzer:
    """Returns a fuzzer of run folders with a forged value: the commands that list, and resuming a toy run."""
    write_run(folder / "runs", preset("bach", "gru", "smoke"), 8.5)
    forged = write_run(folder / "runs", preset("bach", "rru", "smoke"), 7.8)
    asked = iter([False] * 10 + [True])
    train_in(folder / "toy", stop=lambda: next(asked))
    newest = max((folder / "toy" / "checkpoint").iterdir())
    states = forgeries(folder / "toy", f"checkpoint/{newest.name}/state.json")
    files = forgeries(forged)
    place = ["--runs", str(folder / "runs")]
    plan = ["plan", "table1", "--preset", "smoke", "--tasks", "bach", "--cells", "rru,gru", *place]

    def checkpoint(draw: random.Random) -> str:
        forgery = draw.choice(states)
        shutil.copytree(folder / "toy", folder / "copy")
        target = folder / "copy" / forgery.file.relative_to(folder / "toy")
        target.write_bytes(forgery.content() or b"")
        seal(target.parent)
        turns = iter([False, False, True])
        try:
            train_in(folder / "copy", watch=lambda event: None, stop=lambda: next(turns))
        except (FileError, ValueError):
            return "forged checkpoint, refused"
        finally:
            shutil.rmtree(folder / "copy")
        return "forged checkpoint, accepted"

    def commands(draw: random.Random) -> str:
        forgery = draw.choice(files)
        whole = forgery.file.read_bytes()
        forgery.file.write_bytes(forgery.content() or b"")
        try:
            for arguments in (["runs", *place], plan, ["resume", str(forged)]):
                ended = CliRunner().invoke(app, arguments)
                assert isinstance(ended.exception, SystemExit | None), (str(forgery), arguments, ended.exception)
                assert "\x1b" not in ended.output, (str(forgery), arguments)
            return f"forged {forgery.file.name}, {'refused' if ended.exit_code else 'accepted'}"
        finally:
            forgery.file.write_bytes(whole)

    return lambda draw: checkpoint(draw) if draw.random() < 0.5 else commands(draw)
