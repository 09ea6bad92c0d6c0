"""How fast the layers are, beside torch's own: `python -m benchmarks.layers`."""
