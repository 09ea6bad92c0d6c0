"""Malicious and damaged MIDI files raise an error that names the file."""

import random
import struct

import mido
import pytest

from rru.data import DataError
from rru.inference import read_midi


def file(*events, ticks=480, kind=0):
    track = b"".join(events) + b"\x00\xff\x2f\x00"
    return b"MThd" + struct.pack(">IHHH", 6, kind, 1, ticks) + b"MTrk" + struct.pack(">I", len(track)) + track


ON, OFF = b"\x00\x90\x3c\x40", b"\x87\x40\x80\x3c\x00"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"MThd", "is not a valid MIDI file"),
        (b"RIFF" + bytes(100), "is not a valid MIDI file"),
        (file(ON, OFF)[:-6], "is not a valid MIDI file"),
        (file(ON, OFF, ticks=0), "ticks per quarter note must be from 1 to 32767, got 0"),
        (file(ON, b"\xff\xff\xff\x7f\x80\x3c\x00"), "must have at most 4096 steps, got 559241"),
        (file(ON, *[b"\xff\xff\xff\x7f\x80\x3d\x00"] * 9), "must have at most 4096 steps"),
        (b"MThd" + struct.pack(">IHHH", 6, 1, 65535, 480) + b"MTrk\xff\xff\xff\xff", "it has no notes"),
        (bytes(2 << 20), "has 2097152 bytes, more than"),
    ],
)
def test_invalid_file_is_rejected(content, message, tmp_path):
    (tmp_path / "a.mid").write_bytes(content)
    with pytest.raises(DataError, match=message) as refused:
        read_midi(tmp_path / "a.mid", 1)
    assert "a.mid" in str(refused.value)


def test_valid_file_is_read(tmp_path):
    (tmp_path / "a.mid").write_bytes(file(ON, OFF))
    assert read_midi(tmp_path / "a.mid", 1).sum() == 2


def test_random_changes_give_a_roll_or_a_data_error(tmp_path):
    track = mido.MidiTrack()
    for note in range(40, 80):
        track += [mido.Message("note_on", note=note, time=10), mido.Message("note_off", note=note, time=480)]
    mido.MidiFile(tracks=[track]).save(tmp_path / "a.mid")
    content, draw = (tmp_path / "a.mid").read_bytes(), random.Random(0)
    refused = 0
    for _ in range(300):
        changed = bytearray(content)
        for _ in range(draw.choice([1, 1, 2, 8])):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        (tmp_path / "b.mid").write_bytes(changed[: draw.randrange(len(changed))] if draw.random() < 0.2 else changed)
        try:
            assert read_midi(tmp_path / "b.mid", 1).shape[1] == 88
        except DataError:
            refused += 1
    assert 10 < refused < 290
