"""The page of a model of music, in Chromium: it is played, composes, sounds, and saves what Python composes."""

import math

import mido
import numpy as np
import pytest
import torch

from rru import data
from rru.inference.engine import blob, web_page
from rru.inference.engine.page import OPENING_STEPS
from rru.inference.midi import midi
from rru.inference.music import Piece
from tests.inference.small_models import make_models
from tests.inference.test_engine_models import few_voices

COMPOSED = "music.composed.length === music.bars * music.bar"
ROLL = "music.roll.map((keys) => Array.from(keys))"
MASK = 2**64 - 1


@pytest.fixture(scope="module")
def trained(tmp_path_factory, untrained_run):
    return few_voices(make_models(tmp_path_factory.mktemp("models"), untrained_run, ["nade"])["nade"])


@pytest.fixture(scope="module")
def page(trained, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "music.html"
    path.write_bytes(web_page(trained))
    return path


@pytest.fixture
def opened(browser, page):
    browser.open(page)
    browser.until("typeof music === 'object'")
    browser.until(COMPOSED)
    yield browser
    assert browser.errors == []
    assert browser.requests == [page.as_uri()]


class Random:
    """SplitMix64, which the engine draws with."""

    def __init__(self, seed):
        self.state = seed

    def __call__(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 11) / 2**53


def sampled(head, conditions, random):
    """Draw a chord from PyTorch's conditions (c,): which key is the next that is on, until there is none."""
    weights = {name: value.double().numpy() for name, value in head.sampling().items()}
    order, chord, last = weights["order"].astype(int), np.zeros(88), -1
    while last < 87:
        hidden = np.maximum(conditions[88:] + chord @ weights["to_hidden"], 0)
        logits = (conditions[:88] + hidden @ weights["from_hidden"])[order][last + 1 :]
        off = np.concatenate([[0], np.cumsum(-np.logaddexp(0, logits))])  # log of the chance that all so far are off
        chances, place = np.exp(off[:-1] - np.logaddexp(0, -logits)), random()
        if place >= 1 - math.exp(off[-1]):
            break
        after = np.cumsum(chances) - place * chances.sum() / (1 - math.exp(off[-1]))
        last += 1 + int(np.argmax(after > 0))
        chord[order[last]] = 1
    return chord


def composed(trained, given, steps, seed):
    """Continue a roll with PyTorch and the engine's random numbers."""
    random, chords = Random(seed), []
    with torch.no_grad():
        outputs, state = trained.model(torch.from_numpy(given.astype(np.float32))[:, None])
        for _ in range(steps):
            chords.append(sampled(trained.model.head, outputs[-1, 0].double().numpy(), random))
            outputs, state = trained.model(torch.tensor(chords[-1], dtype=torch.float32)[None, None], state)
    return np.concatenate([given, np.array(chords)]).astype(np.uint8)


def saved(browser, folder):
    """Click on the button that saves the piece, and return the file."""
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    browser.click("#save")
    while not (files := list(folder.glob("*.mid"))):
        browser.settle()
    return files[0]


def test_the_download_is_the_midi_file_that_python_composes_with_the_same_random_numbers(opened, trained, tmp_path):
    given = data.load("bach").test[0][:OPENING_STEPS]
    roll = composed(trained, given, 32, seed=1)
    assert roll[OPENING_STEPS:].sum() > 32
    np.testing.assert_array_equal(opened.run(ROLL), roll)
    file = saved(opened, tmp_path)
    assert file.name == "piece-bach-1.mid"
    assert file.read_bytes() == midi(Piece(roll, OPENING_STEPS, 1))


def test_another_take_has_other_notes_and_settings_change_them(opened, trained):
    first = opened.run(ROLL)
    opened.click("#take")
    opened.until("document.getElementById('take-value').textContent === '2'")
    opened.until(COMPOSED)
    second = opened.run(ROLL)
    assert second[:OPENING_STEPS] == first[:OPENING_STEPS]
    assert second != first
    np.testing.assert_array_equal(second, composed(trained, np.array(first[:OPENING_STEPS]), 32, seed=2))
    opened.run("voices.value = 3; voices.dispatchEvent(new Event('input'))")
    opened.until(COMPOSED)
    assert {sum(keys) for keys in opened.run(ROLL)[OPENING_STEPS:]} == {3}


def test_keys_of_the_computer_play_notes_that_the_model_continues(opened):
    for key in ("KeyA", "KeyD", "KeyG"):  # C, E, G, one after another
        opened.press(key)
    opened.until("music.given.length === 3")
    opened.until(COMPOSED)
    roll = np.array(opened.run(ROLL))
    assert [np.flatnonzero(keys).tolist() for keys in roll[:3]] == [[60 - 21], [64 - 21], [67 - 21]]
    assert len(roll) == 3 + 32
    opened.until("music.player.playing")  # it answers after a pause
    opened.until("music.player.sound.started > 3")


def test_keys_that_are_down_together_are_a_chord(opened):
    down = {"type": "keyDown"}
    for key in ("KeyA", "KeyD"):
        opened.call("Input.dispatchKeyEvent", **down, key=key, code=key)
    opened.until("music.phrase.keys.size === 2")
    for key in ("KeyA", "KeyD"):
        opened.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)
    opened.until("music.given.length >= 1 && !music.phrase.keys.size")
    assert np.flatnonzero(opened.run("Array.from(music.given[0])")).tolist() == [39, 43]


