"""The paper's LaTeX source, read for the numbers in it."""

import re
from decimal import Decimal

FACTORS = {"": 1, "K": 10**3, "M": 10**6}


def table(source, label):
    """The rows of the table of that label, in blocks between rules, each row a list of its cells' text."""
    end = source.index(rf"\label{{{label}}}")
    body = source[source.rindex(r"\begin{tabular}", 0, end) : source.rindex(r"\end{tabular}", 0, end)]
    body = body.partition("\n")[2]
    blocks = []
    for block in re.split(r"\\(?:hline|cline\{[^}]*\})", body):
        rows = [[_plain(cell) for cell in re.split(r"(?<!\\)&", row)] for row in block.split(r"\\") if row.strip()]
        if rows:
            blocks.append(rows)
    return blocks


def _plain(cell):
    r"""A cell's text without \multirow{4}{*}{...} and \multicolumn{6}{c}{...} around it."""
    inner = re.fullmatch(r"\s*\\multi(?:row|column)\{[^}]*\}\{[^}]*\}\{(.*)\}\s*", cell, flags=re.DOTALL)
    return " ".join((inner[1] if inner else cell).split())


def number(text):
    """A number as the tables write it: 0.00495, 1e-3, 6.9M, 70K, 512."""
    digits, suffix = re.fullmatch(r"(-?[\d.]+(?:e-?\d+)?)([KM]?)", text).groups()
    return float(Decimal(digits) * FACTORS[suffix])


def paragraph(source, start):
    """The paragraph that begins with these words."""
    begin = source.index(start)
    return source[begin : source.index("\n\n", begin)]
