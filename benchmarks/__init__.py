"""Benchmarks of the layers against torch.nn: `python -m benchmarks.layers`."""
