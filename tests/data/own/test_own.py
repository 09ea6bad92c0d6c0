"""Users' own files: what they are taken for, how they are divided, and what is refused."""

import os
import pickle
import random
import zipfile

import mido
import numpy as np
import pytest

from rru import data, tasks
from rru.data import DataError, from_csv, from_path
from rru.data.midi import read_midi
from rru.data.own.source import fingerprint
from rru.data.spelling import command_spelling
from rru.settings import Config, presets
from tests import own_files


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RRU_CACHE_DIR", str(tmp_path / "cache"))


def test_a_text_is_divided_by_position_and_reads_back(tmp_path):
    path = own_files.text(tmp_path / "My Novel.txt")
    own = from_path(path)
    loaded = own.load()
    assert own.name == "my-novel"
    assert "My Novel.txt: text by characters" in own.summary
    joined = "".join(loaded.vocabulary.decode(getattr(loaded, split)) for split in data.SPLITS)
    assert joined == path.read_text()
    sizes = [len(getattr(loaded, split)) for split in data.SPLITS]
    assert np.allclose(np.array(sizes) / sum(sizes), [0.8, 0.1, 0.1], atol=0.01)


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("space", ["", " "])
def test_a_text_of_one_line_is_divided_too(tmp_path, end, space):
    (tmp_path / "line.txt").write_text(space.join(f"w\N{GREEK SMALL LETTER OMEGA}rd{n}" for n in range(1000)) + end)
    own = from_path(tmp_path / "line.txt")
    train, valid, test = own.statistics["tokens"]
    assert 0.08 * train < valid < 0.14 * train
    assert 0.08 * train < test < 0.14 * train


def test_an_empty_file_in_a_folder_of_texts_is_passed_over(tmp_path):
    (tmp_path / "texts").mkdir()
    for seed in range(4):
        (tmp_path / "texts" / f"{seed}.txt").write_text("a sentence , divided already ; " * (100 + seed))
    without = from_path(tmp_path / "texts", by="words")
    (tmp_path / "texts" / "+empty.txt").touch()
    found = from_path(tmp_path / "texts", by="words")
    assert (found.statistics, found.options) == (without.statistics, without.options)


def test_characters_are_code_points_and_new_ones_of_the_test_part_are_unknown(tmp_path):
    path = tmp_path / "greek.txt"
    path.write_text("αβγ_ δ\n" * 200 + "日本\n", encoding="utf-8")
    loaded = from_path(path).load()
    assert set(loaded.vocabulary.tokens) == {"<pad>", "<unk>", *"αβγ_ δ\n"}
    assert (loaded.test == loaded.vocabulary.unknown).sum() == 2


