"""Nothing that a run's folder holds becomes a part of the page, of the CSV's formulas, or of Markdown's markup."""

import csv
import json
import re
from html.parser import HTMLParser

import pytest

from rru import report
from rru.report import svg
from tests.report.samples import change_result, preset, write_run

EVIL = "</script></style></pre>\"'><script>window.evil = 1</script><img src=x onerror='window.evil=1'>{{ 7*7 }}"


class Elements(HTMLParser):
    """What a page consists of."""

    def __init__(self, html):
        super().__init__()
        self.found, self.attributes = {}, set()
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found[tag] = self.found.get(tag, 0) + 1
        self.attributes |= {name for name, _ in attributes}


@pytest.fixture
def evil(tmp_path):
    """A run that says evil things wherever it can."""
    root = tmp_path / "runs"
    folder = write_run(root, preset(), folder=root / "<img src=x onerror=alert(1)>")
    change_result(folder, reason=EVIL, status="diverged", **{EVIL: 1})
    (folder / "env.json").write_text(json.dumps({EVIL: EVIL, "versions": {EVIL: EVIL}, "cpu": [EVIL]}))
    (folder / "music").mkdir()
    (folder / "music" / '"><script>alert(1)<.png').write_bytes(b"picture")
    other = write_run(root, preset(seed=1), folder=root / "other")
    text = json.dumps(EVIL)
    (other / "config.toml").write_text(f"[task]\nname = {text}\n[model]\ncell = {text}\n[{text}]\n{text} = {text}\n")
    change_result(other, status=EVIL)
    return root


def test_no_element_or_attribute_comes_from_a_folder(tmp_path, evil):
    report.write([evil], tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    page = Elements(html)
    assert page.found["script"] == page.found["style"] == 1
    assert page.found["img"] == 1  # the picture of music/
    assert not {name for name in page.attributes if name.startswith("on")}
    assert "window.evil = 1&lt;/script&gt;" in html
    assert "{{ 7*7 }}" in html


def test_policy_allows_only_the_pages_script(tmp_path, evil):
    report.write([evil], tmp_path / "page.html")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', (tmp_path / "page.html").read_text())[1]
    assert "default-src &#39;none&#39;" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_drawings_are_escaped():
    drawn = svg.element("g", EVIL, svg.element("path", d=1.5), data_tip=EVIL)
    page = Elements(drawn)
    assert page.found == {"g": 1, "path": 1}
    assert page.attributes == {"data-tip", "d"}


def test_page_contains_no_address(tmp_path, all_runs):
    report.write([all_runs], tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert "://" not in html
    assert not re.search(r'(?:src|href)="(?!#|data:)', html)


def test_csv_contains_no_formulas(tmp_path):
    write_run(tmp_path / "runs", preset())
    folder = tmp_path / "runs" / "damaged"
    folder.mkdir()
    (folder / "config.toml").write_text(
        "[task]\nname = '=HYPERLINK(1)'\n[model]\ncell = '@SUM(1)'\n[schedule]\nseed = 0"
    )
    report.write([tmp_path / "runs"], tmp_path / "page.html", csv=tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["task"] for row in rows if "damaged" in row["folder"]] == ["'=HYPERLINK(1)"]
    assert not [value for row in rows for value in row.values() if value[:1] in ("=", "@", "+")]


def test_markdown_stays_a_table(tmp_path, evil):
    report.write([evil], tmp_path / "page.html", markdown=tmp_path / "out.md")
    text = (tmp_path / "out.md").read_text()
    assert not re.search(r"(?<!\\)<", text)
    assert len(text.split("## All runs")[1].strip().splitlines()) == 2 + 2