def test_a_midi_keyboard_plays(opened):
    opened.run(
        "navigator.requestMIDIAccess = async () => ({ inputs: new Map([['a', (globalThis.input = { id: 'a' })]]) })"
    )
    opened.click("#midi")
    opened.until("document.getElementById('status').textContent === 'Listening to 1 MIDI keyboard.'")
    opened.run("input.onmidimessage({ data: [0x90, 62, 80] }); input.onmidimessage({ data: [0x90, 65, 80] })")
    opened.run("input.onmidimessage({ data: [0x80, 62, 0] }); input.onmidimessage({ data: [0x90, 65, 0] })")
    opened.until("!music.phrase.keys.size && music.given.length < 8")
    assert np.flatnonzero(opened.run("Array.from(music.given[0])")).tolist() == [62 - 21, 65 - 21]


def test_without_vector_instructions_and_web_midi_it_composes_the_same(opened, page):
    roll = opened.run(ROLL)
    changed = (
        "const { validate } = WebAssembly; WebAssembly.validate = (bytes) => (WebAssembly.validate = validate, false);"
        "delete Navigator.prototype.requestMIDIAccess;"
    )
    script = opened.call("Page.addScriptToEvaluateOnNewDocument", source=changed)
    opened.open(page)
    opened.until("typeof music === 'object'")
    opened.until(COMPOSED)
    opened.call("Page.removeScriptToEvaluateOnNewDocument", **script)
    assert opened.run("music.model.simd") is False
    assert opened.run("document.getElementById('midi').hidden")
    assert opened.run(ROLL) == roll


@pytest.mark.parametrize("temperature", ["0.3", "1.6"])
def test_every_temperature_and_number_of_voices_composes(opened, temperature):
    opened.run(f"temperature.value = {temperature}; temperature.dispatchEvent(new Event('input'))")
    for voices in ("1", "8", "0"):
        opened.run(f"voices.value = {voices}; voices.dispatchEvent(new Event('input'))")
        opened.until(COMPOSED)
        assert max(map(sum, opened.run(ROLL)[OPENING_STEPS:])) > 0


def test_a_piece_without_notes_is_saved_too(opened, tmp_path):
    opened.run("music.bars = 0; music.open(-1)")
    opened.until("music.roll.length === 0")
    assert len(mido.MidiFile(saved(opened, tmp_path)).tracks) == 1


def test_a_click_into_the_roll_and_the_arrow_keys_set_notes(opened):
    opened.click("#clear")
    opened.until("music.given.length === 0")
    opened.until(COMPOSED)
    x, y = opened.run(
        "(() => { const box = music.picture.canvas.getBoundingClientRect(), p = music.picture;"
        "return [box.left + p.x(2) + 3, box.top + p.y(60) + 5]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        opened.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    opened.until("music.given.length === 3")
    assert np.argwhere(opened.run("music.given.map((keys) => Array.from(keys))")).tolist() == [[2, 39]]
    opened.run("music.picture.canvas.focus()")
    for key in ("ArrowRight", "ArrowUp", "Enter"):
        opened.press(key)
    opened.until("music.given[1].includes(1)")
    assert opened.run("document.getElementById('status').textContent") == "C sharp 4, bar 1, step 2, yours"
    opened.click("#undo")
    opened.until("!music.given[1].includes(1)")


def test_going_on_keeps_what_the_model_composed(opened):
    before = opened.run(ROLL)
    opened.click("#further")
    opened.until("music.given.length > 8")
    opened.until(COMPOSED)
    after = opened.run(ROLL)
    assert after[: opened.run("music.given.length")] == before[: opened.run("music.given.length")]
    assert len(after) >= len(before) + 24


def test_play_sounds_until_stop(opened):
    opened.click("#play")
    opened.until("music.player.playing && music.player.now > 0.2")
    assert opened.run("music.player.sound.started") >= 3
    assert opened.run("document.getElementById('play').textContent") == "Stop"
    opened.click("#play")
    opened.until("!music.player.playing")


def test_notes_are_heard_and_not_distorted(opened):
    loudest, after = opened.run(
        "(async () => { const context = new OfflineAudioContext(1, 3 * 8000, 8000), sound = new Sound(context);"
        "for (const note of [48, 60, 64, 67]) sound.note(note, 0, 0.5);"
        "const samples = (await context.startRendering()).getChannelData(0);"
        "const most = (part) => part.reduce((a, b) => Math.max(a, Math.abs(b)), 0);"
        "return [most(samples), most(samples.subarray(-800))]; })()"
    )
    assert 0.1 < loudest < 1
    assert after < 0.01


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light"), (320, "dark")])
def test_it_fits_the_window(opened, page, width, scheme):
    opened.open(page, width=width, scheme=scheme, touch=width < 400)
    opened.until("typeof music === 'object'")
    assert opened.run("document.documentElement.scrollWidth <= innerWidth")
    assert (
        opened.run(
            "[...document.querySelectorAll('input, select, button, canvas')].filter((one) => !one.labels?.length "
            "&& !one.textContent.trim() && !one.getAttribute('aria-label')).length"
        )
        == 0
    )


def test_a_damaged_model_shows_what_the_engine_says(browser, trained, tmp_path):
    content, path = web_page(trained).decode(), tmp_path / "damaged.html"
    start = content.index('id="model.rru">') + 2000
    path.write_text(content[:start] + ("A" if content[start] != "A" else "B") + content[start + 1 :])
    browser.open(path)
    browser.until("!document.getElementById('problem').hidden")
    assert browser.run("document.getElementById('problem').textContent") == (
        "The model in this page cannot be used: the model is damaged: its checksum is wrong."
    )


def test_the_page_is_not_much_larger_than_the_model(trained, page):
    assert page.stat().st_size < len(blob(trained)) * 4 / 3 + 175_000
