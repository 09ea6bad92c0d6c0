"""Options of reading a user's data that several kinds have."""

from typing import Annotated

from rru.nn.options import Option

Vocabulary = Annotated[
    int | None, Option("maximum number of words in the vocabulary; default 10,000", at_least=10, at_most=1_000_000)
]
Label = Annotated[str | None, Option("the column with the class to predict")]
Time = Annotated[str | None, Option("the column with times, by which rows are sorted")]
Columns = Annotated[
    str | None, Option("the numeric columns to use as inputs, separated by commas; for forecasts also 'all'")
]
