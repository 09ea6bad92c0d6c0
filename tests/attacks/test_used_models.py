"""Commands that use models from others: a forged file is used or gives a one-line error, never a traceback."""

import random

import pytest

from rru.files import FileError
from rru.inference.loading import load
from rru.settings import Config, presets
from rru.tasks import MusicTask
from tests.attacks.measured import TIMEOUT, refused
from tests.attacks.test_limits import pytestmark as linux
from tests.attacks.used import NAMES, Used

CHOSEN = 25  # of thousands; `make fuzz` tries others


@pytest.fixture(scope="module", params=NAMES)
def used(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRU_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield Used(tmp_path_factory.mktemp(request.param), request.param)


def test_run_and_export_are_used(used):
    for place in (used.run, used.exported):
        for arguments in used.arguments(place):
            assert used.ends_well(arguments, "as it is")


def test_forged_files_are_used_or_refused(used):
    for forgery in random.Random(0).sample(used.forgeries, CHOSEN):
        used.try_forged(forgery)


def test_an_export_may_consist_of_links(used, tmp_path):
    for file in used.exported.iterdir():
        (tmp_path / file.name).symlink_to(file)
    found, wanted = load(tmp_path), load(used.exported)
    assert (found.config, found.facts, found.vocabulary) == (wanted.config, wanted.facts, wanted.vocabulary)


def test_a_run_may_not(used, tmp_path):
    for name in ("data.json", "vocabulary.json"):
        if (file := used.run / name).exists():
            file.rename(tmp_path / name)
            file.symlink_to(tmp_path / name)
            try:
                with pytest.raises(FileError, match=f"{name}: must be a file, is a link|{name}: cannot be read"):
                    load(used.run)
            finally:
                (tmp_path / name).replace(file)


@linux
@pytest.mark.parametrize("cell", ["rru", "mogrifier"])
def test_every_setting_is_bounded_when_building_a_model(cell):
    """Every number of the model is replaced by a huge one; the model is sized without memory for its weights."""
    tables = presets.load("bach", cell, "smoke").tables()
    tables["task"] |= {"output": "nade", "output_units": 9}
    numbers = [
        (table, name)
        for table in ("task", "model")
        for name, value in tables[table].items()
        if type(value) in (int, float) and name != "budget"
    ]
    assert len(numbers) > 5

    def build_all():
        for table, name in numbers:
            for huge in (10**5, 10**9, 10**15):
                try:
                    config = Config.of({**tables, table: {**tables[table], name: huge}})
                    model = config.model
                    MusicTask.architecture_of(config.task, None, None).build(cell, model.arguments, model.budget)
                except ValueError:
                    continue
        raise ValueError("all were tried")

    assert refused(build_all, ValueError, seconds=TIMEOUT) == "all were tried"