def test_words_are_divided_from_punctuation_and_rare_ones_are_unknown(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Well, she said: don't go! " * 100 + "hapax " + "Well, she said: don't go! " * 100)
    own = from_path(path, by="words")
    vocabulary = own.load().vocabulary
    assert {"don't", ",", "!", "said"} <= set(vocabulary.tokens)
    assert "hapax" not in vocabulary.tokens
    assert vocabulary.decode(vocabulary.encode("Well, don't go!")) == "Well, don't go!"


def test_a_text_that_is_divided_already_is_read_by_spaces_as_the_penn_treebank_is(tmp_path):
    path = tmp_path / "ptb.txt"
    path.write_text(" mr. <unk> said , n't once .\n" * 100 + " only\n")
    own = from_path(path, by="words", valid=path, test=path)
    assert own.options["tokenizer"] == "spaces"
    assert set(own.load().vocabulary.tokens) == {"<pad>", "<unk>", "mr.", "said", ",", "n't", "once", ".", "only"}


def test_bytes_read_anything(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(range(256)) * 10)
    loaded = from_path(path, by="bytes").load()
    assert len(loaded.train) + len(loaded.valid) + len(loaded.test) == 2560


def test_a_text_that_is_tested_on_itself_is_reported(tmp_path):
    path = own_files.text(tmp_path / "novel.txt")
    assert from_path(path, test=path).notes == ["1 of 1 files of test are also in an earlier split: scores look better"]
    assert from_path(path, test=own_files.text(tmp_path / "other.txt", seed=1)).notes == []


def test_a_split_is_a_function_of_content_not_of_names(tmp_path):
    folder = own_files.pieces(tmp_path / "one")
    other = tmp_path / "two"
    (other / "deep").mkdir(parents=True)
    files = list(folder.iterdir())
    random.Random(1).shuffle(files)
    for number, file in enumerate(files):
        (other / "deep" / f"{number}.midi").write_bytes(file.read_bytes())
    splits = [from_path(each, grid=1).load() for each in (folder, other)]
    for split in data.SPLITS:
        one, two = ({piece.tobytes() for piece in getattr(each, split)} for each in splits)
        assert one == two


def test_midi_in_zips_and_broken_files(tmp_path):
    folder = own_files.pieces(tmp_path / "midi", 6)
    (folder / "broken.mid").write_bytes(b"MThd nonsense")
    with zipfile.ZipFile(folder / "more.zip", "w") as archive:
        for file in own_files.pieces(tmp_path / "more", 6, seed=1).iterdir():
            archive.write(file, f"inner/{file.name}")
    own = from_path(folder, grid=1)
    assert sum(own.statistics["pieces"]) == 12
    assert any("broken.mid: is not a valid MIDI file" in note for note in own.notes)


def test_a_piece_and_its_transposition_come_into_one_split_and_are_reported(tmp_path):
    folder = own_files.pieces(tmp_path / "midi")
    for file in list(folder.iterdir())[:5]:
        song = mido.MidiFile(file)
        for message in song.tracks[0]:
            if message.type.startswith("note"):
                message.note += 3
        song.save(folder / f"up-{file.name}")
    own = from_path(folder, grid=1)
    assert any("5 pieces are the same as another, or transposed" in note for note in own.notes)
    given = from_path(folder, grid=1, test=folder)
    assert any("pieces of test are also in an earlier split" in note for note in given.notes)


def test_repeated_notes_differ_from_ties_and_rests_stay(tmp_path):
    track = mido.MidiTrack()
    for time in (0, 480):  # two half notes in a row, a rest of a quarter, then drums and a note too low
        track += [mido.Message("note_on", note=60, time=time and 0), mido.Message("note_off", note=60, time=960)]
    track += [mido.Message("note_on", note=62, time=480), mido.Message("note_off", note=62, time=480)]
    track += [mido.Message("note_on", note=40, channel=9, time=0), mido.Message("note_on", note=5, time=0)]
    song = mido.MidiFile(ticks_per_beat=480, tracks=[track])
    folder = own_files.pieces(tmp_path / "midi", 4)
    song.save(folder / "own.mid")
    own = from_path(folder, grid=2, valid=folder, test=folder)
    (piece,) = [piece for piece in own.load().train if piece[:, 62 - 21].any() and piece[:, 60 - 21].sum() == 7]
    assert piece[:, 60 - 21].tolist()[:8] == [1, 1, 1, 0, 1, 1, 1, 1]
    assert not piece[8:10].any()
    assert piece[10:, 62 - 21].all()
    assert {"left out: 3 drum notes", "left out: 3 notes outside the 88 keys"} <= set(own.notes)


@pytest.mark.parametrize(
    ("signature", "grid", "bar", "kept"),
    [
        ((4, 4), 4, 16, 12),
        ((3, 4), 4, 12, 0),
        ((6, 8), 2, 6, 0),
        ((7, 8), 4, 14, 12),
        ((7, 8), 3, 21, 9),
        ((5, 16), 1, 0, 0),
    ],
)
def test_bars_of_midi_files_are_known_and_pieces_begin_with_one(tmp_path, signature, grid, bar, kept):
    folder = tmp_path / "midi"
    folder.mkdir()
    for number in range(4):
        track = mido.MidiTrack([mido.MetaMessage("time_signature", numerator=signature[0], denominator=signature[1])])
        track += [
            mido.Message("note_on", note=50 + number, time=3 * 480),
            mido.Message("note_off", note=50 + number, time=960),
        ]
        track += [
            mido.Message("note_on", note=60 - 2 * number),
            mido.Message("note_off", note=60 - 2 * number, time=480),
        ]
        mido.MidiFile(ticks_per_beat=480, tracks=[track]).save(folder / f"{number}.mid")
    own = from_path(folder, grid=grid, valid=folder, test=folder)
    assert own.statistics["bar"] == bar
    music = own.load()
    assert {int(piece.any(1).argmax()) for split in data.SPLITS for piece in getattr(music, split)} == {kept}


def test_labelled_texts_from_a_table_and_from_folders_are_stratified(tmp_path):
    table = from_path(own_files.reviews(tmp_path / "reviews.csv"), text="body", label="stars")
    assert table.facts.classes == ("1", "5")
    assert table.facts.balance == {"train": [24, 24], "valid": [3, 3], "test": [3, 3]}
    for number in range(40):
        file = tmp_path / "folder" / ("bad", "good")[number % 2] / f"{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"number {number} is {('poor', 'fine')[number % 2]}")
    folder = from_path(tmp_path / "folder")
    assert folder.kind == "texts"
    assert folder.facts.classes == ("bad", "good")
    assert folder.statistics["texts"] == [32, 4, 4]


def test_copies_of_a_text_come_into_one_split(tmp_path):
    path = own_files.reviews(tmp_path / "reviews.csv")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *lines[1:], *lines[1:]]))
    own = from_path(path, text="body", label="stars")
    assert "60 texts are copies of others; copies are in one split together" in own.notes
    assert not any("earlier split" in note for note in own.notes)


