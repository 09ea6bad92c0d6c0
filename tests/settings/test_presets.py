import functools
import pickle
import tomllib
from dataclasses import FrozenInstanceError, replace
from importlib import resources

import pytest
import torch

from rru import count_parameters, data, tasks
from rru.settings import Config, presets
from rru.training import assemble

ALL = [(task, cell, size) for task in presets.tasks() for cell in presets.cells() for size in presets.names(task)]


def jsb(*changes, cell="rru"):
    return presets.override(presets.load("jsb", cell), changes)


def test_every_task_has_presets_in_three_sizes():
    assert presets.tasks() == tuple(data.CATALOGUE)
    for task in presets.tasks():
        assert presets.names(task)[:3] == ("paper", "cpu", "smoke")


def test_a_config_is_the_same_after_a_way_through_its_tables():
    for each in ALL:
        config = presets.load(*each)
        assert list(config.tables()) == ["task", "model", "optimiser", "schedule"]
        assert Config.of(config.tables()) == config == pickle.loads(pickle.dumps(config))


@functools.cache
def parameters(kind, tokens, options):
    """How many parameters the model of a preset has; many presets share a model."""
    options = dict(options)
    features = options.pop("embedding_size", 88 if kind == "music" else 1)
    with torch.device("meta"):
        model = tasks.Architecture(
            tasks.Classifier if kind in ("reviews", "images") else tasks.SequenceModel,
            outputs={"music": 88, "reviews": 2, "images": 10}.get(kind, tokens),
            input_size=features,
            tokens=tokens,
        ).build(options.pop("cell"), options, options.pop("budget"))
    return count_parameters(model)


@pytest.mark.parametrize("task", presets.tasks())
def test_models_fill_their_budgets(task):
    about = data.data_set(task)
    tokens = about.statistics["vocabulary"] + 2 if "vocabulary" in about.statistics else None
    for _, cell, size in (each for each in ALL if each[0] == task):
        options = presets.load(task, cell, size).tables()["model"] | {"dropout": 0.0}  # dropout has no parameters
        used = parameters(about.kind, tokens, tuple(options.items()))
        assert 0.88 * options["budget"] < used <= options["budget"], (cell, size)


@pytest.mark.parametrize("task", presets.tasks())
def test_small_sizes_give_all_cells_the_same_budget_and_schedule(task):
    for size in ("cpu", "smoke"):
        configs = [presets.load(task, cell, size) for cell in presets.cells()]
        assert len({(each.model.budget, each.model.num_layers, each.task, each.schedule) for each in configs}) == 1


@pytest.mark.parametrize("cell", presets.cells())
def test_smoke_trains_on_the_embedded_chorales(cell):
    parts = assemble(presets.load("bach", cell, "smoke"))
    task, model = parts.task, parts.model
    loss, _ = task.loss(model, task.epoch(torch.Generator())[0])
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_no_file_says_a_thing_twice():
    folder = resources.files("rru.settings.presets")

    def values(table, prefix=""):
        for name, value in table.items():
            yield from values(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]

    def read(name):
        return dict(values(tomllib.loads(folder.joinpath(f"{name}.toml").read_text())))

    for name in presets.tasks():
        own = read(name)
        below = read(own.pop("follows", "defaults"))
        repeated = [key for key, value in own.items() if below.get(key) == value]
        for key in own:
            section, _, rest = key.partition(".")
            common = {**below, **own}.get(f"common.{rest}")
            if section in presets.cells() and common is not None and common == own[key]:
                repeated.append(key)
        assert set(repeated) <= {"lstm.model.budget"}, name  # two values of the paper's table that happen to be equal


def test_a_config_cannot_be_changed():
    config = presets.load("jsb")
    with pytest.raises(FrozenInstanceError):
        config.optimiser.lr = 5.0
    with pytest.raises(TypeError):
        config.model.options["expansion"] = 5.0


