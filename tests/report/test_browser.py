"""The page in a real browser: drawn, quiet, within the width of a phone, and answering to mouse and keys."""

import base64
import wave

import pytest

from rru import report
from tests.report.samples import preset, write_run


@pytest.fixture(scope="module")
def page(tmp_path_factory, all_runs):
    path = tmp_path_factory.mktemp("page") / "page.html"
    report.write([all_runs], path)
    return path


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (768, "dark"), (390, "light"), (320, "dark")])
def test_page_renders_without_errors_or_requests_at_any_width(browser, page, width, scheme):
    browser.open(page, width=width, scheme=scheme)
    assert browser.errors == []
    assert browser.requests == [page.as_uri()]
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    sizes = browser.run(
        "[...document.querySelectorAll('figure svg[role=img]')].map((one) => [one.getBoundingClientRect().width,"
        "one.getBoundingClientRect().height, one.querySelectorAll('.mark').length])"
    )
    assert len(sizes) == 2 * 4 + 1 + 4  # heat maps of four cells, dropout; learning curves of each task and preset
    assert all(wide > 150 and high > 80 and marks > 3 for wide, high, marks in sizes)


def test_on_a_phone_every_score_is_within_the_screen(browser, page):
    browser.open(page, width=390, height=800, touch=True)
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    outside = "[...document.querySelectorAll('td, .ranking span, h1, h2, pre, footer, .status')]"
    outside += ".filter((one) => one.checkVisibility())"
    outside += ".filter((one) => one.getBoundingClientRect().right > innerWidth).length"
    assert browser.run(outside) == 0


BROKEN = """
[...document.querySelectorAll('td.number, .facts dd, .ranking .behind')].filter((one) => one.checkVisibility())
  .flatMap((one) => {
    const texts = document.createTreeWalker(one, NodeFilter.SHOW_TEXT), broken = [];
    for (let text = texts.nextNode(); text; text = texts.nextNode())
      for (const number of text.data.matchAll(/\\d[\\d.,]*/g)) {
        const range = document.createRange();
        range.setStart(text, number.index);
        range.setEnd(text, number.index + number[0].length);
        if (range.getClientRects().length > 1) broken.push(number[0]);
      }
    return broken;
  })
"""


@pytest.mark.parametrize("width", [320, 360, 375, 390])
def test_on_a_narrow_phone_no_number_is_broken(browser, page, width):
    browser.open(page, width=width, height=800, touch=True)
    browser.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert browser.run("document.querySelectorAll('td.number').length > 100")
    assert browser.run(BROKEN) == []
    wider = "[...document.querySelectorAll('.runs td')].filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    assert browser.run(wider) == 0


def test_hovering_a_mark_shows_its_numbers(browser, page):
    browser.open(page)
    browser.point_at("svg.map .mark:nth-of-type(2)")
    told = browser.run("document.getElementById('tip').innerText").splitlines()
    assert told[0] == "RRU"
    assert [line.partition(":")[0] for line in told[1:]] == [
        "learning rate",
        "budget",
        "test NLL",
        "validation NLL",
        "best epoch",
        "epochs",
        "parameters",
        "seeds",
        "status",
    ]
    browser.point_at(".brand")
    assert browser.run("document.getElementById('tip').hidden")


def test_a_term_is_explained_to_mouse_keyboard_and_finger(browser, page):
    meaning = "Negative log-likelihood of the next notes"
    browser.open(page)
    browser.point_at("#data-1 .term[aria-describedby=term-nll]")
    assert meaning in browser.run("tip.textContent")
    browser.point_at(".brand")
    assert browser.run("tip.hidden")
    browser.run("document.querySelector('#data-1 .term[aria-describedby=term-nll]').focus()")
    browser.settle()
    assert browser.run("tip.innerText").splitlines()[0] == "NLL"
    assert meaning in browser.run("tip.textContent")
    browser.press("Escape")
    assert browser.run("tip.hidden")
    browser.open(page, width=390, height=800, touch=True)
    browser.tap("#data-1 .term[aria-describedby=term-nll]")
    assert meaning in browser.run("tip.textContent")
    assert not browser.run("tip.hidden")
    assert browser.errors == []


