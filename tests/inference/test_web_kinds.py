"""The pages of text, labels and series in Chromium: what they show is what Python computes, and bad input is named."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from rru.inference.engine import web_page
from rru.tasks.classification import pixel_order
from tests.inference.small_models import energy, make_models
from tests.inference.test_web_music import Random

NAMES = ("letters", "words", "bytes", "texts", "mnist", "pmnist", "sequences", "series", "inputs")
PROBLEM = "document.getElementById('problem').textContent"
STATUS = "document.getElementById('status').textContent"


@pytest.fixture(scope="module")
def models(tmp_path_factory, untrained_run):
    return make_models(tmp_path_factory.mktemp("models"), untrained_run, NAMES)


@pytest.fixture
def show(browser, tmp_path):
    """Return a function that opens the page of a model; afterwards it must have had no errors and asked no host."""

    def opened(trained, width=1280):
        path = tmp_path / "page.html"
        path.write_bytes(web_page(trained))
        browser.open(path, width=width, touch=width < 400)
        browser.until("document.getElementById('facts').childElementCount > 0")
        return browser

    yield opened
    assert browser.errors == []
    assert browser.requests == [(tmp_path / "page.html").as_uri()]
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")


def give(browser, field, text):
    """Type a text into a field."""
    browser.run(f"byId('{field}').value = {json.dumps(text)}; byId('{field}').dispatchEvent(new Event('input'))")


def paste(browser, field, text):
    """Paste an expression of JavaScript into a field; the field must stay empty: it would take seconds to lay out."""
    browser.run(
        f"(() => {{ const clipboardData = new DataTransfer(); clipboardData.setData('text/plain', {text});"
        f"byId('{field}').dispatchEvent(new ClipboardEvent('paste', {{ clipboardData, cancelable: true }})); }})()"
    )
    assert browser.run(f"byId('{field}').value") == ""
    assert browser.run(f"byId('{field}').placeholder").endswith(
        " characters, too many to show, are here. Paste or write to replace them."
    )


def logits_of(trained, tokens):
    with torch.no_grad():
        return trained.model(torch.tensor(tokens)[:, None])[0][-1, 0].double()


class TestText:
    def test_the_likeliest_letters_are_those_of_pytorch(self, show, models):
        page, trained = show(models["letters"]), models["letters"]
        give(page, "prompt", "it was the")
        page.until("writer.last !== undefined && document.querySelectorAll('#next li').length === 8")
        page.until("document.getElementById('begun').textContent === 'it was the'")
        chances = logits_of(trained, trained.vocabulary.encode("it was the").tolist()).softmax(0)
        page.until(f"Math.abs(writer.model.chances()[5] - {float(chances[5])}) < 1e-5")
        np.testing.assert_allclose(page.run("Array.from(writer.model.chances())"), chances, atol=1e-5)
        first = page.run("document.querySelector('#next .name').textContent")
        expected = trained.vocabulary.tokens[int(chances[2:].argmax()) + 2]
        assert first == ("space" if expected == "_" else expected)

    def test_it_writes_what_python_draws_with_the_same_random_numbers(self, show, models):
        page, trained = show(models["letters"], 390), models["letters"]
        page.run("byId('length').value = 20; byId('length').dispatchEvent(new Event('input'))")
        give(page, "prompt", "the best")
        page.until("document.getElementById('begun').textContent === 'the best' && writer.model.chances().length > 1")
        page.click("#write")
        page.until("writer.tokens.length === 20 && !writer.writing")
        random, tokens = Random(1), trained.vocabulary.encode("the best").tolist()
        for _ in range(20):
            weights = ((logits_of(trained, tokens) - 0.0) / np.float32(0.8)).exp().numpy()
            weights[:2] = 0  # padding and unknown
            tokens.append(int(np.argmax(np.cumsum(weights) > random() * weights.sum())))
        assert page.run("writer.text") == trained.vocabulary.decode(tokens[8:])
        assert page.run("document.getElementById('drawn').textContent") == page.run("writer.text")

    def test_words_are_joined_as_python_joins_them_and_can_be_chosen(self, show, models):
        page, trained = show(models["words"]), models["words"]
        tokens = list(range(2, len(trained.vocabulary)))
        assert page.run(f"writer.vocabulary.text({tokens})") == trained.vocabulary.decode(tokens)
        give(page, "prompt", trained.vocabulary.tokens[3])
        page.until("!writer.stale && document.querySelectorAll('#next button').length > 2")
        chosen = page.run("document.querySelector('#next .name').textContent")
        page.click("#next button")
        page.until("writer.tokens.length === 1")
        assert page.run("writer.text").strip() == chosen

    def test_bytes_make_characters(self, show, models):
        page, trained = show(models["bytes"]), models["bytes"]
        tokens = trained.vocabulary.encode("it was the best").tolist()
        assert page.run(f"writer.vocabulary.text({tokens})") == "it was the best"
        assert page.run('writer.vocabulary.parts("it was").map(({ token }) => token)') == tokens[:6]

    def test_unknown_characters_are_named(self, show, models):
        page = show(models["letters"])
        give(page, "prompt", "it was \u00e9t\u00e9 \U0001f600")
        page.until(f"{PROBLEM} !== ''")
        assert page.run(PROBLEM) == (
            "The model has never seen 2 characters of this text: \u201c\u00e9\u201d, \u201c\U0001f600\u201d. "
            "It reads each as unknown."
        )
        give(page, "prompt", "it")
        page.until("document.getElementById('problem').hidden")

    def test_a_megabyte_is_read_without_blocking_the_page(self, show, models):
        page = show(models["letters"])
        page.run("globalThis.ticks = 0; setInterval(() => ++ticks, 1)")
        paste(page, "prompt", "'it was '.repeat(150000)")
        page.until(f"{PROBLEM} !== ''")
        assert page.run(PROBLEM) == "This is long: the model reads the last 20,000 characters."
        page.until(f"{STATUS} === '' && document.querySelectorAll('#next li').length === 8")
        assert page.run("ticks") > 2
        give(page, "prompt", "it")
        page.until("document.getElementById('begun').textContent === 'it'")
        assert page.run("byId('prompt').placeholder") == "Write or paste a text"

    def test_without_a_beginning_the_first_letter_is_drawn_too(self, show, models):
        page = show(models["letters"])
        give(page, "prompt", "")
        page.until("writer.last === undefined && !document.getElementById('nothing').hidden")
        page.click("#write")
        page.until("writer.tokens.length > 3")


class TestLabels:
    def test_texts_have_the_chances_of_python_and_names_are_texts(self, show, models):
        trained = models["texts"]
        facts = replace(trained.facts, classes=("<img src=x>", *trained.facts.classes[1:]))
        page, text = show(replace(trained, facts=facts)), "The film was GREAT, really great zzz!"
        give(page, "text", text)
        page.until("document.querySelectorAll('#words span').length === 7")
        expected = list(trained.classify(text).values())
        page.until(f"{STATUS}.startsWith('After 7 words')")
        found = page.run("Array.from(labels.reading.track.at(-1))")
        np.testing.assert_allclose(sorted(found, reverse=True), expected, atol=1e-5)
        assert page.run("document.getElementById('words').textContent") == text
        assert "zzz" in page.run("[...document.querySelectorAll('#words .unknown')].map((one) => one.textContent)")
        assert "<img src=x>" in page.run("document.getElementById('chances').textContent")
        assert page.run("document.images.length") == 0

    def test_long_and_empty_texts_are_named(self, show, models):
        page, trained = show(models["texts"]), models["texts"]
        give(page, "text", "... !")
        page.until(f"{PROBLEM} === 'There are no words in it.'")
        give(page, "text", " ")
        page.until("document.getElementById('problem').hidden")
        paste(page, "text", "'film great '.repeat(95000)")
        context = trained.config.task.context
        page.until(f"{PROBLEM} === 'This is long: the model reads the last {context} words.'")
        page.until(f"labels.reading.track.length === {context}")
        page.click("#clear")
        page.until("!document.getElementById('empty').hidden")

    @pytest.mark.parametrize("name", ["mnist", "pmnist"])
    def test_a_drawn_digit_is_read_as_python_reads_it(self, show, models, name):
        page, trained = show(models[name], 390), models[name]
        page.click("#examples button:nth-child(4)")
        page.until("drawing.reading.track.length === 784")
        pixels = np.array(page.run("Array.from(drawing.pixels())"), np.float32)
        image = pixels.reshape(28, 28)
        assert image[:3].sum() == image[:, :3].sum() == 0
        assert image.max() > 0.9
        with torch.no_grad():
            inputs = torch.from_numpy(pixels[pixel_order(trained.task)])[:, None, None]
            expected = trained.model(inputs)[0][0].softmax(0)
        found = page.run("Array.from(drawing.reading.track.at(-1))")
        np.testing.assert_allclose(found, expected, atol=1e-5)
        page.click("#clear")
        page.until("!document.getElementById('empty').hidden")

    def test_sequences_have_the_chances_of_python(self, show, models):
        page, trained = show(models["sequences"]), models["sequences"]
        values = np.random.default_rng(0).normal(size=(9, len(trained.facts.columns)))
        values[3, 0] = np.nan
        rows = "\n".join(",".join("" if np.isnan(number) else str(number) for number in row) for row in values)
        give(page, "values", ",".join(trained.facts.columns) + "\n" + rows)
        page.until("labels.reading.track.length === 9")
        names = page.run("labels.reading.names")
        found = dict(zip(names, page.run("Array.from(labels.reading.track.at(-1))"), strict=True))
        assert found == pytest.approx(trained.classify(values), abs=1e-5)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x,y\n", "There are no numbers in it."),
            ("1\n2\n", "Each row must have 2 numbers: x, y. Missing: y."),
            ("a,y\n1,2\n", "Each row must have 2 numbers: x, y. Missing: x."),
            ("1,2,3\n", "Each row must have 2 numbers: x, y. There are 3 columns, and no head that names them."),
            ("1,2\n3\n", "Row 2 has fewer cells than others."),
            ("1,2\nx,3\n", "Row 2 has something that is not a number."),
            ("1,1e999\n", "Row 1 has something that is not a number."),
            ("1e30,1\n", "The model cannot read this: its values are too far from those in training."),
        ],
    )
    def test_bad_sequences_are_named(self, show, models, text, message):
        page = show(models["sequences"])
        give(page, "values", text)
        page.until(f"{PROBLEM} !== ''")
        assert page.run(PROBLEM) == message
        assert page.run("document.getElementById('result').hidden")

    def test_a_megabyte_of_steps_is_read(self, show, models):
        page, context = show(models["sequences"], 390), models["sequences"].config.task.context
        paste(page, "values", "'1.5,-2\\n'.repeat(150000)")
        page.until(f"labels.reading.track.length === {context}")
        assert page.run(PROBLEM) == f"This is long: the model reads the last {context} steps."

    def test_a_digit_can_be_drawn_with_the_keyboard(self, show, models):
        page = show(models["mnist"])
        page.run("drawing.canvas.focus()")
        for key in ("ArrowDown", "ArrowDown", "ArrowLeft"):
            page.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, modifiers=8)  # with Shift
        page.until("drawing.reading.track.length === 784")
        assert page.run("drawing.place") == {"x": 130, "y": 160}
        shown = page.run("getComputedStyle(drawing.canvas).getPropertyValue('--y')")
        assert float(shown.removesuffix("%")) == pytest.approx(100 * 160 / 280)


class TestSeries:
    def test_the_forecast_is_that_of_python_and_can_be_saved(self, show, models, tmp_path):
        page, table = show(models["series"]), energy(tmp_path / "energy.csv")
        give(page, "values", table.read_text())
        page.until("forecaster.quantiles?.length === 4")
        forecasts = models["series"].forecast(table)
        np.testing.assert_allclose(page.run("forecaster.quantiles"), forecasts[0].quantiles, rtol=2e-5)
        page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        page.click("#save")
        while not (tmp_path / "forecast.csv").exists():
            page.settle()
        head, *rows = (tmp_path / "forecast.csv").read_text().splitlines()
        columns = forecasts.columns()
        assert head == ",".join(columns)
        assert [row.partition(",")[0] for row in rows] == ["2026-05-01", "2026-05-02", "2026-05-03", "2026-05-04"]
        found = [[float(number) for number in row.split(",")[1:]] for row in rows]
        np.testing.assert_allclose(np.transpose(found), list(columns.values())[1:], rtol=2e-5)

    def test_another_series_is_scaled_by_its_own_values(self, show, models):
        page, trained = show(models["series"]), models["series"]
        values = 1000 + 50 * np.sin(np.arange(80)) + np.arange(80)
        days = np.arange("2026-01-01", "2026-03-22", dtype="datetime64[D]")
        give(page, "values", "\n".join(map(str, values)))
        page.until("forecaster.quantiles?.length === 4")
        page.run("scale.value = '-1'; scale.dispatchEvent(new Event('change'))")
        scaling = trained.facts.scaling("another", values)
        found = page.run("ownScaling(forecaster.values, forecaster.model.numbers.season)")
        assert found == pytest.approx(
            {"floor": scaling.floor, "centre": scaling.centre, "unit": scaling.unit, "least": 0, "width": 1}, rel=1e-9
        )
        scaled = replace(trained, facts=replace(trained.facts, series=dict.fromkeys(trained.facts.series, scaling)))
        (expected,) = scaled.forecast({"day": days, "load": values})
        np.testing.assert_allclose(page.run("forecaster.quantiles"), expected.quantiles, rtol=2e-5)

    def test_other_columns_and_the_calendar_are_read(self, show, models, tmp_path):
        page, table = show(models["inputs"]), energy(tmp_path / "grows.csv", grows=True)
        (expected,) = models["inputs"].forecast(table)
        give(page, "values", table.read_text())
        page.until("forecaster.quantiles?.length === 4")
        np.testing.assert_allclose(page.run("forecaster.quantiles"), expected.quantiles, rtol=2e-5)
        assert page.run(PROBLEM) == ""
        give(page, "values", "\n".join(f"{5 + day % 7}" for day in range(30)))
        page.until(f"{PROBLEM} === 'The table does not have price, the times: taken at the mean.'")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("time,load\n", "There are no numbers in it."),
            ("a,b\nx,y\n", "There are no numbers in it."),
            ("5\n", "The series must have two values or more."),
            ("1\n2\n1e999\n4\n", "1 row without a number, such as row 3 with \u201c1e999\u201d: read as missing."),
            ("1e308\n2\n-1e308\n", "The forecast is not finite: these values are far from those in training."),
            ("1\n2\nthree\n4\n5\n", "1 row without a number, such as row 3 with \u201cthree\u201d: read as missing."),
        ],
    )
    def test_bad_tables_are_named(self, show, models, text, message):
        page = show(models["series"])
        give(page, "values", text)
        page.until(f"{PROBLEM} !== ''")
        assert page.run(PROBLEM).startswith(message)

    def test_a_megabyte_of_numbers_is_forecast(self, show, models):
        page = show(models["series"], 390)
        paste(page, "values", "'12.25\\n13.5\\n14.75\\n'.repeat(60000)")
        page.until("forecaster.quantiles?.length === 4")
        assert page.run(PROBLEM) == "This is long: the last 50,000 rows are read."