def test_changes_by_long_and_short_names():
    before = presets.load("jsb")
    after = presets.override(before, ["optimiser.lr=0.01", "dropout = 0", "budget=2M", "context=5e1", "limit=1_000"])
    assert (after.optimiser.lr, after.model.dropout, after.model.budget) == (0.01, 0.0, 2_000_000)
    assert isinstance(after.model.dropout, float)
    assert (after.task.context, after.task.limit) == (50, 1000)
    assert presets.override(after, ["limit=none"]).task == replace(before.task, context=50)
    assert jsb("budget=1.8M").model.budget == 1_800_000
    assert jsb("residual=0.5", "residual=learned", "normalize=false").model.options["residual"] == "learned"


def test_whole_numbers_are_taken_to_the_last_digit():
    largest = 2**63 - 1
    assert jsb(f"seed={largest}").schedule.seed == largest
    assert jsb("seed=9_007_199_254_740_993").schedule.seed == 9007199254740993


def test_other_optimisers():
    changed = jsb("optimiser.name=adamw", "clipping=norm", "clip=1", "weight_decay=0.01").optimiser
    assert (changed.name, changed.clipping, changed.clip) == ("adamw", "norm", 1.0)
    assert jsb("clipping=none").optimiser.clipping == "none"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("optimizer.lr=1", "unknown key 'optimizer.lr'; did you mean optimiser.lr?"),
        ("droput=0.1", "unknown key 'droput'; did you mean model.dropout?"),
        ("model.hidden=3", "unknown key 'model.hidden'; "),
        ("nonsense=3", "unknown key 'nonsense'; known: task.name, "),
        ("lr", "a change must be key=value, such as optimiser.lr=0.01; got 'lr'"),
        ("=3", "a change must be key=value"),
        ("lr=", "optimiser.lr must be a number above 0 and at most 10, got ''"),
        ("lr=fast", "optimiser.lr must be a number above 0 and at most 10, got 'fast'"),
        ("lr=nan", "optimiser.lr must be a number above 0 and at most 10, got nan"),
        ("lr=-1", "optimiser.lr must be a number above 0 and at most 10, got -1.0"),
        ("dropout=1", "model.dropout must be a number at least 0 and below 1, got 1.0"),
        ("budget=1.5", "model.budget must be a whole number at least 1, got 1.5 of type float"),
        ("budget=inf", "model.budget must be a whole number at least 1, got 'inf'"),
        ("normalize=1", "model.normalize must be true or false, got '1'"),
        ("rezero=vectr", "model.rezero must be 'vector' or 'scalar', got 'vectr'; did you mean 'vector'?"),
        ("residual=2", "model.residual must be a number above 0 and below 1 or 'learned' or 'unscaled', got 2.0"),
        ("residual=all", "model.residual must be a number above 0 and below 1 or 'learned' or 'unscaled', got 'all'"),
        (
            "patience=none",
            "schedule.patience (epochs without improvement before training stops) must have a value",
        ),
        ("cell=gru", "model.cell cannot be changed: it selects the preset"),
        ("task.name=bach", "task.name cannot be changed"),
        ("forget_bias=1", "forget_bias is only for lstm; this config is for jsb and rru"),
        ("model.embedding_size=8", "model.embedding_size is only for words, characters, bytes, reviews, texts;"),
        ("optimiser.name=adamw", "optimiser.clipping must be 'norm' or 'none' with optimiser.name = 'adamw'"),
        ("weight_decay=0.1", "optimiser.weight_decay must be 0 with 'radam', got 0.1"),
    ],
)
def test_a_wrong_change_says_what_would_be_right(change, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is what is tested)
        jsb(change)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("jbs",), "task must be one of bach, jsb, .*; got 'jbs'; did you mean 'jsb'?"),
        (("jsb", "janet"), "lstm, mogrifier; got 'janet'; @rru.register_cell adds your own"),
        (("jsb", "RRU"), "cell must be one of rru, gru, lstm, mogrifier; got 'RRU'; did you mean 'rru'?"),
        (("jsb", "rru", "large"), "preset must be one of paper, cpu, smoke, best, nade; got 'large'"),
        (("../jsb",), "task must be one of"),
    ],
)
def test_a_wrong_name_says_what_there_is(arguments, message):
    with pytest.raises(ValueError, match=message):
        presets.load(*arguments)


