"""`rru export --format c`: a folder that a C compiler turns into a program that predicts what rru predicts."""

import os
import platform
import re
import shutil
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from rru.inference import export, load
from rru.inference.engine import blob, folder, layer_blob
from rru.inference.line_reader import LineReader
from tests.inference.c_engine import ENGINE, STRICT, zig
from tests.inference.small_models import energy, of_own_class
from tests.inference.test_engine import forged, inputs_of, layer_of
from tests.inference.test_engine_models import few_voices, with_random_weights
from tests.variants import VARIANTS

LINES = {
    "characters": ["it was the best\n", "of times\n"],
    "letters": ["it was\n", " the best\n"],
    "words": ["it was the best of times\n", "and the worst\n"],
    "tokens": ["it was great really nonsense\n", "the best\n"],
    "bytes": ["it was the best\n"],
    "texts": ["Film was GREAT, really great!\n", "\n", "awful\n"],
    "reviews": ["It was the best.\n", "Really?\n"],
    "sequences": ["0.5,-1\n", "1,1\n", "\n", "0.25, 0\n"],
    "music": ["60 64 67\n", "60 65 69 72\n", "\n"],
}
FILES = ["CMakeLists.txt", "Makefile", "README.md", "config.json", "main.c", "model.rru", "rru.c", "rru.h"]
SANITIZE = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
needs_compiler = pytest.mark.skipif(folder.compiler() is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The example program, with the sanitizers of addresses and undefined behaviour and all warnings as errors."""
    if folder.compiler() is None:
        pytest.skip("there is no C compiler")
    place = tmp_path_factory.mktemp("program") / "main"
    sources = [ENGINE / "main.c", ENGINE / "rru.c"]
    subprocess.run([*folder.compiler(), *STRICT, *SANITIZE, *sources, "-o", place], check=True)
    return place


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_have_no_warnings_about_the_program(compiler, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    sources = [ENGINE / "main.c", ENGINE / "rru.c"]
    subprocess.run([compiler, *STRICT, "-O1", *sources, "-o", tmp_path / "main"], check=True)


def ran(program, content, lines, folder, *options):
    (folder / "model.rru").write_bytes(content)
    return subprocess.run(
        [program, folder / "model.rru", *options],
        input="".join(lines).encode(),
        capture_output=True,
        check=False,
        env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0"},  # memory is for the whole life of the program
    )


def numbers(text):
    """Return a text without its numbers, and these."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return parts[::2], [float(number) for number in parts[1::2]]


@pytest.mark.parametrize("name", LINES)
def test_the_program_prints_what_rru_stream_prints(program, models, name, tmp_path):
    trained, lines = models[name], LINES[name]
    done = ran(program, blob(trained), lines, tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    reader = LineReader(trained)
    expected = [answer for line in lines if (answer := reader.read(line))]
    printed = [
        re.sub("bits per token", f"bits per {trained.kind[:-1]}", line) for line in done.stdout.decode().splitlines()
    ]
    assert len(printed) == len(expected) > 0
    for found, wanted in zip(printed, expected, strict=True):
        words, values = numbers(found)
        assert words == numbers(wanted.replace("\\\\n", "\\n"))[0]
        np.testing.assert_allclose(values, numbers(wanted)[1], atol=1.01)  # per cents are rounded


@pytest.mark.parametrize("name", ["nade", "tied"])
def test_joint_music_is_sampled(program, models, name, tmp_path):
    trained = few_voices(models[name])
    done = ran(program, blob(trained), LINES["music"][:1], tmp_path)
    chances = dict(re.findall(r"(\d+) (\d+)%", done.stdout.decode()))
    reader = LineReader(trained)
    expected = dict(re.findall(r"(\d+) (\d+)%", reader.read("60 64 67")))
    both = set(chances) & set(expected)  # of 5 % and more
    likely = {note for shown in (chances, expected) for note, chance in shown.items() if int(chance) >= 9}
    assert both
    assert likely <= both
    assert max(abs(int(chances[note]) - int(expected[note])) for note in both) < 10  # 1000 chords each


def test_pictures_are_read_as_784_numbers_in_a_line(program, models, tmp_path):
    pixels = np.zeros((28, 28), np.float32)
    pixels[4:24, 13:16] = 1
    done = ran(program, blob(models["mnist"]), [" ".join(map(str, pixels.flatten()))], tmp_path)
    with torch.no_grad():
        chances = models["mnist"].model(torch.from_numpy(pixels).reshape(784, 1, 1))[0][0].softmax(0)
    digit, chance = re.match(rb"(\d) (\d+)%", done.stdout).groups()
    assert int(digit) == int(chances.argmax())
    assert int(chance) == pytest.approx(100 * float(chances.max()), abs=1)


def test_series_are_forecast(program, models, tmp_path):
    table = energy(tmp_path / "energy.csv")
    (expected,) = models["series"].forecast(table)
    values = [f"{line.split(',')[1]}\n" for line in table.read_text().splitlines()[1:]]
    done = ran(program, blob(models["series"]), values, tmp_path)
    head, *rows = done.stdout.decode().splitlines()
    assert head == "forecast low_80 high_80 low_95 high_95"
    found = np.array([[float(number) for number in row.split()] for row in rows])
    np.testing.assert_allclose(found, expected.quantiles[:, [2, 1, 3, 0, 4]], rtol=2e-5)


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("music", "12 60\n", "error: line: must have MIDI notes that the model has"),
        ("music", "C4\n", "error: line: must have MIDI notes, separated by spaces"),
        ("sequences", "1,x\n", "error: line: must have numbers"),
        ("sequences", "1,2,3\n", "error: line: must have as many numbers as a step has inputs"),
        ("series", "\n", "error: series: must have a known value"),
    ],
)
def test_bad_lines_are_named(program, models, name, line, message, tmp_path):
    done = ran(program, blob(models[name]), [line], tmp_path)
    assert done.returncode == 1
    assert message in done.stderr.decode()


