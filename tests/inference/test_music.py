"""Composing music, and the files of a piece."""

import wave
from pathlib import Path

import mido
import numpy as np
import pytest
from PIL import Image

from rru import data
from rru.data import DataError
from rru.data.midi import grid
from rru.files import FileError
from rru.inference import Piece, compose, read_midi, score, write_midi
from rru.inference.music import notes
from rru.inference.sound import RATE, synthesise
from rru.training import RunError


@pytest.fixture(scope="module")
def opening():
    return data.load("bach").test[0][:8]


def roll(*chords):
    """A piano roll from the keys of each step."""
    made = np.zeros((len(chords), 88), np.uint8)
    for step, keys in enumerate(chords):
        made[step, list(keys)] = 1
    return made


class TestComposing:
    def test_piece_begins_with_the_prompt_and_has_the_given_length(self, trained, opening):
        piece = compose(trained, opening, 20)
        assert piece.roll.shape == (28, 88)
        assert (piece.roll[:8] == opening).all()
        assert set(np.unique(piece.roll)) == {0, 1}

    def test_same_seed_gives_the_same_piece(self, trained, opening):
        pieces = [compose(trained, opening, 20, seed=seed).roll for seed in (1, 1, 2)]
        assert (pieces[0] == pieces[1]).all()
        assert (pieces[0] != pieces[2]).any()

    def test_statistics_are_close_to_the_data(self, trained, opening):
        pieces = data.load("bach").test
        made = [compose(trained, piece[:8], 64, seed=seed).roll[8:] for seed, piece in enumerate(pieces[:12])]
        assert _voices(made) == pytest.approx(_voices(pieces), abs=1.2)
        assert _repeats(made) == pytest.approx(_repeats(pieces), abs=0.2)
        low, high = np.quantile(_keys(pieces), [0.01, 0.99])
        assert ((_keys(made) >= low - 3) & (_keys(made) <= high + 3)).mean() > 0.95

    def test_low_temperature_gives_less_variety(self, trained, opening):
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

    def test_silent_and_stuck_pieces_are_reported(self):
        assert Piece(roll([40], *[[]] * 6, [41]), 1, 1).complaints() == ["6 of 7 steps are silent"]
        assert Piece(roll([40], *[[50, 54]] * 20), 1, 1).complaints() == ["nothing changes for 20 steps"]
        assert Piece(roll([40], *[[50, 54]] * 4), 1, 1).complaints() == ["nothing changes for 4 steps"]
        assert Piece(roll([40], [41], [43]), 1, 1).complaints() == []


def _voices(pieces):
    return float(np.mean([piece.sum(1).mean() for piece in pieces]))


def _repeats(pieces):
    """The fraction of keys that also sounded on the previous step."""
    return float(np.mean([(piece[1:] & piece[:-1]).sum() / max(piece[1:].sum(), 1) for piece in pieces]))


def _intervals(pieces):
    """The mean distance of neighbouring keys of a chord."""
    return float(np.mean(np.concatenate([np.diff(np.flatnonzero(step)) for piece in pieces for step in piece])))


def _keys(pieces):
    return np.concatenate([np.nonzero(piece)[1] for piece in pieces])


def _composed(trained, pieces, count, **options):
    """Continuations of pieces, 64 steps each, without the prompts."""
    return [compose(trained, piece[:8], 64, seed=seed, **options).composed for seed, piece in enumerate(pieces[:count])]


class TestJointOutput:
    def test_statistics_are_close_to_the_data(self, joint):
        pieces = data.load("bach").test
        made = _composed(joint, pieces, 12)
        assert _voices(made) == pytest.approx(_voices(pieces), rel=0.05)
        assert _intervals(made) == pytest.approx(_intervals(pieces), rel=0.07)
        assert _repeats(made) == pytest.approx(_repeats(pieces), abs=0.1)

    def test_temperature_changes_variety_but_not_the_number_of_voices(self, joint):
        pieces = data.load("bach").test
        cold, hot = (_composed(joint, pieces, 4, temperature=temperature) for temperature in (0.5, 1.5))
        assert _voices(cold) == pytest.approx(_voices(hot), rel=0.07)
        assert len(np.unique(np.concatenate(cold), axis=0)) < 0.8 * len(np.unique(np.concatenate(hot), axis=0))

    @pytest.mark.parametrize("voices", [3, 5])
    def test_pieces_have_the_wanted_number_of_voices(self, joint, opening, voices):
        piece = compose(joint, opening, 16, voices=voices)
        assert piece.composed.sum(1).tolist() == [voices] * 16
        assert piece.complaints(voices) == []

    def test_independent_keys_can_have_a_number_of_voices_too(self, trained, opening):
        assert set(compose(trained, opening, 16, voices=4).composed.sum(1)) == {4}

    def test_a_number_of_voices_that_the_model_does_not_know_is_reported(self, joint, opening):
        (complaint,) = compose(joint, opening, 3, voices=40).complaints(40)
        assert complaint == "3 of 3 steps do not have 40 voices"


