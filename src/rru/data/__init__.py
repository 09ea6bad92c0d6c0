"""Data sets by name, as arrays: read safely, split as the paper splits them."""

from rru.data.catalogue import CATALOGUE, Entry, RemoteFile, entry
from rru.data.errors import DataError, MissingData
from rru.data.folder import Found, Part, cache_dir, data_dir, find, present

__all__ = [
    "CATALOGUE",
    "DataError",
    "Entry",
    "Found",
    "MissingData",
    "Part",
    "RemoteFile",
    "cache_dir",
    "data_dir",
    "entry",
    "find",
    "present",
]
