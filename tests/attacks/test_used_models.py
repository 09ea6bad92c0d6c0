"""Models from others, used by the commands: a forged file is an error of one line, or is used; never a traceback."""

import json
import random

import pytest

from rru.files import FileError
from rru.inference.trained import load
from rru.training.records import ABOUT_LIMIT
from tests.attacks.measured import refused
from tests.attacks.used import NAMES, Used
from tests.attacks.test_limits import pytestmark as linux

CHOSEN = 25  # of thousands; `make fuzz` tries others


@pytest.fixture(scope="module", params=NAMES)
def used(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RRU_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield Used(tmp_path_factory.mktemp(request.param), request.param)


def test_run_and_export_are_used(used):
    for place in (used.run, used.exported):
        for arguments in used.arguments(place):
            assert used._ends_well(arguments, "as it is")


def test_forged_files_are_used_or_refused(used):
    for forgery in random.Random(0).sample(used.forgeries, CHOSEN):
        used.try_forged(forgery)


def test_an_export_may_consist_of_links(used, tmp_path):
    for file in used.exported.iterdir():
        (tmp_path / file.name).symlink_to(file)
    found, wanted = load(tmp_path), load(used.exported)
    assert (found.config, found.about, found.vocabulary) == (wanted.config, wanted.about, wanted.vocabulary)


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
