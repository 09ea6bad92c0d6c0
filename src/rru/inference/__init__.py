"""Use trained models: compose music, write text, classify, stream many sequences, and export to other runtimes."""

from rru.data.midi import read_midi
from rru.inference.backtest_scores import Backtest
from rru.inference.backtesting import backtest
from rru.inference.classifying import classify, classify_all
from rru.inference.evaluating import evaluate
from rru.inference.export import export
from rru.inference.fitting import fit
from rru.inference.forecasting import Forecast, Forecasts, forecast
from rru.inference.line_reader import LineReader
from rru.inference.loading import load
from rru.inference.midi import write_midi
from rru.inference.music import Piece, compose
from rru.inference.streaming import Stream, stream
from rru.inference.trained import Trained
from rru.inference.writing import unknown_tokens, write

Reader = LineReader  # its name until version 0.2

__all__ = [
    "Backtest",
    "Forecast",
    "Forecasts",
    "LineReader",
    "Piece",
    "Reader",
    "Stream",
    "Trained",
    "backtest",
    "classify",
    "classify_all",
    "compose",
    "evaluate",
    "export",
    "fit",
    "forecast",
    "load",
    "read_midi",
    "stream",
    "unknown_tokens",
    "write",
    "write_midi",
]
