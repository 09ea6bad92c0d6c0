"""Music that a trained model composes, and its files."""

import wave
from pathlib import Path

import mido
import numpy as np
import pytest
from PIL import Image

from rru import data
from rru.data import DataError
from rru.generate import Piece, compose, read_midi, score, write_midi
from rru.generate.music import notes
from rru.generate.sound import RATE, synthesise
from rru.training import RunError


@pytest.fixture(scope="module")
def opening():
    return data.load("bach").test[0][:8]


def roll(*chords):
    """A roll of steps, each given by its keys."""
    made = np.zeros((len(chords), 88), np.uint8)
    for step, keys in enumerate(chords):
        made[step, list(keys)] = 1
    return made


class TestComposing:
    def test_it_goes_on_from_what_is_given_as_long_as_asked(self, trained, opening):
        piece = compose(trained, opening, 20)
        assert piece.roll.shape == (28, 88)
        assert (piece.roll[:8] == opening).all()
        assert set(np.unique(piece.roll)) == {0, 1}

    def test_the_seed_decides(self, trained, opening):
        pieces = [compose(trained, opening, 20, seed=seed).roll for seed in (1, 1, 2)]
        assert (pieces[0] == pieces[1]).all()
        assert (pieces[0] != pieces[2]).any()

    def test_its_statistics_are_near_the_datas(self, trained, opening):
        pieces = data.load("bach").test
        made = [compose(trained, piece[:8], 64, seed=seed).roll[8:] for seed, piece in enumerate(pieces[:12])]
        assert _voices(made) == pytest.approx(_voices(pieces), abs=1.2)
        assert _repeats(made) == pytest.approx(_repeats(pieces), abs=0.2)
        low, high = np.quantile(_keys(pieces), [0.01, 0.99])
        assert ((_keys(made) >= low - 3) & (_keys(made) <= high + 3)).mean() > 0.95

    def test_a_low_temperature_makes_it_sure_of_itself(self, trained, opening):
        cold = [compose(trained, opening, 40, temperature=0.05, seed=seed).roll for seed in (1, 2)]
        hot = [compose(trained, opening, 40, temperature=2.0, seed=seed).roll for seed in (1, 2)]
        assert (cold[0] != cold[1]).mean() < (hot[0] != hot[1]).mean()
        assert hot[0][8:].sum() > cold[0][8:].sum()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"steps": 0}, "steps must be at least 1, got 0"),
            ({"temperature": 0.0}, "temperature must be from 0.01 to 100, got 0.0"),
            ({"prompt": np.zeros((0, 88), np.uint8)}, r"prompt must be \(steps, 88\) with at least one step"),
        ],
    )
    def test_bad_arguments(self, trained, opening, options, message):
        arguments = {"prompt": opening, "steps": 4, **options}
        with pytest.raises(ValueError, match=message):
            compose(trained, arguments.pop("prompt"), arguments.pop("steps"), **arguments)

    def test_silence_and_standstill_are_noticed(self):
        assert Piece(roll([40], *[[]] * 6, [41]), 1, 1).complaints() == ["6 of 7 steps are silent"]
        assert Piece(roll([40], *[[50, 54]] * 20), 1, 1).complaints() == ["nothing changes for 20 steps"]
        assert Piece(roll([40], *[[50, 54]] * 4), 1, 1).complaints() == [
            "nothing changes for 4 steps"
        ]  # the whole of it
        assert Piece(roll([40], [41], [43]), 1, 1).complaints() == []


def _voices(pieces):
    return float(np.mean([piece.sum(1).mean() for piece in pieces]))


def _repeats(pieces):
    """The share of sounding keys that sounded on the step before."""
    return float(np.mean([(piece[1:] & piece[:-1]).sum() / max(piece[1:].sum(), 1) for piece in pieces]))


def _keys(pieces):
    return np.concatenate([np.nonzero(piece)[1] for piece in pieces])


