"""Forecasts of AutoETS and AutoTheta, if the package `statsforecast` is installed."""

import importlib.util
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

METHODS = ("AutoETS", "AutoTheta")
MAX_FITS = 200  # a fit takes up to seconds
LEVELS = (80, 95)
KEYS = ("lo-95", "lo-80", "mean", "hi-80", "hi-95")
"""The forecasts of statsforecast in the order of `rru.tasks.QUANTILES`."""


def is_installed() -> bool:
    """Return whether statsforecast is installed."""
    return importlib.util.find_spec("statsforecast") is not None


def forecasts(
    histories: Sequence[NDArray[np.float64]], horizon: int, season: int
) -> tuple[dict[str, NDArray[np.float64]], list[str]]:
    """Return the quantiles (W, horizon, 5) of each method, fitted to each history; and what was left out and why.

    **Arguments:** `histories`: the values (T,) before each forecast; `season`: steps after which a pattern repeats.
    """
    if not is_installed():
        return {}, []
    if len(histories) > MAX_FITS:
        return {}, [
            f"{' and '.join(METHODS)} are left out: {len(histories):,} forecasts, at most {MAX_FITS} are fitted"
        ]
    from statsforecast import models

    found, notes = dict[str, NDArray[np.float64]](), list[str]()
    for name in METHODS:
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                rows = [_fitted(getattr(models, name), history, horizon, season) for history in histories]
        except Exception as error:  # whatever another package raises must not end the backtest
            notes.append(f"{name} is left out: it fails on these series ({str(error)[:80] or type(error).__name__})")
        else:
            found[name] = np.stack(rows)
    return found, notes


def _fitted(method: type, history: NDArray[np.float64], horizon: int, season: int) -> NDArray[np.float64]:
    """Return the quantiles (horizon, 5) of a method fitted to a history; raise ValueError if one is not finite."""
    made = method(season_length=season).forecast(y=history, h=horizon, level=list(LEVELS))
    quantiles = np.stack([np.asarray(made[key], np.float64) for key in KEYS], axis=-1)
    if not np.isfinite(quantiles).all():
        raise ValueError("its forecasts are not finite")
    return quantiles