def test_sequences_are_grouped_sorted_and_scaled_by_the_training_part(tmp_path):
    path = own_files.gestures(tmp_path / "gestures.csv")
    lines = path.read_text().splitlines()
    random.Random(0).shuffle(rows := lines[1:])
    (tmp_path / "shuffled.csv").write_text("\n".join([lines[0], *rows]))
    options = {"label": "kind", "sequence": "id", "time": "t"}
    own = from_path(path, **options)
    loaded, other = own.load(), from_path(tmp_path / "shuffled.csv", **options).load()
    assert own.facts.columns == ("x", "y")
    assert loaded.classes == ("down", "up")
    assert np.allclose(loaded.train.values.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(loaded.train.values.std(axis=0), 1, atol=1e-5)
    assert np.allclose(np.sort(other.train.values, axis=0), np.sort(loaded.train.values, axis=0))


def test_a_column_without_any_number_may_be_named(tmp_path):
    lines = own_files.gestures(tmp_path / "gestures.csv").read_text().splitlines()
    (tmp_path / "empty.csv").write_text("\n".join([f"{lines[0]},z", *(f"{line}," for line in lines[1:])]))
    own = from_path(tmp_path / "empty.csv", label="kind", sequence="id", columns="x,z")
    assert (own.load().train.values[:, 1] == 0).all()
    assert "column z always has the same value, so it says nothing" in own.notes


def test_rows_are_sequences_without_an_id_and_may_be_of_different_length(tmp_path):
    rows = [[("a", "b")[number % 2], number, number % 7, "" if number % 3 else 5] for number in range(40)]
    path = tmp_path / "wide.csv"
    path.write_text("class,t1,t2,t3\n" + "\n".join(",".join(map(str, row)) for row in rows))
    own = from_path(path, label="class")
    assert own.statistics["longest"] == 3
    assert "2 to 3 steps" in own.summary


@pytest.mark.parametrize(("classes", "said"), [("ab", "a 20, b 20"), ("12", "class 1: 20, class 2: 20")])
def test_counts_of_classes_that_are_numbers_are_told_from_them(tmp_path, classes, said):
    path = tmp_path / "wide.csv"
    rows = [f"{classes[number % 2]},{number},{number % 7}" for number in range(40)]
    path.write_text("\n".join(["kind,t1,t2", *rows]))
    assert f"2 classes: {said}; " in from_path(path, label="kind").summary


def bad_inputs(folder):
    """Return file, options and what the error says."""
    files = {
        "empty.txt": b"",
        "short.txt": b"too short",
        "binary.txt": bytes(500),
        "latin.txt": ("caf\xe9 " * 100).encode("latin-1"),
        "utf16.txt": ("word " * 100).encode("utf-16"),
        "cut.txt": ("a" * 400 + "\xe9").encode()[:-1],
        "one.mid": b"MThd" + bytes(20),
        "text.mid": b"some words " * 50,
        "notes.zip": b"PK\3\4" + bytes(50),
        "table.csv": b"a,b\n1,2\n3,4\n",
        "class.csv": b"text,label\n" + b"some words,x\n" * 20,
        "many.csv": b"text,label\n" + b"".join(b"some words,%d\n" % number for number in range(20)),
        "flat.csv": b"id,x,label\n" + b"".join(b"%d,1,%s\n" % (n, b"ab"[n % 2 : n % 2 + 1]) for n in range(20)),
        "nan.csv": b"id,x,label\n" + b"".join(b"%d,,%s\n" % (n, b"ab"[n % 2 : n % 2 + 1]) for n in range(20)),
        "two.csv": b"text,label\nsome words,x\nother words,y\n",
        "both.csv": b"id,x,label\n" + b"".join(b"1,%d,%d\n" % (n, n) for n in range(20)),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "links").mkdir()
    (folder / "links" / "a.txt").symlink_to(folder / "short.txt")
    (folder / "nothing").mkdir()
    os.mkfifo(folder / "pipe.txt")
    return [
        ("empty.txt", {}, "is empty; give a file with text"),
        ("short.txt", {}, "at least 200 bytes of text, got 9"),
        ("binary.txt", {}, "offset 0: is binary, not text"),
        ("latin.txt", {}, "offset 3: is not UTF-8 text"),
        ("utf16.txt", {}, "is UTF-16 text"),
        ("cut.txt", {}, "ends within a character"),
        ("one.mid", {}, "is one MIDI file; give a folder"),
        ("text.mid", {}, "is not a MIDI file, though it is named like one"),
        ("notes.zip", {}, "not a zip archive, or truncated|has no MIDI file"),
        ("table.csv", {}, "is a table with the columns a, b; say what to do with it"),
        ("table.csv", {"text": "body", "label": "b"}, "has no column 'body'"),
        ("class.csv", {"text": "text", "label": "label"}, "at least two classes in column 'label', got only 'x'"),
        ("many.csv", {"text": "text", "label": "label"}, "20 different values in 20 items; to predict numbers"),
        (
            "flat.csv",
            {"label": "label", "sequence": "id"},
            "must have columns whose numbers differ; always the same: x",
        ),
        ("nan.csv", {"label": "label", "sequence": "id"}, "must have columns with numbers beside label, id"),
        ("two.csv", {"text": "text", "label": "label"}, "at least 10 labelled items, got 2"),
        ("both.csv", {"label": "label", "sequence": "id"}, "sequence '1' must have one label"),
        ("links", {}, "only 1 links, which are not followed"),
        ("nothing", {}, "must have files with"),
        ("pipe.txt", {}, "is a pipe or a device"),
        ("missing.txt", {}, "cannot be read"),
    ]


def test_bad_input_is_refused_in_one_line_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "data").mkdir()
    for name, options, message in bad_inputs(tmp_path / "data"):
        with pytest.raises(DataError, match=message) as refused:
            presets.load(from_path(tmp_path / "data" / name, **options))
        assert "\n" not in str(refused.value)
        assert name in str(refused.value)
    assert not list((tmp_path / "cache").rglob("*")) or not list((tmp_path / "cache" / "prepared").iterdir())