class TestPrompts:
    def test_two_bars_of_a_test_piece(self, trained):
        given = score.prompt(trained, None, 3, seed=0)
        assert (given == data.load("bach").test[3][:8]).all()

    def test_an_opening_chord_where_nothing_is_given(self, trained):
        given = score.prompt(trained, None, None, seed=5)
        assert len(given) == 1
        assert any((given[0] == piece[0]).all() for piece in data.load("bach").test)

    def test_a_piece_that_is_not_there(self, trained):
        with pytest.raises(ValueError, match="the test set of bach has pieces 0 to 45, got 46"):
            score.prompt(trained, None, 46, seed=0)

    def test_a_run_of_another_task(self, untrained_run):
        from rru.generate import load

        images = load(untrained_run("mnist"))
        with pytest.raises(RunError, match=r"to compose, a run must be of one of bach, jsb, .*; this one is of mnist"):
            score.prompt(images, None, None, seed=0)


class TestMidi:
    def test_what_is_written_reads_back_as_what_was_sampled(self, trained, opening, tmp_path):
        piece = compose(trained, opening, 64, seed=3)
        write_midi(piece, tmp_path / "a.mid")
        read = read_midi(tmp_path / "a.mid", 1, gaps=True)
        assert (read == piece.roll[: len(read)]).all()
        assert not piece.roll[len(read) :].any()

    def test_eighths(self, tmp_path):
        piece = Piece(roll([40, 44], [40], [], [47]), 0, 2)
        write_midi(piece, tmp_path / "a.mid")
        assert (read_midi(tmp_path / "a.mid", 2, gaps=True) == piece.roll).all()
        assert mido.MidiFile(tmp_path / "a.mid").length == pytest.approx(4 * 0.375)  # 80 quarter notes in a minute

    def test_held_notes_are_tied(self, tmp_path):
        write_midi(Piece(roll([40], [40], [40], [], [40]), 0, 1), tmp_path / "a.mid")
        starts = [m for m in mido.MidiFile(tmp_path / "a.mid").tracks[0] if m.type == "note_on"]
        assert len(starts) == 2
        assert notes(roll([40], [40, 3], [40], [], [40])) == [(40, 0, 3), (3, 1, 1), (40, 4, 1)]

    def test_gaps_are_left_out_of_a_prompt(self, tmp_path):
        write_midi(Piece(roll([40], [], [], [41]), 0, 1), tmp_path / "a.mid")
        assert (read_midi(tmp_path / "a.mid", 1) == roll([40], [41])).all()

    def test_notes_left_open_drums_and_several_tracks(self, tmp_path):
        on = [mido.Message("note_on", note=60, velocity=9), mido.Message("note_on", note=50, velocity=9, channel=9)]
        other = [
            mido.Message("note_on", note=64, velocity=9, time=480),
            mido.Message("note_on", note=64, velocity=0, time=480),
        ]
        file = mido.MidiFile(type=1, tracks=[mido.MidiTrack(on), mido.MidiTrack(other)])
        file.save(tmp_path / "a.mid")
        assert (read_midi(tmp_path / "a.mid", 1) == roll([39], [39, 43])).all()

    @pytest.mark.parametrize("start", range(5))
    def test_notes_off_the_beat_are_all_equally_long(self, tmp_path, start):
        """A note as long as a step, begun in the middle of one, is held in one middle only."""
        track = [
            mido.Message("note_on", note=60, time=480 * start + 240),
            mido.Message("note_off", note=60, time=480),
        ]
        mido.MidiFile(tracks=[mido.MidiTrack(track)]).save(tmp_path / "a.mid")
        assert read_midi(tmp_path / "a.mid", 1, gaps=True)[:, 39].tolist() == [0] * start + [1]

    def test_voices_on_one_channel_hand_a_note_over(self, tmp_path):
        """The second track's note ends in the moment in which the first track's begins."""
        first = [mido.Message("note_on", note=60, time=480), mido.Message("note_off", note=60, time=1440)]
        second = [mido.Message("note_on", note=60), mido.Message("note_off", note=60, time=480)]
        mido.MidiFile(tracks=[mido.MidiTrack(first), mido.MidiTrack(second)]).save(tmp_path / "a.mid")
        assert (read_midi(tmp_path / "a.mid", 1, gaps=True) == roll([39], [39], [39], [39])).all()

    def test_a_number_without_end_is_refused_at_once(self, tmp_path):
        track = b"\xff" * 1_000_000 + b"\x00\x90\x3c\x40"
        header = b"MThd\x00\x00\x00\x06\x00\x00\x00\x01\x01\xe0MTrk"
        (tmp_path / "a.mid").write_bytes(header + len(track).to_bytes(4, "big") + track)
        with pytest.raises(DataError, match="a number in it has thousands of bytes"):
            read_midi(tmp_path / "a.mid", 1)

    def test_a_device_without_end(self):
        with pytest.raises(DataError, match="/dev/zero: holds more than the 1048576 bytes it may hold"):
            read_midi(Path("/dev/zero"), 1)

    def test_a_file_without_notes_or_out_of_range(self, tmp_path):
        mido.MidiFile().save(tmp_path / "empty.mid")
        with pytest.raises(DataError, match="must have notes from 21 to 108; it has no notes"):
            read_midi(tmp_path / "empty.mid", 1)
        low = [mido.Message("note_on", note=5), mido.Message("note_off", note=5, time=480)]
        mido.MidiFile(tracks=[mido.MidiTrack(low)]).save(tmp_path / "low.mid")
        with pytest.raises(DataError, match="all 1 notes are outside"):
            read_midi(tmp_path / "low.mid", 1)


