"""Small models of every kind of own data, their exports, and the commands that use them; for forging their files."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from torch import nn
from typer.testing import CliRunner

from rru import data
from rru.cli.commands import app
from rru.inference.export import export
from rru.inference.loading import load
from rru.kinds import kind_of
from rru.settings import Config, presets
from rru.training import Run
from rru.training.run_files import ABOUT_DATA
from tests import own_files
from tests.attacks.forging import Forgery, forgeries

SERIES = {"target": "load", "horizon": 3, "id": "place", "columns": "price", "known": "sale", "calendar": True}
SHORT = ["--length", "3"]


def untrained(config: Config, vocabulary: data.Vocabulary | None, facts: data.Facts | None = None) -> nn.Module:
    """Return the model of a config as it is before training."""
    task, model = kind_of(config.kind).task, config.model
    architecture = task.architecture_of(config.task, facts, vocabulary and len(vocabulary))
    return architecture.build(model.cell, model.arguments, model.budget)


def untrained_run(folder: Path, own: data.OwnData | str, changes: list[str], preset: str = "smoke") -> Path:
    """Make a run folder with untrained weights, and return it."""
    config = presets.override(presets.load(own, "rru", preset), changes)
    run = Run.create(folder, config)
    facts, vocabulary = None, None
    if not isinstance(own, str):
        facts, loaded = own.facts, own.load()
        vocabulary = getattr(loaded, "vocabulary", None)
        (folder / ABOUT_DATA).write_text(json.dumps(facts.fields()))
    if vocabulary is not None:
        vocabulary.save(folder / "vocabulary.json")
    run.save_best(1, untrained(config, vocabulary, facts).state_dict(), {"epoch": 1})
    return folder


def _series(path: Path) -> Path:
    days = [f"2026-{month:02}-{day:02}" for month in (1, 2) for day in range(1, 29)]
    rows = [
        f"{day},{'' if number > 52 else 9 + (number * 7) % 5},{number % 3},{'yes' if number % 4 else 'no'},{place}"
        for place in "ab"
        for number, day in enumerate(days)
    ]
    path.write_text("\n".join(["day,load,price,sale,place", *rows]))
    return path


def _makers(folder: Path) -> dict[str, tuple[Callable[[], data.OwnData | str], list[str], list[list[str]], str]]:
    """Return of each model its data, its settings, the commands that use it after its folder, and their input."""
    table, reviews, gestures = folder / "days.csv", folder / "reviews.csv", folder / "gestures.csv"
    piece = str(folder / "pieces" / "000.mid")
    return {
        "series": (
            lambda: data.from_csv(_series(table), **SERIES),
            ["task.patch=4"],
            [["forecast", "--data", str(table), "--force", "-o", str(folder / "out.csv")]],
            "",
        ),
        "texts": (
            lambda: data.from_csv(own_files.reviews(reviews), text="body", label="stars"),
            [],
            [["classify", str(reviews)], ["stream"]],
            "a great film\n\nawful\n",
        ),
        "sequences": (
            lambda: data.from_csv(own_files.gestures(gestures), label="kind", sequence="id", time="t", columns="x,y"),
            [],
            [["classify", str(gestures)], ["stream"]],
            "1,2\n\n0.5,-1\n",
        ),
        "words": (
            lambda: data.from_text(own_files.text(folder / "novel.txt"), by="words"),
            [],
            [["write", *SHORT], ["stream"]],
            "the lazy dog\n",
        ),
        "music": (
            lambda: data.from_midi(own_files.pieces(folder / "pieces", 5), grid=1),
            ["task.output=chain"],
            [["compose", "--bars", "1", "--prompt", piece, "--force", "-o", str(folder / "out.mid")]],
            "",
        ),
        "keys": (
            lambda: "bach",
            ["task.output=nade", "task.output_units=3"],
            [["compose", "--bars", "1", "--force", "-o", str(folder / "out.mid")]],
            "",
        ),
        "tied keys": (
            lambda: "bach",
            ["task.output=tied", "task.bar=4"],
            [["compose", "--bars", "1", "--force", "-o", str(folder / "out.mid")]],
            "",
        ),
    }


class Used:
    """A model with untrained weights, as a run and as an export, and the commands that use it.

    **Arguments:** `folder`: where it is made; `name`: one of `NAMES`.
    """

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        made, changes, self.commands, self.given = _makers(folder)[name]
        self.run, self.exported = folder / "run", folder / "exported"
        untrained_run(self.run, made(), [*changes, "model.budget=40k", "task.context=8"])
        export(load(self.run), self.exported, "safetensors")

    @property
    def forgeries(self) -> list[Forgery]:
        """Every forgery of the files that the model is loaded from, in the run and in the export."""
        unread = ("env.json", "about.json", "manifest.json")
        places = (self.run, self.exported)
        return [each for place in places for each in forgeries(place) if each.file.name not in unread]

    def try_forged(self, forgery: Forgery) -> bool:
        """Use the model with a forged file, which is mended afterwards. Return whether all commands accepted it."""
        whole = forgery.file.read_bytes()
        forgery.file.write_bytes(forgery.content() or b"")
        try:
            ended = [self.ends_well(arguments, str(forgery)) for arguments in self.arguments(forgery.file.parent)]
            return all(ended)
        finally:
            forgery.file.write_bytes(whole)

    def arguments(self, place: Path) -> Iterator[list[str]]:
        """Yield the commands that use the model at a place."""
        for name, *more in self.commands:
            yield [name, str(place), *more]

    def ends_well(self, arguments: list[str], what: str) -> bool:
        """Return whether a command accepted the model; raise AssertionError unless it did or gave a reason."""
        ended = CliRunner().invoke(app, arguments, input=self.given)
        if not isinstance(ended.exception, SystemExit | None):
            raise AssertionError(f"{what}: {arguments}") from ended.exception
        assert "\x1b" not in ended.output, (what, arguments)
        return not ended.exit_code


NAMES = tuple(_makers(Path()))
