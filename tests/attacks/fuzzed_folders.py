"""Fuzzers of whole folders: users' own data, and forged runs that commands read."""

import io
import random
import shutil
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from rru import data
from rru.cli.commands import app
from rru.data.own import OwnData
from rru.data.own.formats import format_of
from rru.data.own.table import read_table
from tests.attacks.forging import Forgery, forged_checkpoints, forgeries, resume_forged
from tests.attacks.test_fuzz import changed
from tests.attacks.test_midi import OFF, ON, file
from tests.attacks.used import NAMES, Used
from tests.data import samples
from tests.report.samples import preset, write_run

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
_REVIEWS = {
    f"{label}/{number}.txt": b"%d words, all %c" % (number, ord(label)) for label in "ab" for number in range(6)
}
_LABELLED = {"text": "note", "label": "kind"}
_SEQUENCES = {"label": "kind", "sequence": "note"}
_SERIES = {"time": "time", "target": "load", "horizon": 2}
_CELLS = (
    b"",
    b"nan",
    b"1e999",
    b"-",
    b'"',
    b"2026-13-99",
    b"0001-01-01",
    b"9999-12-31",
    b"9" * 400,
    b"1e19",
    b"-1e-29",
    b"\0",
    b"1,5",
    b"0x1",
)


def _prepared(kind: str, **options: object) -> Callable[[Path], object]:
    return lambda path: format_of(kind).prepare(OwnData(kind, path, options))


# files, of which one is changed, and what reads them: the only file, or the folder
OWN: dict[str, tuple[dict[str, bytes], Callable[[Path], object]]] = {
    "table": ({"table.csv": _TABLE}, lambda path: [column.kind for column in read_table(path)]),
    "any file": ({"table.csv": _TABLE}, lambda path: data.from_path(path, target="load", horizon=2).kind),
    "labelled texts": ({"table.csv": _TABLE}, _prepared("texts", **_LABELLED)),
    "sequences": ({"table.tsv": _TABLE.replace(b",", b"\t")}, _prepared("sequences", **_SEQUENCES)),
    "series": ({"table.csv": _TABLE}, _prepared("series", **_SERIES)),
    "series, tabs": ({"table.tsv": _TABLE.replace(b",", b"\t")}, _prepared("series", **_SERIES)),
    "characters": ({"text.txt": _WORDS}, _prepared("characters")),
    "words": ({"text.txt": _WORDS}, _prepared("words", tokenizer="spaces")),
    "bytes": ({"text.txt": _WORDS}, _prepared("bytes")),
    "label folders": (_REVIEWS, _prepared("texts")),
    "any folder": (_REVIEWS, lambda path: data.from_path(path).kind),
    "midi archive": ({"a.zip": _zipped(_PIECES)}, _prepared("music")),
    "midi folder": (_PIECES, _prepared("music")),
}


def _changed(draw: random.Random, name: str, content: bytes) -> bytes:
    """Change some bytes, or some cells of a table."""
    if name.endswith(("csv", "tsv")) and draw.random() < 0.5:
        between = b"," if name.endswith("csv") else b"\t"
        rows = [line.split(between) for line in content.splitlines()]
        for _ in range(draw.randint(1, 6)):
            row = draw.choice(rows)
            row[draw.randrange(len(row))] = draw.choice(_CELLS)
        return b"\n".join(between.join(row) for row in rows)
    kinds = ("bytes", "insert", "delete", "repeat", "cut")
    some = [(draw.random(), draw.choice(kinds), draw.randbytes(draw.randint(1, 8))) for _ in range(draw.randint(0, 4))]
    return changed(content, some)


def fuzzed_own_data(folder: Path) -> Fuzzer:
    """Return a fuzzer of the readers of users' own data."""

    def run(draw: random.Random) -> str:
        name = draw.choice(sorted(OWN))
        files, read = OWN[name]
        victim = draw.choice(sorted(files))
        for each, content in files.items():
            samples.write(folder / "own", each, _changed(draw, each, content) if each == victim else content)
        try:
            with warnings.catch_warnings(action="error"):
                read(folder / "own" if len(files) > 1 else folder / "own" / victim)
        except data.DataError:
            return f"own data, {name}, refused"
        finally:
            shutil.rmtree(folder / "own")
        return f"own data, {name}, accepted"

    return run


def fuzzed_use(folder: Path) -> Fuzzer:
    """Return a fuzzer of the commands that use models: in a run or export, one value is forged."""
    made: dict[str, tuple[Used, list[Forgery]]] = {}

    def run(draw: random.Random) -> str:
        name = draw.choice(NAMES)
        if name not in made:
            used = Used(folder / name, name)
            made[name] = used, used.forgeries
        used, files = made[name]
        forgery = draw.choice(files)
        how = "accepted" if used.try_forged(forgery) else "refused"
        return f"model of {name}, {forgery.file.name}, {how}"

    return run


def fuzzed_runs(folder: Path) -> Fuzzer:
    """Return a fuzzer of run folders with a forged value: the commands that list, and resuming a toy run."""
    write_run(folder / "runs", preset("bach", "gru", "smoke"), 8.5)
    forged = write_run(folder / "runs", preset("bach", "rru", "smoke"), 7.8)
    states = forged_checkpoints(folder / "toy")
    files = forgeries(forged)
    place = ["--runs", str(folder / "runs")]
    plan = ["plan", "table1", "--preset", "smoke", "--tasks", "bach", "--cells", "rru,gru", *place]

    def checkpoint(draw: random.Random) -> str:
        error = resume_forged(folder / "toy", draw.choice(states))
        return f"forged checkpoint, {'refused' if error else 'accepted'}"

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
