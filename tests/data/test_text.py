"""Text data sets as token ids, and vocabularies."""

import numpy as np
import pytest

from rru import data
from tests.data import samples


@pytest.fixture
def treebank(tmp_path):
    for split, text in samples.WORDS.items():
        samples.write(tmp_path, f"ptb.{split}.txt", text.encode())
    return tmp_path


def test_line_ends_are_dropped_by_default(treebank):
    text = data.load("ptb-words", treebank, verify=False)
    assert text.vocabulary.decode(text.train) == "the cat sat on the mat the <unk> ran N miles"
    assert len(text.train) == 11
    assert text.train.dtype == np.uint8


def test_line_ends_are_tokens_with_the_option(treebank):
    text = data.load("ptb-words", treebank, verify=False, line_ends=True)
    assert text.vocabulary.decode(text.train) == "the cat sat on the mat <eos> the <unk> ran N miles <eos>"
    assert text.vocabulary.decode(text.valid) == "the <unk> sat <eos>"


def test_unk_in_the_text_is_the_unknown_token(treebank):
    vocabulary = data.load("ptb-words", treebank, verify=False).vocabulary
    assert vocabulary.tokens.count("<unk>") == 1
    assert vocabulary.ids["<unk>"] == vocabulary.unknown


def test_vocabulary_comes_from_the_training_split(treebank):
    text = data.load("ptb-words", treebank, verify=False)
    assert "dog" not in text.vocabulary.ids
    assert text.valid[1] == text.vocabulary.unknown


def test_characters_are_made_from_words(treebank):
    text = data.load("ptb-chars", treebank, verify=False)
    assert text.vocabulary.decode(text.valid) == "the <unk>o<unk> sat"  # the training split has no d and no g
    assert text.vocabulary.tokens[int(text.valid[3])] == "_"
    assert data.published_characters(" the cat \n a dog \n") == "t h e _ c a t \n a _ d o g \n "


@pytest.mark.parametrize("archive", ["simple-examples.tgz", "ptb/simple-examples.tgz"])
def test_treebank_is_read_from_its_archive(archive, tmp_path, treebank):
    members = [(f"./simple-examples/data/ptb.{split}.txt", text.encode()) for split, text in samples.WORDS.items()]
    members.insert(0, ("./simple-examples/data/ptb.char.train.txt", b"t h e"))
    samples.write(tmp_path / "archived", archive, samples.tar_bytes(members))
    archived = data.load("ptb-words", tmp_path / "archived", verify=False)
    plain = data.load("ptb-words", treebank, verify=False)
    assert archived.vocabulary == plain.vocabulary
    np.testing.assert_array_equal(archived.test, plain.test)


@pytest.mark.parametrize(
    ("name", "folder", "form"), [("enwik8", ".", ""), ("enwik8", "enwik8", ".gz"), ("text8", "text8", ".zip")]
)
def test_bytes_are_split_90_5_5_in_order(name, folder, form, tmp_path):
    content = b"abc " * 100
    given = {"": content, ".gz": samples.packed(content), ".zip": samples.zip_bytes(name, content)}[form]
    samples.write(tmp_path, f"{folder}/{name}{form}", given)
    text = data.load(name, tmp_path, verify=False)
    assert [len(part) for part in (text.train, text.valid, text.test)] == [360, 20, 20]
    assert text.vocabulary.decode(np.concatenate([text.train, text.valid, text.test])) == content.decode()
    assert text.vocabulary.tokens == ("<pad>", "<unk>", " ", "a", "b", "c")
    assert text.train.dtype == np.uint8


def test_text8_has_27_tokens_plus_padding_and_unknown(tmp_path):
    samples.write(tmp_path, "text8", b"the quick brown fox jumps over the lazy dog " * 20)
    assert (
        len(data.load("text8", tmp_path, verify=False).vocabulary)
        == 27 + 2
        == 2 + data.data_set("text8").statistics["vocabulary"]
    )


def test_byte_not_in_the_training_split_is_unknown(tmp_path):
    samples.write(tmp_path, "enwik8", b"a" * 99 + b"z")
    text = data.load("enwik8", tmp_path, verify=False)
    assert text.test[-1] == text.vocabulary.unknown


def test_all_256_bytes_are_tokens(tmp_path):
    samples.write(tmp_path, "enwik8", bytes(range(256)) * 10)
    text = data.load("enwik8", tmp_path, verify=False)
    assert text.train.dtype == np.uint16
    assert len(text.vocabulary) == 258
    assert text.train.max() == 257


def test_other_text_is_rejected(tmp_path):
    samples.write(tmp_path, "enwik8", b"a" * 100)
    with pytest.raises(data.DataError, match="is truncated or modified: has 100 bytes, must have 100000000"):
        data.load("enwik8", tmp_path)


class TestVocabulary:
    def test_saved_and_loaded_it_decodes_text(self, tmp_path):
        vocabulary = data.Vocabulary.of([chr(byte) for byte in range(256)], "bytes")
        vocabulary.save(tmp_path / "vocabulary.json")
        again = data.Vocabulary.load(tmp_path / "vocabulary.json")
        assert again == vocabulary
        assert again.decode(vocabulary.encode("naïve — 100 €\n")) == "naïve — 100 €\n"
        assert [path.name for path in tmp_path.iterdir() if path.suffix] == ["vocabulary.json"]

    def test_decode_drops_padding_and_shows_unknown(self):
        vocabulary = data.Vocabulary.of(["a", "b"], "words")
        assert vocabulary.decode([2, 0, 1, 3, 0]) == "a <unk> b"
        assert vocabulary.encode("b c").tolist() == [3, 1]

    @pytest.mark.parametrize(
        "content",
        [
            *(b"", b"{", b"[]", b"\xff", b"[" * 100_000),
            b'{"kind": "words", "padding": 0, "unknown": 9, "tokens": ["a"]}',
            b'{"kind": "words", "padding": 0, "unknown": 0, "tokens": ["a", "a"]}',
        ],
    )
    def test_damaged_file_is_named(self, content, tmp_path):
        path = samples.write(tmp_path, "vocabulary.json", content)
        with pytest.raises(data.DataError, match=r"vocabulary.json"):
            data.Vocabulary.load(path)
