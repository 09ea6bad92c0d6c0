"""Models for the C engine (rru.h, rru.c): a blob of weights, in a folder for a C compiler or in a web page."""

from rru.inference.engine.folder import files, usage
from rru.inference.engine.model import blob, layer_blob
from rru.inference.engine.page import web_page

__all__ = ["blob", "files", "layer_blob", "usage", "web_page"]
