"""Does the RRU learn wherever nn.LSTM learns, with plain Adam and defaults? `python -m benchmarks.robustness`."""
