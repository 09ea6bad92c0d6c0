"""Train on your own text, then write in its style.

    python examples/own_text.py novel.txt --by words

Run it again to write more: the trained model stays in `runs`.
"""

import argparse

import rru

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("path", help="a UTF-8 text file, or a folder of them")
parser.add_argument("--by", default="characters", choices=["characters", "words", "bytes"])
parser.add_argument("--preset", default="auto", choices=["auto", "smoke"])
options = parser.parse_args()

text = rru.data.from_text(options.path, by=options.by)
print(text.summary)
trained = rru.fit(text, cell="rru", preset=options.preset)
print(f"{trained.path}: test {trained.result.test}")
print(trained.write(length=200, temperature=0.8))