def test_damaged_and_forged_models_never_read_outside_their_memory(program, models, tmp_path):
    """The sanitizers end the program with another exit code than 0 and 1."""
    random, runs = np.random.default_rng(0), 0
    for name in ("nade", "tied", "texts", "series", "inputs"):
        content = blob(models[name], int8=name == "texts")
        for _ in range(10):
            changed = forged(content, random)
            done = ran(program, changed, ["60 64\n", "1\n"], tmp_path)
            assert done.returncode in (0, 1), done.stderr.decode()
            runs += done.returncode
    assert runs > 20
    done = ran(program, content[:-1] + b"\7", [], tmp_path)
    assert done.stderr.decode().endswith("model.rru: the model is damaged: its checksum is wrong\n")


@pytest.fixture(scope="module")
def exported(models, tmp_path_factory):
    place = tmp_path_factory.mktemp("exported") / "model"
    assert export(models["music"], place, "c", int8=True) == FILES
    return place


@needs_compiler
class TestFolder:
    def test_the_card_has_sizes_and_time(self, exported, models):
        card = (exported / "README.md").read_text()
        rows = dict(re.findall(r"\| (.+?) \| (.+?) \|", card))
        assert rows["weights"] == f"{(exported / 'model.rru').stat().st_size:,} bytes (int8, each row with its scale)"
        state = 4 * models["music"].model.layers.hidden_size
        assert re.fullmatch(rf"[\d,]+ bytes, {state:,} bytes", rows["memory, of which state"])
        assert re.fullmatch(r"[\d,]+ bytes", rows["code"])
        assert re.fullmatch(r"[\d.]+ microseconds", rows["a step"])
        assert "rru_chord(model, 1.0f, 0, next)" in card

    @pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
    def test_make_builds_the_program_and_an_array_gives_the_same(self, exported, tmp_path):
        place = shutil.copytree(exported, tmp_path / "model")
        subprocess.run(["make", "CFLAGS=-O1"], cwd=place, check=True, capture_output=True)
        printed = subprocess.run(["./main"], cwd=place, input=b"60 64\n", capture_output=True, check=True).stdout
        assert printed.startswith(b"next ")
        array = subprocess.run(["./main", "--array"], cwd=place, capture_output=True, check=True).stdout
        words = [int(word, 16) for word in re.findall(rb"0x([0-9a-f]{8})u", array)]
        assert np.array(words, "<u4").tobytes() == (place / "model.rru").read_bytes()
        (place / "array.c").write_bytes(array)
        subprocess.run([*folder.compiler(), *STRICT, "-c", "array.c", "-o", "array.o"], cwd=place, check=True)

    @pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
    def test_cmake_builds_the_program(self, exported, tmp_path):
        place = shutil.copytree(exported, tmp_path / "model")
        for command in (["cmake", "-S", ".", "-B", "build"], ["cmake", "--build", "build"]):
            subprocess.run(command, cwd=place, check=True, capture_output=True)
        ran = subprocess.run(["build/main"], cwd=place, input=b"60 64\n", capture_output=True, check=True)
        assert ran.stdout.startswith(b"next ")

    def test_without_a_compiler_the_card_says_so(self, models, tmp_path, monkeypatch):
        monkeypatch.setattr(folder, "compiler", lambda: None)
        export(models["series"], tmp_path / "model", "c")
        assert (
            "| a forecast | not measured: there was no C compiler |" in (tmp_path / "model" / "README.md").read_text()
        )

    def test_int8_is_for_c_alone(self, models, tmp_path):
        with pytest.raises(ValueError, match="int8 is for the format c or web, got 'onnx'"):
            export(models["music"], tmp_path / "model", "onnx", int8=True)

    def test_a_model_without_a_head_in_c_is_refused(self, models, tmp_path):
        with pytest.raises(ValueError, match=r"a model of music \(OwnModel with a Linear\) has no head in C"):
            export(of_own_class(models["music"]), tmp_path / "model", "c")
        assert not (tmp_path / "model").exists()


