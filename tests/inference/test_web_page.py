"""`rru export --format web`: one page with all that it needs, which asks no host and runs nothing from the data."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rru.inference import export
from rru.inference.engine import blob, page, web_page
from rru.inference.engine.page import SCRIPTS, part
from rru.kinds import KINDS
from tests.inference.c_engine import ENGINE
from tests.inference.small_models import make_models, of_own_class

PAGES = {
    "nade": "music",
    "letters": "text",
    "texts": "texts",
    "mnist": "digits",
    "sequences": "sequences",
    "series": "series",
}
HOSTILE = "</script><script>alert(1)</script><!--&\"'"


@pytest.fixture(scope="module")
def models(tmp_path_factory, untrained_run):
    return make_models(tmp_path_factory.mktemp("models"), untrained_run, PAGES)


@pytest.fixture(scope="module")
def pages(models):
    return {name: web_page(trained).decode() for name, trained in models.items()}


def block(content, name):
    return re.search(rf'<script type="[^"]+" id="{re.escape(name)}">([^<]*)</script>', content)[1]


def policy(content):
    return html.unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', content)[1])


@pytest.mark.parametrize("name", PAGES)
class TestPage:
    def test_has_the_model_and_both_modules(self, pages, models, name):
        assert base64.b64decode(block(pages[name], "model.rru")) == blob(models[name])
        for module in ("rru-simd.wasm", "rru.wasm"):
            assert base64.b64decode(block(pages[name], module)) == (ENGINE / module).read_bytes()
        assert json.loads(block(pages[name], "about"))["page"] == PAGES[name]

    def test_asks_no_host(self, pages, name):
        assert not re.search(r"<(?:link|img|iframe|object|base)\b|\bsrc=|@import|url\(", pages[name])
        assert re.findall(r'\bhref="([^"]+)"', pages[name]) == ["#content"]
        assert "default-src 'none'" in policy(pages[name])
        assert "connect-src 'none'" in policy(pages[name])

    def test_runs_its_own_script_alone(self, pages, name):
        scripts = re.findall(r"<script>(.*?)</script>", pages[name], re.DOTALL)
        digests = ["sha256-" + base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts]
        assert len(digests) == 1
        assert f"script-src '{digests[0]}' 'wasm-unsafe-eval';" in policy(pages[name])
        assert not re.search(r"\son\w+=|javascript:|eval\(|innerHTML|insertAdjacentHTML|document\.write", pages[name])

    def test_every_field_that_a_script_uses_is_there(self, pages, name):
        (script,) = re.findall(r"<script>(.*?)</script>", pages[name], re.DOTALL)
        used = set(re.findall(r'byId\("([\w-]+)"\)', script)) | set(re.findall(r'slider\("(\w+)"', script))
        ids = re.findall(r'\bid="([^"]+)"', pages[name])
        assert used <= set(ids)
        assert len(ids) == len(set(ids))


def test_every_kind_of_the_package_has_a_page():
    assert {kind.page for kind in KINDS.values()} == set(SCRIPTS)


def test_names_of_a_users_data_cannot_become_markup(models):
    trained = models["texts"]
    facts = replace(trained.facts, classes=(HOSTILE, "other", *trained.facts.classes[2:]))
    config = replace(trained.config, data=replace(trained.config.data, path=Path(f"{HOSTILE.replace('/', '')}.csv")))
    content = web_page(replace(trained, facts=facts, config=config)).decode()
    assert "alert(1)" in content
    assert "<script>alert" not in content
    assert content.count("<script") == 5
    assert "<!--" not in content


def test_int8_makes_it_smaller(models, pages):
    assert len(web_page(models["nade"], int8=True)) < len(pages["nade"])
    assert "int8" in block(web_page(models["nade"], int8=True).decode(), "about")


def test_export_writes_one_file(models, tmp_path):
    path = tmp_path / "pages" / "page.html"
    assert export(models["nade"], path, "web") == ["page.html"]
    assert path.read_bytes() == web_page(models["nade"])
    assert [each.name for each in path.parent.iterdir()] == ["page.html"]
    with pytest.raises(ValueError, match=r"page.html exists"):
        export(models["nade"], path, "web")
    with pytest.raises(ValueError, match=r"the output of format web must be an .html file, got .*folder"):
        export(models["nade"], tmp_path / "folder", "web")


def test_a_model_that_c_cannot_run_is_refused(models, tmp_path):
    with pytest.raises(ValueError, match=r"a model of music \(OwnModel with a NadeHead\) has no head in C"):
        export(of_own_class(models["nade"]), tmp_path / "page.html", "web")
    assert not (tmp_path / "page.html").exists()


def test_a_kind_without_a_page_is_refused(models, monkeypatch):
    monkeypatch.setattr(page, "kind_of", lambda name: replace(KINDS[name], page=""))
    with pytest.raises(ValueError, match=r"there is no page for a model of music"):
        web_page(models["nade"])


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_scripts_are_valid_and_divide_texts_as_python_does(tmp_path):
    from rru.data.vocabulary import tokens_of

    text = "It's a <unk> well-known \u201ctest\u201d, na\u00efve & 12.5 % (or so)!\n\tEnd_of \U0001f600"
    run = """
    const names = { words: 2, "words and punctuation": 3, characters: 4, "code points": 5, bytes: 6 };
    const found = {};
    for (const [name, reading] of Object.entries(names)) {
      const vocabulary = new Vocabulary({ numbers: { tokens: 0, reading, unknown: 1, padding: 0 } });
      vocabulary.number = (key) => Buffer.from(key, "latin1").toString();
      if (reading === 6) vocabulary.number = (key) => key;
      found[name] = vocabulary.parts(TEXT).map(({ token }) => token);
    }
    console.log(JSON.stringify(found));
    """.replace("TEXT", json.dumps(text))
    (tmp_path / "tokens.js").write_text(part("tokens.js") + run)
    done = subprocess.run(["node", tmp_path / "tokens.js"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {name: list(tokens_of(text, name)) for name in json.loads(done.stdout)}
    for script in (ENGINE / "web").glob("*.js"):
        subprocess.run(["node", "--check", script], check=True)
        assert max(map(len, script.read_text().splitlines())) <= 120