@pytest.mark.parametrize(
    ("table", "key", "value", "message"),
    [
        ("model", "dropout", "0.5", "model.dropout must be a number at least 0 and below 1, got '0.5'"),
        ("model", "budget", True, "model.budget must be a whole number at least 1, got True"),
        ("model", "size", 3, "unknown key 'model.size'"),
        ("schedule", "seed", -1, "schedule.seed must be a whole number at least 0 "),
        ("task", "name", "jbs", "task.name must be .*got 'jbs'; did you mean 'jsb'?"),
        ("extra", "key", 1, "tables of a config must be task, data, model, optimiser, schedule; got 'extra'"),
    ],
)
def test_a_config_from_elsewhere_is_checked(table, key, value, message):
    tables = presets.load("jsb").tables()
    tables.setdefault(table, {})[key] = value
    with pytest.raises(ValueError, match=message):
        Config.of(tables)


def test_a_table_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"task must be a table of settings, got 3"):
        Config.of({**jsb().tables(), "task": 3})


def test_none_is_as_good_as_nothing():
    assert presets.load("jsb").changed({"model.output_size": None, "task.limit": None}) == jsb("output_size=none")
    assert "output_size" not in jsb("output_size=none").tables()["model"]


def test_a_config_with_something_missing_is_refused():
    tables = presets.load("jsb").tables()
    del tables["optimiser"]["lr"]
    with pytest.raises(ValueError, match=r"a config must have optimiser.lr \(learning rate\), got none"):
        Config.of(tables)
    with pytest.raises(ValueError, match=r"a config must have task.name, got none"):
        Config.of({})


def test_an_id_stands_for_what_a_config_says():
    config = presets.load("jsb")
    assert config.id == "58a7524d1a75"  # stays, or every run folder's name would be another
    backwards = {table: dict(reversed(values.items())) for table, values in reversed(config.tables().items())}
    assert Config.of(backwards).id == config.id
    assert jsb("dropout=0").id == jsb("dropout=0.0").id
    assert jsb("checkpoint_seconds=10", "log_steps=1").id == config.id
    assert jsb("seed=1").id != config.id
    assert len({presets.load(*each).id for each in ALL}) == len(ALL)


def test_all_keys_share_a_network_on_little_music_and_much_music_takes_a_cheaper_output():
    def chosen(steps, **more):
        tables = presets.derived("music", {"steps": [steps, 1, 1], "pieces": [40, 1, 1], **more}, "rru", "auto")
        return tables["task"]["output"], tables["model"]["budget"], tables["schedule"]["epochs"]

    assert chosen(3_000) == ("tied", 100_000, 60)
    assert chosen(100_000, bar=16) == ("tied", 250_000, 15)
    assert chosen(500_000) == ("tied", 250_000, 3)
    assert chosen(500_001, bar=16) == ("nade", 1_500_000, 19)


@pytest.mark.parametrize(
    ("steps", "bar", "known", "context"),
    [(30_000, 16, 16, 256), (30_000, 12, 12, 252), (300, 48, 48, 48), (30_000, 49, None, 256), (30_000, 1, None, 256)],
)
def test_own_music_knows_the_place_in_a_bar_unless_it_is_too_long(steps, bar, known, context):
    tables = presets.derived("music", {"steps": [steps, 1, 1], "pieces": [40, 1, 1], "bar": bar}, "rru", "auto")
    assert (tables["task"].get("bar"), tables["task"]["context"]) == (known, context)
