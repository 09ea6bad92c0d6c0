"""Classify texts or sequences of numbers in your own table, with all four cells at equal parameters.

python examples/own_labels.py reviews.csv --text body --label stars
python examples/own_labels.py gestures.csv --label kind --sequence id --time t
"""

import argparse

import rru

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("path", help="a CSV, TSV or Parquet file")
parser.add_argument("--label", required=True, help="the column with the class")
parser.add_argument("--text", help="the column with texts")
parser.add_argument("--sequence", help="the column that identifies each sequence")
parser.add_argument("--time", help="the column to sort the rows of a sequence by")
parser.add_argument("--preset", default="auto", choices=["auto", "smoke"])
options = parser.parse_args()

table = rru.data.from_csv(
    options.path, text=options.text, label=options.label, sequence=options.sequence, time=options.time
)
print(table.summary)
for cell in ("rru", "gru", "lstm", "mogrifier"):
    trained = rru.fit(table, cell=cell, preset=options.preset)
    scores = trained.result.test
    print(f"{cell:10} accuracy {scores['accuracy']:.1f} %, macro F1 {scores['macro_f1']:.1f} %: {trained.path}")
