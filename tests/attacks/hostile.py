"""Helper for attacks: a reader may only return data or raise DataError."""

from rru import data
from rru.data.own.formats import format_of

OPTIONS = {"verify": False, "line_ends": False}


def prepare(name, folder, **options):
    """Read a data set from a folder, without the cache."""
    entry = data.data_set(name)
    return format_of(entry.kind).prepare_set(data.find(entry, folder), OPTIONS | options)
