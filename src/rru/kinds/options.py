"""The options of reading a user's data, as commands and configs have them. A kind has those that its format names."""

from dataclasses import dataclass
from typing import Annotated

from rru.nn.options import Option, declared


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How a user's data is read. None means not given."""

    tokenizer: Annotated[str | None, Option("how to split a text into words", choices=("punctuation", "spaces"))] = None
    vocabulary: Annotated[
        int | None, Option("maximum number of words in the vocabulary; default 10,000", at_least=10, at_most=1_000_000)
    ] = None
    grid: Annotated[int | None, Option("steps per quarter note of MIDI files; default 4", at_least=1, at_most=96)] = (
        None
    )
    text: Annotated[str | None, Option("the column with texts to classify")] = None
    label: Annotated[str | None, Option("the column with the class to predict")] = None
    sequence: Annotated[str | None, Option("the column that says which sequence a row belongs to")] = None
    time: Annotated[
        str | None,
        Option(
            "the column with times, or integers that count steps, by which rows are sorted; without one, they are "
            "taken in the order of the file. For forecasts it is found by content or name"
        ),
    ] = None
    columns: Annotated[
        str | None, Option("the numeric columns to use as inputs, separated by commas; for forecasts also 'all'")
    ] = None
    target: Annotated[str | None, Option("the column to forecast")] = None
    horizon: Annotated[int | None, Option("number of steps to forecast", at_least=1)] = None
    id: Annotated[str | None, Option("the column that says which series a row belongs to")] = None
    known: Annotated[
        str | None, Option("input columns whose future values are known in advance, separated by commas")
    ] = None
    calendar: Annotated[bool | None, Option("whether to use the hour, the weekday and the time of year as inputs")] = (
        None
    )
    frequency: Annotated[
        str | None,
        Option("the time between steps, such as 30min, h, D, W or M; gives the season also where there are no dates"),
    ] = None
    season: Annotated[int | None, Option("number of steps after which a pattern repeats", at_least=1)] = None


READING_OPTIONS = declared(ReadingOptions)