class TestPrompts:
    def test_two_bars_of_a_test_piece(self, trained):
        given = score.prompt(trained, None, 3, seed=0)
        assert (given.roll == data.load("bach").test[3][:8]).all()

    def test_first_chord_of_a_test_piece_by_default(self, trained):
        given = score.prompt(trained, None, None, seed=5)
        assert len(given.roll) == 1
        assert any((given.roll[0] == piece[0]).all() for piece in data.load("bach").test)

    def test_rests_and_eighth_notes_of_a_file_are_kept(self, trained, tmp_path):
        eighths = roll([40, 44, 47], [40, 45], [40], [40], [], [], [42, 45], [42, 47])
        write_midi(Piece(eighths, 0, 2), tmp_path / "a.mid")
        given = score.prompt(trained, tmp_path / "a.mid", None, seed=0)
        assert (given.roll == roll([40, 44, 47], [40], [42, 45])).all()  # a chord for each quarter that sounds
        piece = score.continued(trained, given, 2)
        assert (piece.roll[:8] == eighths).all()
        assert (piece.prompt, piece.steps_per_beat, piece.composed.shape) == (8, 2, (8, 88))
        assert (piece.roll[8::2] == piece.roll[9::2]).all()  # composed quarters
        write_midi(piece, tmp_path / "b.mid")
        assert mido.MidiFile(tmp_path / "b.mid").length == pytest.approx(12 * 0.75)  # quarter notes

    @pytest.mark.parametrize(
        ("ticks", "parts"),
        [
            ((0, 480, 960), 1),
            ((0, 240, 480), 2),
            ((0, 160, 320), 3),
            ((0, 360, 480), 4),
            ((0, 470, 963), 1),  # not quite on the beat
            ((0, 101, 333), 4),  # a recording
        ],
    )
    def test_a_file_is_read_on_a_grid_that_fits_its_notes(self, tmp_path, ticks, parts):
        track = mido.MidiTrack()
        for before, now in zip((0, *ticks), ticks, strict=False):
            track += [mido.Message("note_on", note=60, time=now - before), mido.Message("note_on", note=60, velocity=0)]
        mido.MidiFile(tracks=[track]).save(tmp_path / "a.mid")
        assert grid(tmp_path / "a.mid", 1) == parts

    def test_a_moved_piece_continues_a_file_at_its_pitch(self, joint, opening, tmp_path):
        write_midi(Piece(opening, 0, 1), tmp_path / "a.mid")
        given = score.prompt(joint, tmp_path / "a.mid", None, seed=0, octave=-1)
        assert (given.roll[:, 12:] == opening[:, :-12]).all()
        assert (score.continued(joint, given, 1, octave=-1).roll[:8] == opening).all()

    def test_a_note_that_would_leave_the_keys_is_not_moved(self):
        assert (Piece(roll([5, 14]), 0, 1).moved(-1).roll == roll([2, 5])).all()

    def test_test_piece_out_of_range(self, trained):
        with pytest.raises(ValueError, match="test piece of bach must be from 0 to 45, got 46"):
            score.prompt(trained, None, 46, seed=0)

    def test_run_of_another_task(self, untrained_run):
        from rru.inference import load

        images = load(untrained_run("mnist"))
        with pytest.raises(RunError, match=r"`compose` needs a run of bach, jsb, .*; this is a run of mnist"):
            score.prompt(images, None, None, seed=0)


