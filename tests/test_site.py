"""The site that `make docs` builds: every link works, and it needs neither a server nor another host."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.timeouts import TIMEOUT

pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")

ROOT = Path(__file__).parents[1]
LOADED = r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?([^\"\s>]+)|<link\b[^>]*\bhref=\"?([^\"\s>]+)"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site; an unknown link or anchor, or a page outside the menu, is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "RRU_SITE_EPOCHS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_no_page_loads_anything_from_another_host(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = [script or link for script, link in re.findall(LOADED, page.read_text())]
        assert not [address for address in loaded if re.match(r"\w+://|//", address)], page


def test_the_reference_shows_the_arguments_of_a_layer_and_of_its_cell(site):
    page = re.sub(r"<[^>]+>", "", (site / "api/layers.html").read_text())
    section = page.split("rru.RRU\n")[1].split("rru.GRU\n")[0]
    assert re.search(r"RRU\(\s*input_size,\s*hidden_size,\s*num_layers=1,\s*\*,\s*output_size=None", section)
    assert "expansion: q; a step's middle layer" in section


def test_links_to_source_files_show_them(site):
    page = (site / "layers.html").read_text()
    assert 'href="source/src/rru/nn/rru.py.html"' in page
    code = re.sub(r"<[^>]+>", "", (site / "source/src/rru/nn/rru.py.html").read_text())
    assert "class RRUCell(Cell):" in code


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_opened_as_files_fit_the_window_and_ask_no_host(browser, site, width):
    for name in ("index", "quickstart", "performance", "api/layers"):
        browser.open(site / f"{name}.html", width=width)
        assert browser.errors == []
        assert [address for address in browser.requests if not address.startswith("file:")] == []
        assert browser.run("document.documentElement.scrollWidth <= innerWidth"), name


def test_a_model_can_be_played_in_the_site(browser, site):
    browser.open(site / "play.html")
    browser.until("document.querySelector('iframe.model').getBoundingClientRect().height > 600")
    browser.open(site / "chorale.html")
    browser.until("typeof music === 'object' && music.composed.length === 32")
    assert browser.errors == []


@pytest.mark.parametrize("name", ["index", "quickstart", "your-data", "migrating", "training", "data", "installing"])
def test_no_line_of_code_is_cut_off(browser, site, name):
    browser.open(site / f"{name}.html", width=1280)
    boxes = "[...document.querySelectorAll('.md-content pre > code')]"
    assert browser.run(f"{boxes}.filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.innerText)") == []


def test_the_search_works_in_pages_opened_as_files(browser, site):
    browser.open(site / "index.html")
    browser.run("document.querySelector('[data-md-component=search-query]').focus()")
    browser.call("Input.insertText", text="MASE")
    titles = "[...document.querySelectorAll('.md-search-result__item h1')].map((title) => title.textContent)"
    end = time.monotonic() + TIMEOUT
    while not (results := browser.run(titles)):
        assert time.monotonic() < end, "no results"
    assert "Glossary" in results
    assert browser.errors == []
