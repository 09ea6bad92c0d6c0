"""What a search may choose: the paper's ranges, and models that can be made."""

import pytest
import torch

from rru import count_parameters, data, layer_class, tasks
from rru.data.own.columns import Layout
from rru.data.own.data_json import LabelFacts, SequenceFacts, SeriesFacts
from rru.kinds import kind_of
from rru.settings import presets
from rru.settings.config import Config
from rru.settings.ranges import Range, ranges, tidied
from rru.tasks import Architecture
from tests.settings.paper import number, table
from tests.settings.test_paper import read

ALL = [(task, cell, size) for task in presets.tasks() for cell in presets.cells() for size in ("paper", "cpu", "smoke")]


def least_parameters(task, options):
    """Of a model with one hidden unit."""
    about, options = data.data_set(task), dict(options)
    tokens = about.statistics["vocabulary"] + 2 if "vocabulary" in about.statistics else None
    inputs = options.pop("embedding_size", 88 if about.kind == "music" else 1)
    outputs = {"music": 88, "reviews": 2, "images": 10}.get(about.kind, tokens)
    with torch.device("meta"):
        layer = layer_class(options.pop("cell"))(inputs, 1, **options)
        if about.kind in ("reviews", "images"):
            return count_parameters(tasks.Classifier(layer, Architecture(tasks.Classifier, outputs, tokens=tokens)))
        return count_parameters(tasks.SequenceModel(layer, Architecture(tasks.SequenceModel, outputs, tokens=tokens)))


class TestRanges:
    def test_are_the_papers(self):
        source = read("paper.tex")
        names = {"JSB Chorales": "jsb", "Nottingham": "nottingham", "MuseData": "musedata"}
        names |= {"Piano-midi.de": "piano-midi", "Word-level Penn Treebank": "ptb-words"}
        rows = [row for block in table(source, "tab:apx-a-main-tuned")[1:] for row in block]
        assert [row[0] for row in rows] == list(names)
        written = ["", "", ""]
        for name, *texts in rows:
            written = [new or old for new, old in zip(texts, written, strict=True)]  # one cell for several rows
            found = ranges(presets.load(names[name], "rru", "paper"), "paper")
            for key, text in zip(("optimiser.lr", "model.dropout", "model.budget"), written, strict=True):
                bounds, scale = text.strip("$").removeprefix("[").split("]^")
                low, high = (number(part.strip()) for part in bounds.replace(" - ", ";").split(";"))
                assert found[key] == Range(low, high, log=scale == "l"), (name, key)

    @pytest.mark.parametrize(
        ("cell", "key", "words"),
        [
            ("rru", "model.expansion", "the middle layer size multiplier $q$ in the range [{:.1f}; {:.1f}]"),
            ("lstm", "model.forget_bias", "the forget bias in the range [{:.1f}; {:.1f}]"),
            ("mogrifier", "model.rounds", "the feature rounds in the range [{}; {}]"),
            ("mogrifier", "model.rank", "the feature rank in the range [{}; {}]"),
        ],
    )
    def test_of_a_cell_are_the_papers(self, cell, key, words):
        found = ranges(presets.load("jsb", cell, "paper"), "paper")[key]
        assert words.format(found.low, found.high) in read("paper.tex")

    @pytest.mark.parametrize("task", presets.tasks())
    def test_of_every_task_hold_models_that_can_be_made(self, task):
        for _, cell, size in (each for each in ALL if each[0] == task):
            config = presets.load(task, cell, size)
            found = ranges(config, size)
            widest = {name.partition(".")[2]: each.high for name, each in found.items() if name.startswith("model.")}
            options = {name: value for name, value in (config.tables()["model"] | widest).items() if name != "budget"}
            assert least_parameters(task, options) <= found["model.budget"].low
            for each in found.values():
                for bound in (each.low, each.high):
                    assert tidied(bound) == bound

    @pytest.mark.parametrize("size", ["best", "nade"])
    @pytest.mark.parametrize("cell", presets.cells())
    def test_of_joint_music_hold_models_that_can_be_made(self, cell, size):
        config = presets.load("piano-midi", cell, size)
        found = ranges(config, size)
        widest = {name.partition(".")[2]: each.high for name, each in found.items() if name.startswith("model.")}
        options = config.model.arguments | {name: value for name, value in widest.items() if name != "budget"}
        made = tasks.MusicTask.architecture_of(config.task, None, None).build(cell, options, found["model.budget"].low)
        assert made.layers.hidden_size >= 1

    @pytest.mark.parametrize("cell", presets.cells())
    @pytest.mark.parametrize(
        ("kind", "statistics"),
        [
            *(("words", {"tokens": [n, 1, 1], "vocabulary": v}) for n in (2_000, 300_000) for v in (50, 6_150, 90_000)),
            *(("characters", {"tokens": [n, 1, 1], "vocabulary": v}) for n in (2_000, 122_000) for v in (30, 3_000)),
            *(("texts", {"words": [n, 1, 1], "texts": [n // 20, 1, 1], "vocabulary": 7_123}) for n in (900, 90_000)),
            *(
                ("sequences", {"steps": [n, 1, 1], "sequences": [50, 1, 1], "columns": m, "longest": 99})
                for n in (500, 90_000)
                for m in (1, 60, 150, 600)
            ),
            *(
                (
                    "series",
                    {
                        "steps": [n, 1, 1],
                        "series": 1,
                        "horizon": 4,
                        "season": 7,
                        "inputs": m,
                        "longest": n,
                        "longest_season": 7,
                    },
                )
                for n in (500, 90_000)
                for m in (1, 60, 150)
            ),
            *(
                ("music", {"steps": [n, 1, 1], "pieces": [n // 50, 1, 1], "bar": bar})
                for n in (500, 90_000, 900_000)
                for bar in (1, 12, 48, 96)
            ),
        ],
    )
    def test_of_own_data_hold_models_that_can_be_made(self, kind, statistics, cell):
        own = {"kind": kind, "path": "data", "size": 1, "hash": "0" * 64}
        tables = presets.derived(kind, statistics, cell, "auto")
        config = Config.of(presets.merged(tables, {"task": {"name": "own"}, "data": own}))
        found = ranges(config, "auto")
        widest = {name.partition(".")[2]: each.high for name, each in found.items() if name.startswith("model.")}
        options = dict(config.tables()["model"] | widest)
        del options["cell"], options["budget"]
        budget, vocabulary = found["model.budget"].low, statistics.get("vocabulary")
        known = {"statistics": statistics, "summary": "", "notes": ()}
        labels = {"classes": ("a", "b"), "balance": {}}
        names = tuple(map(str, range(statistics.get("columns", statistics.get("inputs", 0)))))
        facts = {
            "series": lambda: SeriesFacts(**known, layout=Layout("y", past=names), series={}, horizon=4, season=7),
            "sequences": lambda: SequenceFacts(**known, **labels, columns=names, scale=None, wide=False),
            "texts": lambda: LabelFacts(**known, **labels),
        }.get(kind, lambda: None)()
        made = kind_of(kind).task.architecture_of(config.task, facts, vocabulary).build(cell, options, budget)
        assert made.layers.hidden_size >= 1
        assert all(tidied(bound) == bound for each in found.values() for bound in (each.low, each.high))