class TestMidi:
    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(DataError, match=r"piano\.mid: does not exist$"):
            read_midi(tmp_path / "piano.mid", 1)

    def test_written_piece_reads_back(self, trained, opening, tmp_path):
        piece = compose(trained, opening, 64, seed=3)
        write_midi(piece, tmp_path / "a.mid")
        read = read_midi(tmp_path / "a.mid", 1, gaps=True)
        assert (read == piece.roll[: len(read)]).all()
        assert not piece.roll[len(read) :].any()

    def test_eighths(self, tmp_path):
        piece = Piece(roll([40, 44], [40], [], [47]), 0, 2)
        write_midi(piece, tmp_path / "a.mid")
        assert (read_midi(tmp_path / "a.mid", 2, gaps=True) == piece.roll).all()
        assert mido.MidiFile(tmp_path / "a.mid").length == pytest.approx(4 * 0.375)  # 80 quarter notes per minute

    def test_held_keys_are_one_note(self, tmp_path):
        write_midi(Piece(roll([40], [40], [40], [], [40]), 0, 1), tmp_path / "a.mid")
        starts = [m for m in mido.MidiFile(tmp_path / "a.mid").tracks[0] if m.type == "note_on"]
        assert len(starts) == 2
        assert notes(roll([40], [40, 3], [40], [], [40])) == [(40, 0, 3), (3, 1, 1), (40, 4, 1)]

    def test_gaps_are_dropped_by_default(self, tmp_path):
        write_midi(Piece(roll([40], [], [], [41]), 0, 1), tmp_path / "a.mid")
        assert (read_midi(tmp_path / "a.mid", 1) == roll([40], [41])).all()

    def test_unfinished_notes_drums_and_several_tracks(self, tmp_path):
        on = [mido.Message("note_on", note=60, velocity=9), mido.Message("note_on", note=50, velocity=9, channel=9)]
        other = [
            mido.Message("note_on", note=64, velocity=9, time=480),
            mido.Message("note_on", note=64, velocity=0, time=480),
        ]
        file = mido.MidiFile(type=1, tracks=[mido.MidiTrack(on), mido.MidiTrack(other)])
        file.save(tmp_path / "a.mid")
        assert (read_midi(tmp_path / "a.mid", 1) == roll([39], [39, 43])).all()

    @pytest.mark.parametrize("start", range(2))
    def test_note_between_two_steps_sounds_on_one(self, tmp_path, start):
        track = [
            mido.Message("note_on", note=60, time=480 * start + 240),
            mido.Message("note_off", note=60, time=480),
        ]
        mido.MidiFile(tracks=[mido.MidiTrack(track)]).save(tmp_path / "a.mid")
        assert read_midi(tmp_path / "a.mid", 1, gaps=True)[:, 39].tolist() == [0] * start + [1]

    def test_note_that_ends_on_one_track_as_it_starts_on_another(self, tmp_path):
        first = [mido.Message("note_on", note=60, time=480), mido.Message("note_off", note=60, time=1440)]
        second = [mido.Message("note_on", note=60), mido.Message("note_off", note=60, time=480)]
        mido.MidiFile(tracks=[mido.MidiTrack(first), mido.MidiTrack(second)]).save(tmp_path / "a.mid")
        assert (read_midi(tmp_path / "a.mid", 1, gaps=True) == roll([39], [39], [39], [39])).all()

    def test_huge_number_is_rejected(self, tmp_path):
        track = b"\xff" * 1_000_000 + b"\x00\x90\x3c\x40"
        header = b"MThd\x00\x00\x00\x06\x00\x00\x00\x01\x01\xe0MTrk"
        (tmp_path / "a.mid").write_bytes(header + len(track).to_bytes(4, "big") + track)
        with pytest.raises(DataError, match="a number in it has thousands of bytes"):
            read_midi(tmp_path / "a.mid", 1)

    def test_endless_device_is_rejected(self):
        with pytest.raises(DataError, match="/dev/zero: must be a file"):
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

    def test_sound_has_the_length_and_pitches_of_the_piece(self, tmp_path):
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

    def test_output_must_be_a_midi_file(self, tmp_path):
        with pytest.raises(ValueError, match=r"output must be a \.mid file, got .*a\.wav"):
            score.places(tmp_path / "a.wav", 1, force=False)

    @pytest.mark.parametrize("there", ["a-2.mid", "a-1.png", "a-3.wav"])
    def test_existing_files_are_replaced_only_with_force(self, tmp_path, there):
        (tmp_path / there).write_text("mine")
        with pytest.raises(ValueError, match=f"{there} exists; choose another name, or overwrite it with force=True"):
            score.places(tmp_path / "a.mid", 3, force=False)
        assert [place.name for place in score.places(tmp_path / "a.mid", 3, force=True)] == [
            "a-1.mid",
            "a-2.mid",
            "a-3.mid",
        ]

    def test_failed_write_leaves_no_new_files(self, tmp_path):
        (tmp_path / "a.png").write_text("mine")
        (tmp_path / "a.wav").mkdir()
        with pytest.raises(FileError, match=r"a\.wav: could not be written \(Is a directory\)"):
            score.write(Piece(roll([40]), 0, 1), tmp_path / "a.mid")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.wav"]
        with pytest.raises(FileError, match=r"a\.png: could not be written"):
            score.write(Piece(roll([40]), 0, 1), tmp_path / "a.png" / "b.mid")
