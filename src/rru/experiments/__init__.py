"""The paper's experiments as data: presets, and what may be changed in them."""