def test_what_was_forgotten_beside_the_label_is_named(tmp_path):
    gestures, reviews = own_files.gestures(tmp_path / "g.csv"), own_files.reviews(tmp_path / "r.csv")
    note = (
        "column id seems to say which sequence a row belongs to: sequence='id'; now each row is a sequence of 3 steps"
    )
    assert from_path(gestures, label="kind").notes[0] == f"{note} (t, x, y)"
    assert not from_path(gestures, label="kind", sequence="id").notes
    with (
        command_spelling(),
        pytest.raises(ValueError, match=r"^--time sorts the rows .*; give --sequence COLUMN, which"),
    ):
        from_path(gestures, label="kind", time="t")
    with pytest.raises(DataError, match=r"beside stars; to classify the texts in it, give text='body'$"):
        from_path(reviews, label="stars").notes  # noqa: B018
    with pytest.raises(
        DataError, match=r"needs label=COLUMN, the column with the class .*; its columns are body, stars"
    ):
        from_path(reviews, text="body")
    with pytest.raises(DataError, match=r"needs label=COLUMN, the column with the class of each text"):
        from_csv(reviews, text="body")
    words = "".join(f'"it was {number % 7} really",{number},{number % 5},{number % 2}\n' for number in range(40))
    (tmp_path / "both.csv").write_text(f"body,x,y,label\n{words}")
    (text,) = [note for note in from_path(tmp_path / "both.csv", label="label").notes if "body" in note]
    assert text == "column body has texts, which are left out; to classify these: text='body'"


def test_an_option_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^grid is not for text by characters such as"):
        from_path(own_files.text(tmp_path / "a.txt"), grid=4)
    with pytest.raises(ValueError, match=r"^vocabulary is not for sequences"):
        from_path(own_files.gestures(tmp_path / "g.csv"), label="kind", sequence="id", vocabulary=50)


