"""Models for the C engine (rru.h, rru.c): a blob of weights, and a folder with all that a C compiler needs."""

from rru.inference.engine.folder import files, usage
from rru.inference.engine.model import blob, layer_blob

__all__ = ["blob", "files", "layer_blob", "usage"]