def test_a_term_is_described_to_screen_readers(browser, page):
    browser.open(page)
    unexplained = "[...document.querySelectorAll('.term')].filter((one) => !document.getElementById("
    assert browser.run(f"{unexplained}one.getAttribute('aria-describedby'))?.textContent).length") == 0
    assert browser.run("document.querySelectorAll('.term').length") > 10


def test_a_command_can_be_copied(browser, page):
    browser.open(page)
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    command = browser.run("document.querySelector('#data-1 .next code').textContent")
    assert command.startswith("rru compose ")
    browser.click("#data-1 .copy")
    browser.until("document.querySelector('#data-1 .copy').textContent === 'Copied'")
    assert browser.run("navigator.clipboard.readText()") == command
    assert browser.errors == []


def test_a_command_is_selected_where_it_cannot_be_copied(browser, page):
    browser.open(page)
    browser.run("navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed'))")
    browser.click("#data-1 .copy")
    browser.until("document.querySelector('#data-1 .copy').textContent === 'Selected'")
    command = browser.run("document.querySelector('#data-1 .next code').textContent")
    assert browser.run("getSelection().toString()") == command


def test_tooltip_fits_the_window(browser, page):
    browser.open(page, width=390, height=800)
    for selector in ("svg.map .mark:nth-of-type(5)", "svg.chart .dot:not(.quiet)"):
        browser.point_at(selector)
        box = browser.run("(({left, right, top, bottom}) => [left, right, top, bottom])(tip.getBoundingClientRect())")
        assert not browser.run("tip.hidden")
        assert box[0] >= 0
        assert box[1] <= 390
        assert box[2] >= 0
        assert box[3] <= 800


def test_arrow_keys_move_between_marks(browser, page):
    browser.open(page)
    browser.run("document.querySelector('svg.chart').focus()")
    browser.settle()
    browser.press("ArrowRight")
    first = browser.run("tip.textContent")
    browser.press("ArrowRight")
    assert browser.run("tip.textContent") != first
    browser.press("ArrowLeft")
    assert browser.run("tip.textContent") == first
    browser.press("Escape")
    assert browser.run("tip.hidden")


def test_marks_of_a_map_are_failed_missing_and_best(browser, page):
    browser.open(page)
    kinds = ("rect.missing", "rect[fill='#c4262e']", "rect.best")
    counts = [browser.run(f'document.querySelectorAll("svg.map {kind}").length') for kind in kinds]
    entries = range(100)
    missing = sum(not number % 7 for number in entries)
    failed = sum(number % 7 != 0 and number % 11 == 5 for number in entries)
    assert counts[:2] == [2 * missing, 2 * failed]
    assert counts[2] >= 2 * 4


def test_column_header_sorts(browser, page):
    browser.open(page)
    column = "[...document.querySelectorAll('.runs tbody tr:first-child')].map((row) => row.cells[5].dataset.value)"
    click = "document.querySelectorAll('.runs thead button')[5].click()"
    for order in (1, -1):
        browser.run(click)
        values = browser.run(column)
        numbers = [float(value) * order for value in values if value]
        assert numbers == sorted(numbers)
        assert values[-1] == ""  # runs without a test come last either way
    assert browser.run("document.querySelectorAll('.runs th')[5].getAttribute('aria-sort')") == "descending"


def test_words_filter_runs(browser, page):
    browser.open(page)
    browser.run("search.value = 'JSB paper lstm'; search.dispatchEvent(new Event('input'))")
    assert browser.run("[...table.tBodies].filter((body) => !body.hidden).length") == 10  # LSTM and Mogrifier LSTM


def test_tab_key_reaches_everything_visibly(browser, page):
    browser.open(page)
    browser.press_tab()
    assert browser.run("document.activeElement.className") == "skip"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_text_has_enough_contrast(browser, page):
    for scheme in ("light", "dark"):
        browser.open(page, scheme=scheme)
        assert browser.run(CONTRAST) == []


def test_tables_have_captions_and_pictures_have_labels(browser, page):
    browser.open(page)
    assert browser.run(
        "[...document.querySelectorAll('table')].every((one) => one.caption.textContent.trim().length > 10)"
    )
    assert browser.run("[...document.querySelectorAll('th')].every((one) => one.scope)")
    assert browser.run("[...document.querySelectorAll('svg[role=img]')].every((one) => one.ariaLabel.length > 20)")