def test_a_long_line_takes_little_memory_and_is_named_by_words(tmp_path):
    (tmp_path / "line.txt").write_bytes(b"x" * (3 << 20))
    assert from_path(tmp_path / "line.txt").statistics["vocabulary"] == 3
    with pytest.raises(DataError, match="has a word of more than 65536 characters; is it text"):
        from_path(tmp_path / "line.txt", by="words").statistics  # noqa: B018


def test_the_config_holds_path_size_and_hash_and_only_the_path_does_not_count(tmp_path):
    own = from_path(own_files.text(tmp_path / "novel.txt"))
    config = presets.load(own)
    assert Config.of(config.tables()) == config
    assert config.data.expected["train"].size == (tmp_path / "novel.txt").stat().st_size
    (tmp_path / "elsewhere").mkdir()
    moved = from_path((tmp_path / "novel.txt").rename(tmp_path / "elsewhere" / "novel.txt"))
    assert presets.load(moved).id == config.id
    with (tmp_path / "elsewhere" / "novel.txt").open("a") as file:
        file.write("more")
    assert presets.load(from_path(tmp_path / "elsewhere" / "novel.txt")).id != config.id
    changed = config.changed({"data.path": str(tmp_path / "elsewhere" / "novel.txt")})
    with pytest.raises(DataError, match="has changed since the run began: it had"):
        changed.data.load()


def test_the_file_is_hashed_once_from_the_command_to_the_task(tmp_path, monkeypatch):
    hashed = []
    monkeypatch.setattr("rru.data.own.fingerprint", lambda *given: hashed.append(given) or fingerprint(*given))
    config = presets.override(
        presets.load(from_path(own_files.text(tmp_path / "novel.txt")), preset="smoke"), ["lr=0.1"]
    )
    tasks.make(config.task, own=config.data)
    assert len(hashed) == 1
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize("name", ["../out", "a/b", "", "bach", "A", "x" * 60])
def test_names_of_own_tasks_are_safe(tmp_path, name):
    tables = presets.load(from_path(own_files.text(tmp_path / "novel.txt"))).tables()
    with pytest.raises(ValueError, match=r"task\.name"):
        Config.of({**tables, "task": {**tables["task"], "name": name}})


def test_a_written_chorale_reads_back_as_it_was(tmp_path):
    from rru.inference import Piece, write_midi

    for number, roll in enumerate(data.load("bach").test[:10]):
        write_midi(Piece(roll, 0, 1), tmp_path / f"{number}.mid")
        assert (read_midi(tmp_path / f"{number}.mid", 1, gaps=True) == roll).all()


def test_chorales_as_files_are_the_embedded_set(tmp_path):
    from rru.inference import Piece, write_midi

    bach = data.load("bach")
    for split in data.SPLITS:
        (tmp_path / split).mkdir()
        for number, roll in enumerate(getattr(bach, split)[:12]):
            write_midi(Piece(roll, 0, 1), tmp_path / split / f"{number:02}.mid")
    own = from_path(tmp_path / "train", grid=1, valid=tmp_path / "valid", test=tmp_path / "test").load()
    for split in data.SPLITS:
        for ours, theirs in zip(getattr(own, split), getattr(bach, split)[:12], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_bytes_and_treebank_words_are_read_as_the_built_in_sets_are(tmp_path):
    """With the same parts, own files give the arrays and the vocabulary of the built-in task, so the same runs."""
    content = np.random.default_rng(0).integers(0, 200, 20_000).astype(np.uint8).tobytes()
    (tmp_path / "enwik8").write_bytes(content)
    cuts = {"train": content[:18_000], "valid": content[18_000:19_000], "test": content[19_000:]}
    for split, part in cuts.items():
        (tmp_path / f"{split}.txt").write_bytes(part)
        text = own_files.text(tmp_path / f"ptb.{split}.txt", seed=len(part)).read_text()
        (tmp_path / f"ptb.{split}.txt").write_text(" <unk> " + text.replace(".", " ."))
    bytes_ = [tmp_path / f"{split}.txt" for split in cuts]
    words = [tmp_path / f"ptb.{split}.txt" for split in cuts]
    for name, (train, valid, test), by, options in (
        ("enwik8", bytes_, "bytes", {}),
        ("ptb-words", words, "words", {}),
        ("ptb-words", words, "words", {"line_ends": True}),
    ):
        built_in = data.load(name, tmp_path, verify=False, **options)
        own = from_path(train, by=by, valid=valid, test=test).load(**options)
        assert own.vocabulary == built_in.vocabulary
        for split in data.SPLITS:
            np.testing.assert_array_equal(getattr(own, split), getattr(built_in, split))