FREESTANDING = ["-std=gnu99", "-O2", "-ffreestanding", "-nostdlib", "-static", "-ffunction-sections"]
TARGETS = {
    "qemu-aarch64": ["-target", "aarch64-linux-none"],
    "qemu-arm": ["-target", "thumb-linux-eabihf", "-mcpu=cortex_m4+vfp4d16sp", "-fomit-frame-pointer"],
}


def outputs_of(program, content, x):
    """Return what a program without libc writes for a blob and inputs (T, 1, m)."""
    given = x.numpy().astype("<f4").tobytes()
    sizes = struct.pack("<2I", len(content), len(given))
    done = subprocess.run(program, input=sizes + content + given, capture_output=True, check=True)
    return np.frombuffer(done.stdout, "<f4").reshape(len(x), -1)


def without_libc(command, place):
    sources = [Path(__file__).with_name("freestanding.c"), ENGINE / "rru.c"]
    flags = ["-Wall", "-Wextra", "-Werror", f"-I{ENGINE}", "-Wl,--gc-sections"]
    subprocess.run([*command, *FREESTANDING, *flags, *sources, "-o", place], check=True)
    return place


@pytest.fixture(scope="module")
def tied(untrained_run):
    """A small model with one network for all keys."""
    trained = load(untrained_run("bach", "rru", None, ["output=tied", "model.budget=20k"]))
    with_random_weights(trained.model)
    return trained


def check_program(program, tied):
    layers = [layer_of(variant, num_layers=2) for variant in VARIANTS]
    runs = [(layer, inputs_of(37), partial(layer_blob, layer)) for layer in layers]
    for model, x, content in [*runs, (tied.model, (inputs_of(88, 8) > 1).float(), partial(blob, tied))]:
        with torch.no_grad():
            expected = model(x)[0][:, 0].numpy()
        np.testing.assert_allclose(outputs_of(program, content(), x), expected, rtol=1e-5, atol=1e-5)
        assert np.abs(outputs_of(program, content(int8=True), x) - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="of Linux on x86_64")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_the_engine_needs_no_libc(tied, tmp_path):
    check_program([without_libc(["gcc"], tmp_path / "steps")], tied)


@pytest.mark.slow
@pytest.mark.parametrize("emulator", TARGETS)
def test_other_processors_compute_the_same(emulator, tied, tmp_path):
    if zig() is None:
        pytest.skip("ziglang is not installed")
    if shutil.which(emulator) is None:
        pytest.skip(f"{emulator} is not installed")
    check_program([emulator, without_libc([*zig(), *TARGETS[emulator]], tmp_path / "steps")], tied)