class TestPictureAndSound:
    def test_prompt_and_continuation_have_their_colours(self, tmp_path):
        files = score.write(Piece(roll([40], [44], [47], [52]), 2, 1), tmp_path / "a.mid")
        assert [file.suffix for file in files] == [".mid", ".png", ".wav"]
        colours = {colour: count for count, colour in Image.open(files[1]).getcolors()}
        assert colours[0x87, 0x93, 0xA3] > 50
        assert colours[0x1F, 0x6F, 0xEB] > 50

    def test_the_sound_lasts_as_long_as_the_piece_and_has_its_pitches(self, tmp_path):
        piece = Piece(roll([48], [48], [60]), 0, 1)  # A4, 440 Hz, twice as long as A5
        samples = synthesise(piece)
        assert len(samples) / RATE == pytest.approx(3 * 0.75 + 0.6, abs=0.01)
        assert np.abs(samples).max() == pytest.approx(0.9)
        for part, pitch in ((samples[: RATE // 2], 440), (samples[int(1.55 * RATE) : int(2.2 * RATE)], 880)):
            spectrum = np.abs(np.fft.rfft(part * np.hanning(len(part))))
            assert np.argmax(spectrum) * RATE / len(part) == pytest.approx(pitch, rel=0.02)
        score.write(piece, tmp_path / "a.mid")
        with wave.open(str(tmp_path / "a.wav")) as file:
            assert (file.getnchannels(), file.getframerate(), file.getnframes()) == (1, RATE, len(samples))

    def test_the_output_must_be_a_midi_file(self, tmp_path):
        with pytest.raises(ValueError, match=r"the output must be a \.mid file, got .*a\.wav"):
            score.places(tmp_path / "a.wav", 1, force=False)

    @pytest.mark.parametrize("there", ["a-2.mid", "a-1.png", "a-3.wav"])
    def test_nothing_is_replaced_unless_asked_for(self, tmp_path, there):
        (tmp_path / there).write_text("mine")
        with pytest.raises(
            ValueError, match=f"{there} is there already; choose another name, or replace it by --force"
        ):
            score.places(tmp_path / "a.mid", 3, force=False)
        assert [place.name for place in score.places(tmp_path / "a.mid", 3, force=True)] == [
            "a-1.mid",
            "a-2.mid",
            "a-3.mid",
        ]

    def test_where_one_file_cannot_be_written_none_is_left(self, tmp_path):
        (tmp_path / "a.png").write_text("mine")
        (tmp_path / "a.wav").mkdir()
        with pytest.raises(ValueError, match=r"a\.wav: could not be written \(Is a directory\)$"):
            score.write(Piece(roll([40]), 0, 1), tmp_path / "a.mid")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.wav"]
        with pytest.raises(ValueError, match=r"a\.png/b\.mid: could not be written"):
            score.write(Piece(roll([40]), 0, 1), tmp_path / "a.png" / "b.mid")
