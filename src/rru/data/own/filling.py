"""Fill missing values of series from those before them. What comes later is never used: it may be what to forecast."""

import numpy as np
from numpy.typing import NDArray

from rru.data.own.scaling import Values


def filled(values: Values, observed: NDArray[np.bool_], season: int) -> Values:
    """Return values (T,) of a series whose missing ones are those of a season before, shifted to the present level.

    The shift is by how much the last known value differs from the one a season before it. It fades within a season: a
    level soon says little about a series that returns to its pattern. Fillings stay between the lowest and the highest
    value so far. Without a season, and before one has passed, they repeat the last known value.

    **Arguments:** `observed`: (T,), where values are known: the first is.
    """
    if observed.all():
        return values
    places = np.arange(len(values))
    last = np.maximum.accumulate(np.where(observed, places, 0))
    result = values[last]
    if season == 1:
        return result
    lowest, highest = np.minimum.accumulate(result), np.maximum.accumulate(result)
    shares = np.maximum(1 - (places - last) / season, 0.0)
    missing = np.flatnonzero(~observed & (last >= season))
    for steps in np.split(missing, np.flatnonzero(np.diff(missing // season)) + 1):  # by the season that they are in
        ends = last[steps]
        guesses = result[steps - season] + shares[steps] * (result[ends] - result[ends - season])
        result[steps] = np.clip(guesses, lowest[steps], highest[steps])
    return result
