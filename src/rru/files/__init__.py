"""Atomic writes, checked reads and locks. No other module handles half-written files."""

from rru.files.atomic import (
    append_line,
    flush_file,
    flush_folder,
    make_folder,
    not_flushed,
    sweep,
    unfinished_folder,
    write_file,
    write_folder,
)
from rru.files.errors import Damaged, FileError, Locked, cannot_write
from rru.files.folders import files_in, walk
from rru.files.locks import Lock, is_locked
from rru.files.safe_read import (
    MANIFEST,
    MAX_VALUES,
    json_values,
    open_file,
    own_file,
    own_folder,
    parse_json,
    read_file,
    read_folder,
)

__all__ = [
    "MANIFEST",
    "MAX_VALUES",
    "Damaged",
    "FileError",
    "Lock",
    "Locked",
    "append_line",
    "cannot_write",
    "files_in",
    "flush_file",
    "flush_folder",
    "is_locked",
    "json_values",
    "make_folder",
    "not_flushed",
    "open_file",
    "own_file",
    "own_folder",
    "parse_json",
    "read_file",
    "read_folder",
    "sweep",
    "unfinished_folder",
    "walk",
    "write_file",
    "write_folder",
]
