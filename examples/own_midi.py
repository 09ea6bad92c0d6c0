"""Learn from a folder of MIDI files, then compose.

    python examples/own_midi.py midi-folder/ --grid 4

Writes new.mid, its picture and its sound.
"""

import argparse

import rru

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("path", help="a folder of .mid and .midi files, also nested or zipped")
parser.add_argument("--grid", type=int, default=4, help="steps per quarter note")
parser.add_argument("--transpose", type=int, default=6, help="transpose training pieces by up to this many semitones")
parser.add_argument("--preset", default="auto", choices=["auto", "smoke"])
options = parser.parse_args()

music = rru.data.from_midi(options.path, grid=options.grid)
print(music.summary)
for note in music.notes:
    print(" ", note)
trained = rru.fit(music, preset=options.preset, settings={"transposition": options.transpose})
print(f"{trained.path}: test {trained.result.test}")
piece = trained.compose(bars=8, from_test=0)  # after two bars of a piece that it has not seen
print(piece.save("new.mid", force=True))