def test_reloading_keeps_the_readers_state(browser, tmp_path):
    for seed in range(12):
        write_run(tmp_path / "runs", preset(seed=seed), 8 + 0.1 * seed)
    path, looks = tmp_path / "page.html", iter([True])
    report.keep_writing(
        [tmp_path / "runs"], report.ReportFiles(path), every=3600, stop=lambda: next(looks), tell=lambda _: live(path)
    )
    kept = tmp_path / "live.html"
    browser.open(kept)
    assert browser.run("!document.querySelector('.live').hidden")
    browser.run("document.querySelectorAll('.runs details')[3].open = true")
    browser.run("heads[5].firstElementChild.click(); heads[5].firstElementChild.click()")
    browser.run("scrollTo({top: 700, behavior: 'instant'})")
    key = browser.run("document.querySelector('.runs details[open]').dataset.key")
    place = browser.run("keep(), scrollY")
    browser.events = []
    browser.call("Page.reload")
    browser.wait_for_load()
    assert browser.run("scrollY") == place > 0
    assert browser.run("document.querySelector('.runs details[open]').dataset.key") == key
    assert browser.run("heads[5].getAttribute('aria-sort')") == "descending"
    assert browser.errors == []
    assert "data-every" not in path.read_text()  # once watching has ended


def test_live_page_reloads_unless_paused(browser, tmp_path):
    write_run(tmp_path / "runs", preset())
    path = tmp_path / "page.html"
    report.keep_writing(
        [tmp_path / "runs"], report.ReportFiles(path), every=3600, stop=lambda: True, tell=lambda _: live(path)
    )
    kept = path.with_name("live.html")
    kept.write_text(kept.read_text().replace('data-every="3600"', 'data-every="0.3"'))
    browser.open(kept)
    browser.run("document.querySelector('.runs details').open = true")
    browser.events = []
    browser.wait_for_load()
    assert browser.run("document.querySelector('.runs details').open")
    browser.run("document.querySelector('.live button').click()")
    assert browser.run("busy()") is True  # and what is busy is left alone
    assert browser.errors == []


@pytest.fixture
def music(tmp_path):
    """The page of a run that composed a piece of two seconds."""
    folder = write_run(tmp_path / "runs", preset()) / "music"
    folder.mkdir()
    (folder / "piece.png").write_bytes(base64.b64decode(PIXEL))
    with wave.open(str(folder / "piece.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(32000))
    report.write([tmp_path / "runs"], tmp_path / "page.html")
    return tmp_path / "page.html"


def test_music_can_be_seen_and_played(browser, music):
    browser.open(music)
    assert browser.run("document.querySelector('.score img').decode().then(() => 'seen')") == "seen"
    assert browser.run("document.querySelector('.piece audio').checkVisibility()")
    assert browser.run("document.querySelector('.head').hidden")
    browser.run("document.querySelector('audio').play()", gesture=True)
    browser.until("document.querySelector('audio').currentTime > 0.1")
    assert browser.run("document.querySelector('audio').duration") == 2.0
    assert not browser.run("document.querySelector('.head').hidden")  # where it plays
    assert browser.run("busy()")  # so that the page does not reload
    browser.run("document.querySelector('audio').pause()")
    assert browser.errors == []


def test_piano_roll_is_dark_on_a_dark_page(browser, music):
    filters = []
    for scheme in ("light", "dark"):
        browser.open(music, scheme=scheme)
        filters.append(browser.run("getComputedStyle(document.querySelector('.score img')).filter"))
    assert filters[0] == "none"
    assert "invert(1)" in filters[1]


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def live(path):
    path.with_name("live.html").write_text(path.read_text())


CONTRAST = """
(() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (channels(colour)[3] !== 0) return channels(colour);
    }
  };
  const poor = new Set();
  document.querySelectorAll('details').forEach((one) => { one.open = true; });
  for (const one of document.querySelectorAll('body *:not(svg *):not(script)')) {
    if (![...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    const [a, b] = [light(channels(getComputedStyle(one).color)), light(ground(one))];
    if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5) poor.add(one.outerHTML.slice(0, 80));
  }
  return [...poor];
})()
"""
